# SPDX-License-Identifier: Apache-2.0
"""Models fitted to other episodes: judges for policies that train in a model of a log (`policy.judges`).

A cluster bootstrap: each refit weighs the independent blocks of the log (`data.windows.blocks_of`) as often as it draws
them, and moves the mean of each prior at random. All refits share the Jacobian of the solution, so that one costs a few
roll-outs of the log, not a fit.
"""

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from neurodyn.core import artifacts
from neurodyn.core.errors import InputError
from neurodyn.core.seeds import derive_seed
from neurodyn.data.windows import blocks_of
from neurodyn.identify.intervals import draw_weights
from neurodyn.identify.least_squares import move, step
from neurodyn.identify.residuals import Normal, Point, Residuals

REFITS = "refits.safetensors"
"""File of a run with the quantities of its refits, a tensor of shape [refits] each."""
_LENGTHS = (1.0, 0.5, 0.25, 0.0)
"""Shares of a Gauss-Newton step that are tried."""
_ROUGH = 1.1
"""Largest cost after a step, relative to that before. Contacts make costs rough: a step of a standard deviation, which
lowers the cost by less than a thousandth, may raise it by some percent, which another log would not repeat."""
_DAMPING = 1e-6


@torch.no_grad()
def refit(residuals: Residuals, point: Point, normal: Normal, count: int, seed: int = 0) -> Tensor:
    """Return the quantities fitted to resampled blocks of a log by one Gauss-Newton step from the solution.

    Args:
        residuals: Residuals of the fit.
        point: Its solution, of which the first set counts.
        normal: The normal equations there.
        count: Number of refits.
        seed: Seed of the draws.

    Returns:
        Values of the quantities of `residuals.space`, shape [count, quantities].
    """
    first = point.pick(torch.tensor([0]))
    weights = draw_weights(
        residuals, blocks_of(residuals.windows), count, torch.Generator().manual_seed(derive_seed(seed, "refits"))
    )
    rows = []
    for number in range(count):  # one by one: all together would hold `count` copies of the log's roll-outs
        own = weights.pick(torch.tensor([number]))
        change = step(residuals, own.normal(normal), first, torch.tensor([_DAMPING], dtype=torch.float64), own)
        tried = [
            move(residuals, first, Point(share * change.x, share * change.local, share * change.initial))
            for share in _LENGTHS
        ]
        most = _ROUGH * float(own.cost(residuals, first))
        rows.append(next((one.x for one in tried if float(own.cost(residuals, one)) <= most), first.x))
    return residuals.space.values(torch.cat(rows))


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
