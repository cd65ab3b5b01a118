# SPDX-License-Identifier: Apache-2.0
"""A start for servo gains whose declared values are placeholders, orders of magnitude away from the robot's.

A model with another stiffness follows commands so differently that a search from there ends in a poor minimum. Before
it, all guessed gains are scaled together, then those of each joint; where a start predicts much better, it is taken,
and priors become as wide as it is far.
"""

from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from neurodyn.data.header import Split
from neurodyn.identify.unknowns.search_space import CoordinateSpace

if TYPE_CHECKING:
    from neurodyn.identify.settings import FitStage
    from neurodyn.identify.stages.growing_windows import Fitting

_FACTORS = (3.0, 0.3, 0.1, 0.03, 0.01)
_BETTER = 0.8
"""Share of the cost that another start must have to be taken."""


def scan_gains(fitting: "Fitting", stage: "FitStage") -> None:
    """Move a fit's guessed gains to where windows of a stage are predicted much better, if anywhere."""
    joints: dict[str, list[int]] = {}
    for k, one in enumerate(fitting.space.coordinates):
        if one.guessed and one.nominal > 0.0 and one.name.endswith((".kp", ".kd")):
            joints.setdefault(one.name.rpartition(".")[0], []).append(k)
    if not joints:
        return
    everything = [k for rows in joints.values() for k in rows]
    factors = torch.ones(len(fitting.x), dtype=torch.float64)
    costs = _costs(fitting, stage, [factors])
    best = costs[0]
    for rows in (everything, *(joints.values() if len(joints) > 1 else ())):
        tried = [factors.clone() for _ in _FACTORS]
        for one, factor in zip(tried, _FACTORS, strict=True):
            one[rows] *= factor
        costs = _costs(fitting, stage, tried)
        k = min(range(len(costs)), key=costs.__getitem__)
        if costs[k] < _BETTER * best:
            factors, best = tried[k], costs[k]
    if bool((factors != 1.0).any()):
        fitting.space, fitting.x = _scaled(fitting.space, fitting.x, factors)
        fitting.model = fitting.model.with_space(fitting.space)


@torch.no_grad()
def _costs(fitting: "Fitting", stage: "FitStage", tried: list[Tensor]) -> list[float]:
    residuals = fitting.residuals(fitting.windows(Split.TRAIN, stage))
    costs = []
    for factors in tried:
        space, x = _scaled(fitting.space, fitting.x, factors)
        there = residuals.with_space(space)
        cost = float(there.cost(there.start(x[None])))
        costs.append(cost if torch.isfinite(torch.tensor(cost)) else float("inf"))
    return costs


def _scaled(space: CoordinateSpace, x: Tensor, factors: Tensor) -> tuple[CoordinateSpace, Tensor]:
    """Return coordinates with values times factors, and a space whose priors have them within a deviation."""
    x, coordinates = x.clone(), list(space.coordinates)
    for k in torch.nonzero(factors != 1.0)[:, 0].tolist():
        one = coordinates[k]
        far = one.of(float(one.value(x[k])) * float(factors[k]))
        coordinates[k] = replace(one, width=one.width * max(1.0, abs(far)))
        x[k] = far * one.width / coordinates[k].width
    return space.with_widths({one.name: one.width for one in coordinates}), x
