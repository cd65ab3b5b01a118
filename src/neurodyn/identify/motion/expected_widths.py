# SPDX-License-Identifier: Apache-2.0
r"""How wide intervals will be after a further log, and for which of them a motion is worth its time.

With the information $J$ of all logs on coordinates in standard deviations of their priors, a fit has the covariance

$$\Sigma(J) = (J + I)^{-1} (v J + I) (J + I)^{-1}$$

for residuals of variance $v$, relative to their assumed noise. An element of its diagonal is that of a Schur
complement: a motion narrows a quantity by what it tells of it alone, and not together with others. Stated intervals
are wider, by the spread of scores over blocks, which falls alike; by what a model lacks, which may err alike in all of
them (`Identifiability.inflated`); and by what is not noise: the spread of solutions for windows of other lengths and
steps of the engine (`Identifiability.moved`), which no further motion takes away.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from neurodyn.data.windows import BLOCK_EXPONENT
from neurodyn.identify.fit.intervals import Identifiability
from neurodyn.identify.fit.least_squares import forgetting

HALF = 0.5
_AIM, _SURELY = 0.4, 0.45
"""Expected width, relative to the present one, at which a motion is long enough, and at which it halves the interval
that it is designed for: widths of later fits scatter."""
WORTH = 0.97
"""Width, relative to the present one, that is not worth a word."""
_TRIED = 12
"""Most coordinates, the widest first, for which parts are chosen."""


@dataclass(frozen=True)
class PartChoice:
    """Parts of a motion that is designed for one coordinate.

    Attributes:
        target: Index of the coordinate.
        order: Indices of the parts, in the order in which they are added; one may come again.
        gained: Their information, shape [n, n].
        ratio: Expected standard deviation of the target, relative to the present one.
    """

    target: int
    order: tuple[int, ...]
    gained: Tensor
    ratio: float


class ExpectedWidths:
    """Standard deviations of coordinates now and with a further log, relative to those of their priors.

    Attributes:
        now: Those of the stated intervals, shape [n].
        floor: The part of them that is not noise, shape [n].
    """

    def __init__(
        self, analysis: Identifiability, shares: Callable[[float], tuple[float, float, float]],
        unseen: Tensor | None = None,
    ) -> None:  # fmt: skip
        """Prepare the widths.

        Args:
            analysis: Identifiability of the coordinates from the logs so far.
            shares: Returns the shares of the logs and of a further one of some seconds that a fit to both sees, and the
                number of its windows relative to that so far.
            unseen: Direction of which fits ignore what logs say, shape [n]; None for none.
        """
        self._shares, self._variance, self._unseen = shares, analysis.variance, unseen
        self._degrees, self._unexplained = analysis.degrees, analysis.unexplained
        told = torch.nan_to_num(analysis.deviations, posinf=1.0).clamp(max=1.0)
        self.floor = torch.zeros_like(told) if analysis.moved is None else torch.minimum(analysis.moved, told)
        self._noisy = (told.square() - self.floor.square()).clamp_min(0.0).sqrt()
        self.now = torch.hypot(self._noisy, self.floor)
        self._free = (~analysis.bound).double()
        self._known = analysis.information * self._free[:, None] * self._free
        self._before = self._plain(self._known).clamp_min(1e-12)

    def then(self, gained: Tensor, seconds: float) -> Tensor:
        """Return the standard deviations with further logs of some length and information [..., n, n], [..., n]."""
        narrower = self._plain(self._with(gained, seconds)) / self._before
        return torch.hypot(self._noisy * (self._inflation(seconds) * narrower).clamp(max=1.0), self.floor)

    def _inflation(self, seconds: float) -> float:
        """Return by how much more deviations are inflated with further logs, which have more blocks of windows."""
        blocks = (self._degrees + 1.0) * self._shares(seconds)[2] ** BLOCK_EXPONENT
        return ((1.0 + self._unexplained * (blocks - 1.0)) / (1.0 + self._unexplained * self._degrees)) ** 0.5

    def ratios(self, gained: Tensor, seconds: float) -> Tensor:
        """Return the standard deviations with further logs, relative to the present ones; 1 at bounds, [..., n]."""
        return torch.where(self._free > 0.0, self.then(gained, seconds) / self.now.clamp_min(1e-12), 1.0)

    def choose(self, pool: Sequence[Tensor], seconds: float, most: int, told_below: float = 1.0) -> PartChoice:
        """Return parts that halve the widest interval that parts can, or narrow one as far as they can.

        Args:
            pool: Information of each part, [n, n].
            seconds: Length of a part [s].
            most: Most parts.
            told_below: Standard deviation below which a quantity counts as determined; one that stays above it is
                chosen only if no other narrows.
        """
        every = torch.stack(list(pool))
        hopeful = self.ratios(most * every, most * seconds).amin(0)
        told = hopeful * self.now < told_below
        hopeful = torch.where(told, hopeful, 1.0) if bool((told & (hopeful < WORTH)).any()) else hopeful
        able = torch.nonzero(hopeful <= hopeful.min().clamp_min(HALF))[:, 0]
        best: PartChoice | None = None
        for k in able[self.now[able].argsort(descending=True)][:_TRIED].tolist():
            found = self.parts(k, pool, seconds, most)
            if best is None or found.ratio < best.ratio:
                best = found
            if found.ratio <= _SURELY:
                return found
        assert best is not None
        return best

    def parts(self, target: int, pool: Sequence[Tensor], seconds: float, most: int) -> PartChoice:
        """Return the parts of a pool that narrow one coordinate, the best first, until it is narrow enough."""
        every, order = torch.stack(list(pool)), list[int]()
        gained, ratio = torch.zeros_like(every[0]), 1.0
        while len(order) < most and ratio > _AIM:
            whole = (len(order) + 1) * seconds
            best = int(self._plain(self._with(gained + every, whole))[:, target].argmin())
            order.append(best)
            gained = gained + every[best]
            ratio = float(self.ratios(gained, whole)[target])
        return PartChoice(target, tuple(order), gained, ratio)

    def rival(self, target: int, gained: Tensor, seconds: float) -> int | None:
        """Return the coordinate from whose effect further logs hardly tell that of a target; None if they do."""
        known = self._with(gained, seconds)
        alone = (self._variance * known[target, target] + 1.0).sqrt() / (known[target, target] + 1.0)
        if float(alone) > HALF * float(self._plain(known)[target]):
            return None
        linked = self._covariance(known)[target].abs() / self._plain(known).clamp_min(1e-12)
        linked[target] = -1.0
        return int(linked.argmax())

    def _with(self, gained: Tensor, seconds: float) -> Tensor:
        own, further, _ = self._shares(seconds)
        if self._unseen is not None:
            only = forgetting(gained, self._unseen)
            gained = only @ gained @ only.mT
        return own * self._known + further * gained * self._free[:, None] * self._free

    def _covariance(self, known: Tensor) -> Tensor:
        one = torch.eye(known.shape[-1], dtype=known.dtype)
        inverse = torch.linalg.inv(known + one)
        return inverse @ (self._variance * known + one) @ inverse

    def _plain(self, known: Tensor) -> Tensor:
        """Return the standard deviations without what widens the stated intervals, shape [..., n]."""
        return self._covariance(known).diagonal(dim1=-2, dim2=-1).clamp_min(0.0).sqrt()
