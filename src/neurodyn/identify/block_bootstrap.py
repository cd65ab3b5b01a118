# SPDX-License-Identifier: Apache-2.0
r"""Intervals by block bootstrap: the fit, repeated on logs drawn with replacement (Efron 1979; Kuensch 1989).

Each resample draws as many blocks (`blocks`) as there are and begins at the solution; all are searched side by
side as worlds. Means of priors are drawn anew as well. Scales of the channels stay those of the fit. An interval
reaches from the fit to either side by $t_{n-1} \sqrt{n/(n-1)}$ root mean squares of the resamples on that side, n the
number of blocks and t Student's: percentiles of a hundred resamples scatter more than their root mean square, and are
too narrow for few blocks (Hesterberg 2015, "What teachers should know about the bootstrap", The American Statistician
69).
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from neurodyn.core.errors import InputError
from neurodyn.core.seeds import derive_seed
from neurodyn.identify.identifiability import Blocks, blocks_of, student_t
from neurodyn.identify.least_squares import Weights, levenberg_marquardt, moved, step
from neurodyn.identify.residuals import Normal, Point, Residuals

LEAST_BLOCKS = 5
"""Fewest blocks: of five, 126 different resamples can be drawn."""
_ITERATIONS = 12
_SETTLED = 2.5e-3
"""Gain of a step below which a resample has converged: a step of .05 standard deviations."""
_DAMPING = 1e-5
_BYTES = 1 << 25
_FAILED = 0.1
"""Most of the resamples that may fail."""

Report = Callable[[int, int], bool]
"""Called with the resamples done and their number; ends the bootstrap where it returns true."""


@dataclass(frozen=True)
class Resamples:
    """Fits of resamples.

    Attributes:
        values: Physical values, shape [N, n]; those that converged alone.
        asked: How many were asked for.
        blocks: What was drawn.
    """

    values: Tensor
    asked: int
    blocks: Blocks

    @property
    def enough(self) -> bool:
        """Whether nine resamples in ten converged."""
        return len(self.values) >= (1.0 - _FAILED) * self.asked

    @property
    def deviations(self) -> Tensor:
        """Standard deviation of each parameter, shape [n]."""
        return self.values.std(0) * self._widening

    @property
    def _widening(self) -> float:
        return (self.blocks.count / (self.blocks.count - 1)) ** 0.5

    def intervals(self, values: Tensor, lower: Tensor, upper: Tensor) -> list[tuple[float, float]]:
        """Return the 95 % interval of each parameter about its fitted value, within its bounds."""
        reach = student_t(self.blocks.count - 1) * self._widening
        below, above = (_one_sided((self.values - values) * sign) for sign in (-1.0, 1.0))
        low, high = torch.maximum(values - reach * below, lower), torch.minimum(values + reach * above, upper)
        return list(zip(low.tolist(), high.tolist(), strict=True))


def require_blocks(residuals: Residuals) -> None:
    """Refuse a bootstrap of too few windows, with an InputError."""
    blocks, windows = blocks_of(residuals.windows), residuals.windows
    if blocks.count < LEAST_BLOCKS:
        raise InputError(
            f"bootstrap: {len(windows.logs)} log(s) with {windows.count} window(s) of {windows.frames} frames are "
            f"{blocks.count} block(s) to draw from; valid: at least {LEAST_BLOCKS}: more logs, longer ones, or a "
            "shorter horizon"
        )


def bootstrap(
    residuals: Residuals, point: Point, count: int, *, seed: int = 0, report: Report | None = None
) -> Resamples:
    """Fit resamples.

    Args:
        residuals: The residuals, in the units of the fit.
        point: The solution.
        count: Number N of resamples.
        seed: Seed of the draws.
        report: See `Report`.
    """
    blocks, point = blocks_of(residuals.windows), point.pick(torch.tensor([0]))
    weights = _drawn(residuals, blocks, count, torch.Generator().manual_seed(derive_seed(seed, "bootstrap")))
    # A group's Jacobian, its weighed copy and a difference of roll-outs stay near the processor together.
    columns = residuals.parameters + residuals.locals + residuals.initials
    row = 3 * 8 * residuals.windows.count * residuals.windows.frames * len(residuals.scale) * columns
    group = max(1, _BYTES // row)
    normal, found, done = residuals.normal(point), [], 0
    for first in range(0, count, group):
        rows = torch.arange(first, min(first + group, count))
        own = weights.pick(rows)
        start = _first_step(residuals, point, normal, own)
        solution = levenberg_marquardt(residuals, start, _ITERATIONS, tolerance=_SETTLED / residuals.count, weights=own)
        good = solution.converged & torch.isfinite(solution.cost)
        found.append(residuals.values(solution.point.x[good]))
        done += len(rows)
        if report is not None and report(done, count):
            break
    return Resamples(torch.cat(found), done, blocks)


def _one_sided(distance: Tensor) -> Tensor:
    """Return the root mean square of the distances [N, n] above 0, shape [n]."""
    there = distance > 0.0
    return ((distance.square() * there).sum(0) / there.sum(0).clamp_min(1)).sqrt()


def _first_step(residuals: Residuals, point: Point, normal: Normal, weights: Weights) -> Point:
    """Return where the first step leads, for which all resamples share one Jacobian; the solution where it gains none.

    Args:
        residuals: The residuals.
        point: The solution.
        normal: Normal equations there.
        weights: Weights of S resamples.
    """
    sets = len(weights.windows)
    start = Point(*(part.expand(sets, *part.shape[1:]).clone() for part in vars(point).values()))
    each = Normal(*(part.expand(sets, *part.shape[1:]) for part in vars(normal).values()))
    damping = torch.full((sets,), _DAMPING, dtype=torch.float64)
    there = moved(residuals, start, step(residuals, weights.normal(each), start, damping, weights))
    gains = torch.nonzero(weights.cost(residuals, there) < weights.cost(residuals, start))[:, 0]
    return start.put(gains, there.pick(gains))


def _drawn(residuals: Residuals, blocks: Blocks, count: int, generator: torch.Generator) -> Weights:
    drawn = torch.randint(blocks.count, (count, blocks.count), generator=generator)
    times = torch.zeros(count, blocks.count, dtype=torch.float64)
    times.scatter_add_(1, drawn, torch.ones_like(times))
    logs = torch.ones(count, len(residuals.windows.logs), dtype=torch.float64)
    if blocks.logs:  # what is free in a log that was not drawn stays where it is
        logs = torch.where(times > 0.0, times, 1.0)
    width = 0 if residuals.prior is None else len(residuals.prior.columns)
    shift = torch.randn(count, width, generator=generator, dtype=torch.float64)
    return Weights(times[:, blocks.of_window], logs, shift)
