# SPDX-License-Identifier: Apache-2.0
r"""Confidence intervals by block bootstrap: the fit, repeated on resampled logs (Efron 1979; Kuensch 1989).

Each resample draws as many blocks (`identifiability.Blocks`) as the data have, with replacement, and draws the means
of the priors. It starts from the solution and keeps the channel scales of the fit; all resamples run in parallel as
worlds. An interval extends from the fitted value to either side by $t_{n-1} \sqrt{n/(n-1)}$ times the root mean square
deviation of the resamples on that side, with n blocks and Student's t. Percentiles of a hundred resamples scatter more
than their root mean square, and are too narrow for few blocks (Hesterberg 2015, "What teachers should know about the
bootstrap", The American Statistician 69).
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
"""Minimum number of blocks; five blocks give 126 distinct resamples."""
_ITERATIONS = 12
_SETTLED = 2.5e-3
"""Decrease of the cost below which a resample has converged: a step of 0.05 standard deviations."""
_DAMPING = 1e-5
_BYTES = 1 << 25
_FAILED = 0.1
"""Maximum share of resamples that may fail."""

Report = Callable[[int, int], bool]
"""Called with the number of finished resamples and their total; returns true to stop."""


@dataclass(frozen=True)
class Resamples:
    """Fits of resampled logs.

    Attributes:
        values: Values of the converged fits, shape [N, n].
        asked: Number of fitted resamples, including those that did not converge.
        blocks: The resampled blocks.
    """

    values: Tensor
    asked: int
    blocks: Blocks

    @property
    def enough(self) -> bool:
        """Whether at least 90 % of the resamples converged."""
        return len(self.values) >= (1.0 - _FAILED) * self.asked

    @property
    def deviations(self) -> Tensor:
        """Standard deviation of each parameter, shape [n]."""
        return self.values.std(0) * self._widening

    @property
    def _widening(self) -> float:
        return (self.blocks.count / (self.blocks.count - 1)) ** 0.5

    def intervals(self, values: Tensor, lower: Tensor, upper: Tensor) -> list[tuple[float, float]]:
        """Return the 95 % interval of each parameter around its fitted value, within its bounds."""
        reach = student_t(self.blocks.count - 1) * self._widening
        below, above = (_one_sided((self.values - values) * sign) for sign in (-1.0, 1.0))
        low, high = torch.maximum(values - reach * below, lower), torch.minimum(values + reach * above, upper)
        return list(zip(low.tolist(), high.tolist(), strict=True))


def require_blocks(residuals: Residuals) -> None:
    """Raise an InputError if there are too few blocks for a bootstrap."""
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
    """Fit resampled logs.

    Args:
        residuals: The residuals, in the scaling of the fit.
        point: The solution.
        count: Number N of resamples.
        seed: Seed of the draws.
        report: See `Report`.
    """
    blocks, point = blocks_of(residuals.windows), point.pick(torch.tensor([0]))
    weights = _drawn(residuals, blocks, count, torch.Generator().manual_seed(derive_seed(seed, "bootstrap")))
    # A group's Jacobian, its weighted copy and a difference of roll-outs fit into the processor's cache.
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
    """Return the root mean square of the positive distances among [N, n], shape [n]."""
    there = distance > 0.0
    return ((distance.square() * there).sum(0) / there.sum(0).clamp_min(1)).sqrt()


def _first_step(residuals: Residuals, point: Point, normal: Normal, weights: Weights) -> Point:
    """Return the resamples after a first step, for which all share the Jacobian at the solution.

    A resample whose cost does not fall stays at the solution.
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
    if blocks.logs:  # free quantities of a log that was not drawn keep their prior
        logs = torch.where(times > 0.0, times, 1.0)
    width = 0 if residuals.prior is None else len(residuals.prior.columns)
    shift = torch.randn(count, width, generator=generator, dtype=torch.float64)
    return Weights(times[:, blocks.of_window], logs, shift)
