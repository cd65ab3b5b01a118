# SPDX-License-Identifier: Apache-2.0
"""Models fitted to other episodes: judges for policies that train in a model of a log (`policy.trust.judges`).

A cluster bootstrap: each refit weighs the independent blocks of the log (`data.windows.blocks_of`) as often as it draws
them, and moves the mean of each prior at random. All refits share the Jacobian of the solution, so that one costs a few
roll-outs of the log, not a fit.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from neurodyn.core import artifacts
from neurodyn.core.errors import InputError
from neurodyn.core.seeds import derive_seed
from neurodyn.data.windows import blocks_of
from neurodyn.identify.fit.intervals import draw_weights
from neurodyn.identify.fit.least_squares import Weights, move, step
from neurodyn.identify.fit.residuals import Normal, Point, Residuals
from neurodyn.identify.unknowns.search_space import CoordinateSpace, PartOfSpace

Gradient = Callable[[Point, Tensor], Tensor]
"""From a point and the errors there to the gradients of its windows (`Residuals.chord`)."""

REFITS = "refits.safetensors"
"""File of a run with the quantities of its refits, a tensor of shape [refits] each."""
_STEPS = 8
"""Steps of a refit."""
_ROUGH = 1.1
"""Largest cost of a refit, relative to that of the solution. Contacts make costs rough: a move of a standard deviation,
which lowers the cost by less than a thousandth, may raise it by some percent, which another log would not repeat."""
_SETTLED, _DAMPING = 1e-4, 1e-4
"""Relative decrease of the cost below which a refit has settled; damping of its steps."""


@torch.no_grad()
def refit(
    residuals: Residuals, point: Point, normal: Normal, gradient: Gradient, determined: Tensor, count: int,
    seed: int = 0,
) -> Tensor:  # fmt: skip
    """Return the quantities fitted to resampled blocks of a log, by a few steps with the Jacobian of the solution.

    All coordinates move, as far as their priors and the log let them. Where such a refit is worse than the solution, as
    when the limit of a joint enters the range of the log, only those move that the log determines.

    Args:
        residuals: Residuals of the fit.
        point: Its solution, of which the first set counts.
        normal: The normal equations there.
        gradient: Gradients at other points (`Residuals.chord`).
        determined: Which coordinates the log determines, bool, shape [n].
        count: Number of refits.
        seed: Seed of the draws.

    Returns:
        Values of the quantities of `residuals.space`, shape [count, quantities].
    """
    first = point.pick(torch.tensor([0]))
    weights = draw_weights(
        residuals, blocks_of(residuals.windows), count, torch.Generator().manual_seed(derive_seed(seed, "refits"))
    )
    groups = torch.arange(len(determined)), torch.nonzero(determined)[:, 0]
    coarse, known = residuals.with_dynamics(residuals.coarser_dynamics), residuals.errors(first)
    lacking = known - coarse.errors(first)  # of roll-outs with longer steps, nearly the same elsewhere

    def errors_at(point: Point) -> Tensor:
        return coarse.errors(point) + lacking

    rows = []
    for number in range(count):  # one by one: all together would hold `count` copies of the log's roll-outs
        own = weights.pick(torch.tensor([number]))
        most = _ROUGH * float(own.cost(residuals, first, known))
        ends = (_end(residuals, first, normal, gradient, own, kept, most, errors_at) for kept in groups)
        rows.append(next((end.x for end in ends if end is not None), first.x))
    return residuals.space.values(torch.cat(rows))


def _end(
    residuals: Residuals, first: Point, normal: Normal, gradient: Gradient, own: Weights, kept: Tensor, most: float,
    errors_at: Callable[[Point], Tensor],
) -> Point | None:  # fmt: skip
    """Return the end of a refit in which the coordinates `kept` move; None if its cost is above `most`.

    The first step is taken whole, although it may leave a curved valley of the cost; later ones return to it.
    """
    at, cost, slope = first, math.inf, normal.gradient
    for _ in range(_STEPS):
        after = _move(residuals, at, Normal(normal.matrix, slope, normal.cost), own, kept)
        errors = errors_at(after)
        now = float(own.cost(residuals, after, errors))
        if at is not first and not now < (1.0 - _SETTLED) * cost:
            break
        at, cost, slope = after, now, gradient(after, errors)
    return at if cost <= most else None


def _move(residuals: Residuals, at: Point, normal: Normal, own: Weights, kept: Tensor) -> Point:
    """Return a point after a step of the coordinates `kept`, with the others held."""
    space = residuals.space
    assert isinstance(space, CoordinateSpace)
    columns = torch.cat([kept, torch.arange(at.x.shape[1], normal.gradient.shape[-1])])
    part = Normal(normal.matrix[..., columns, :][..., columns], normal.gradient[..., columns], normal.cost)
    weights = replace(own, prior=own.prior[:, kept])
    start = replace(at, x=at.x[:, kept])
    held = residuals.with_space(PartOfSpace(space, kept, at.x[0]))
    change = step(held, weights.normal(part), start, torch.tensor([_DAMPING], dtype=torch.float64), weights)
    moves = torch.zeros_like(at.x)
    moves[:, kept] = change.x
    return move(residuals, at, replace(change, x=moves))


def write_refits(run: Path, names: tuple[str, ...], values: Tensor) -> None:
    """Write the quantities of refits, shape [refits, names], into a run."""
    columns = {name: column.float().contiguous() for name, column in zip(names, values.unbind(-1), strict=True)}
    artifacts.write_tensors(run / REFITS, columns)


def read_refits(run: Path) -> Mapping[str, Tensor] | None:
    """Return the quantities of a run's refits by name, shape [refits] each; None if it holds none.

    Raises:
        InputError: The file is damaged.
    """
    if not (run / REFITS).is_file():
        return None
    tensors = artifacts.read_tensors(run / REFITS)
    if not tensors:
        raise InputError(f"{run / REFITS}: holds no quantities; valid: a run of `neurodyn adapt`")
    return tensors
