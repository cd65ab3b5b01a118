# SPDX-License-Identifier: Apache-2.0
"""Ensemble members: which one each world follows, their disagreement, and bounds of predicted standard deviations."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional


def member_rows(values: Tensor, member: Tensor | None) -> Tensor:
    """Return the rows of each world's member from [members, worlds, size], or the mean over members."""
    if member is None:
        return values.mean(0)
    return values.gather(0, member[None, :, None].expand(1, -1, values.shape[2]))[0]


LEAST_HELD_OUT = 3
"""Minimum number of members to hold out the last one from policies, to judge them: two that disagree remain."""


@dataclass(frozen=True)
class Turns:
    """Members that worlds follow in turn: `count` of them, starting at `first`."""

    count: int
    first: int = 0

    def begin(self, worlds: int, device: torch.device | str = "cpu") -> Tensor:
        """Return the member that each world follows first, shape [worlds]."""
        turn = torch.arange(worlds, device=device) % self.count
        return turn + self.first if self.first else turn

    def after(self, member: Tensor) -> Tensor:
        """Return the successor of each member in turn, shape [worlds]."""
        turn = (member + (1 - self.first)) % self.count
        return turn + self.first if self.first else turn


@dataclass(frozen=True)
class Groups:
    """Rows by member, for passes in which each member sees its own rows only.

    Attributes:
        rows: Row in each slot of each member, shape [members, places]; unused slots repeat a row.
        places: Slot of each row among the slots of all members, shape [rows].
        in_order: Whether rows are sorted by member already, equally many for each, so that nothing has to be moved.
    """

    rows: Tensor
    places: Tensor
    in_order: bool

    @classmethod
    def of(cls, member: Tensor, members: int, device: torch.device | str = "cpu") -> "Groups":
        """Group rows by `member`, shape [rows], preferably on the CPU, which avoids waiting for the GPU."""
        member = member.cpu()
        order = torch.argsort(member, stable=True)
        counts = torch.bincount(member, minlength=members)
        most, first = int(counts.max()), counts.cumsum(0) - counts
        within = torch.arange(len(member)) - first[member[order]]
        rows = torch.zeros(members, most, dtype=torch.long)
        rows[member[order], within] = order
        places = torch.empty_like(order).scatter_(0, order, most * member[order] + within)
        plain = bool((counts == most).all()) and bool((order[1:] > order[:-1]).all())
        return cls(rows.to(device), places.to(device), plain)

    def gather(self, x: Tensor) -> Tensor:
        """Return rows by member, [rows, ...] -> [members, places, ...]."""
        if self.in_order:
            return x.unflatten(0, self.rows.shape)
        return x.index_select(0, self.rows.flatten()).unflatten(0, self.rows.shape)

    def scatter(self, y: Tensor) -> Tensor:
        """Undo `gather`, [members, places, ...] -> [rows, ...]."""
        return y.flatten(0, 1) if self.in_order else y.flatten(0, 1).index_select(0, self.places)


MARKS = (1, 2, 5, 10, 20, 50, 100, 200, 500)
"""Frames into a forecast at which a spread is calibrated."""

_LOG_STD = (-8.0, 8.0)


def bound_softly(log_std: Tensor, bounds: tuple[Tensor, Tensor] | None = None) -> Tensor:
    """Bound logarithms of standard deviations smoothly (Chua et al., arXiv 1805.12114).

    `bounds` are the lower and the upper one (broadcast); None for -8 and 8.
    """
    least, most = _LOG_STD if bounds is None else bounds
    below = most - functional.softplus(most - log_std)
    return least + functional.softplus(below - least)


def deviation(values: Tensor) -> Tensor:
    """Return the standard deviation over the first axis; zero where it has length 1."""
    if len(values) == 1:
        return torch.zeros_like(values[0])
    # torch.std along a short first axis takes as long as the trunk of a network.
    return ((values - values.mean(0)).square().sum(0) / (len(values) - 1)).sqrt()


def between_marks(scales: Tensor, frames: int) -> Tensor:
    """Interpolate factors at `MARKS`, shape [marks, size], over the frames of a forecast, shape [frames, size].

    They follow a power law between marks, and stay constant beyond the last one.
    """
    marks = torch.tensor(MARKS, device=scales.device, dtype=scales.dtype).log()
    at = torch.arange(1, frames + 1, device=marks.device, dtype=marks.dtype).log().clamp_max(marks[-1])
    right = torch.searchsorted(marks, at).clamp(1, len(marks) - 1)
    share = ((at - marks[right - 1]) / (marks[right] - marks[right - 1]))[:, None]
    return torch.lerp(scales[right - 1].log(), scales[right].log(), share).exp()
