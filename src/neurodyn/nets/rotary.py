# SPDX-License-Identifier: Apache-2.0
r"""Rotary positions (Su et al. 2021) that never lose precision, however long a roll-out gets.

Each pair of channels (a, b) of a query or key at position p is rotated by the angle $\omega p$, so that products of
queries and keys depend on the distance of their positions only. The frequencies here are whole multiples of $2\pi/P$,
so that positions may be taken modulo P: the angles come from a table of P rows, and step one million is as exact as
step one. P is at least four times the window, so no two distances are confused.
"""

import math

import torch
from torch import Tensor


class Rotary:
    """Tables of cosines and sines for a sliding window.

    Attributes:
        period: P, the number of distinct positions; a power of two.
        harmonics: Frequency of each pair of channels in units of 2 pi / P.
    """

    def __init__(self, channels: int, window: int) -> None:
        self.period = max(16, 1 << math.ceil(math.log2(4 * window)))
        pairs = channels // 2
        # From one turn in P frames to one in four frames, evenly on a logarithmic scale.
        top = math.log2(self.period / 4)
        self.harmonics = [round(2 ** (top * i / max(1, pairs - 1))) for i in range(pairs)]
        self._tables: dict[tuple[torch.device, torch.dtype], tuple[Tensor, Tensor]] = {}

    def tables(self, like: Tensor) -> tuple[Tensor, Tensor]:
        """Return cosines and sines in the type and on the device of `like`, shape [period, channels / 2] each."""
        key = (like.device, like.dtype)
        if key not in self._tables:
            with torch.inference_mode(False):
                position = torch.arange(self.period, dtype=torch.float64)
                # Reduced as integers before the multiplication, so that equal angles give equal bits.
                turn = torch.remainder(position[:, None] * torch.tensor(self.harmonics), self.period)
                angle = turn * (2 * math.pi / self.period)
                self._tables[key] = (torch.cos(angle).to(like), torch.sin(angle).to(like))
        return self._tables[key]

    def at(self, positions: int, like: Tensor) -> tuple[Tensor, Tensor]:
        """Return cosines and sines of positions 0 .. `positions` - 1, shape [positions, channels / 2] each."""
        cos, sin = self.tables(like)
        if positions <= self.period:
            return cos[:positions], sin[:positions]
        index = torch.arange(positions, device=like.device) % self.period
        return cos[index], sin[index]


def rotate(x: Tensor, cos: Tensor, sin: Tensor, dim: int = -1) -> Tensor:
    """Turn the channel pairs (i, i + n/2) of `x` along `dim` by the angles of `cos` and `sin` (broadcast)."""
    a, b = x.chunk(2, dim)
    return torch.cat((a * cos - b * sin, a * sin + b * cos), dim)


def rotate_(x: Tensor, cos: Tensor, sin: Tensor) -> None:
    """Turn the channel pairs of `x`, shape [heads, channels, worlds], in place; cos, sin: [channels / 2, 1]."""
    a, b = x.chunk(2, 1)
    rest = a * sin
    a.mul_(cos).addcmul_(b, sin, value=-1)
    b.mul_(cos).add_(rest)
