# SPDX-License-Identifier: Apache-2.0
"""Members of an ensemble: which of them each world follows, and passes in which each sees its own worlds alone."""

from dataclasses import dataclass

import torch
from torch import Tensor


def followed(values: Tensor, member: Tensor | None) -> Tensor:
    """Return the rows of each world's member from [members, worlds, size], or the mean of all members."""
    if member is None:
        return values.mean(0)
    return values.gather(0, member[None, :, None].expand(1, -1, values.shape[2]))[0]


def in_turn(worlds: int, members: int, device: torch.device | str = "cpu") -> Tensor:
    """Return the member that each world follows where they take turns, shape [worlds]."""
    return torch.arange(worlds, device=device) % members


@dataclass(frozen=True)
class Groups:
    """Rows by their member, for passes in which each member sees its own rows alone.

    Attributes:
        rows: Row at each place of each member, shape [members, places]; places that a member does not need repeat one.
        places: Place of each row among those of all members, shape [rows].
        in_order: Whether rows lie by member already, as many for each, so that nothing has to be moved.
    """

    rows: Tensor
    places: Tensor
    in_order: bool

    @classmethod
    def of(cls, member: Tensor, members: int, device: torch.device | str = "cpu") -> "Groups":
        """Group rows.

        Args:
            member: Member of each row, shape [rows]; on the CPU, where a GPU is not to be waited for.
            members: Number of members.
            device: Device of the rows.
        """
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
        """Return what `gather` arranged in its first order, [members, places, ...] -> [rows, ...]."""
        return y.flatten(0, 1) if self.in_order else y.flatten(0, 1).index_select(0, self.places)
