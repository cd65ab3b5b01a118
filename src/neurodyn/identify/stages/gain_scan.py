# SPDX-License-Identifier: Apache-2.0
"""A start for servo gains whose declared values are placeholders, orders of magnitude away from the robot's.

A model with another stiffness follows commands so differently that a search from there ends in a poor minimum. Before
it, all guessed gains are scaled together, then those of each joint; where a start predicts much better, it is taken,
and priors become as wide as it is far.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from neurodyn.identify.unknowns.search_space import CoordinateSpace

_FACTORS = (3.0, 0.3, 0.1, 0.03, 0.01)
_BETTER = 0.8
"""Share of the cost that another start must have to be taken."""


def guessed_gains(space: CoordinateSpace) -> dict[str, list[int]]:
    """Return the coordinates of servo gains that were guessed, by joint."""
    joints: dict[str, list[int]] = {}
    for k, one in enumerate(space.coordinates):
        if one.guessed and one.nominal > 0.0 and one.name.endswith((".kp", ".kd")):
            joints.setdefault(one.name.rpartition(".")[0], []).append(k)
    return joints


@torch.no_grad()
def scan_gains(
    space: CoordinateSpace,
    x: Tensor,
    joints: Mapping[str, Sequence[int]],
    cost: Callable[[CoordinateSpace, Tensor], float],
) -> tuple[CoordinateSpace, Tensor]:
    """Return the space and coordinates with gains from which a log is predicted much better; the same ones if none are.

    Args:
        space: Space of the coordinates.
        x: Coordinates, shape [n].
        joints: Coordinates of gains by joint (`guessed_gains`).
        cost: Cost at coordinates of a space; ones that are not finite are never taken.
    """

    def cost_of(factors: Tensor) -> float:
        value = cost(*_scale(space, x, factors))
        return value if math.isfinite(value) else math.inf

    everything = [k for rows in joints.values() for k in rows]
    factors = torch.ones(len(x), dtype=torch.float64)
    best = cost_of(factors)
    for rows in (everything, *(joints.values() if len(joints) > 1 else ())):
        tried = [factors.clone() for _ in _FACTORS]
        for one, factor in zip(tried, _FACTORS, strict=True):
            one[list(rows)] *= factor
        costs = [cost_of(one) for one in tried]
        k = min(range(len(costs)), key=costs.__getitem__)
        if costs[k] < _BETTER * best:
            factors, best = tried[k], costs[k]
    return _scale(space, x, factors) if bool((factors != 1.0).any()) else (space, x)


def _scale(space: CoordinateSpace, x: Tensor, factors: Tensor) -> tuple[CoordinateSpace, Tensor]:
    """Return coordinates with values times factors, and a space whose priors have them within a deviation."""
    x, coordinates = x.clone(), list(space.coordinates)
    for k in torch.nonzero(factors != 1.0)[:, 0].tolist():
        one = coordinates[k]
        far = one.of(float(one.value(x[k])) * float(factors[k]))
        coordinates[k] = replace(one, width=one.width * max(1.0, abs(far)))
        x[k] = far * one.width / coordinates[k].width
    return space.with_widths({one.name: one.width for one in coordinates}), x
