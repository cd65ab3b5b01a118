# SPDX-License-Identifier: Apache-2.0
"""Causal attention over a sliding window, for whole chunks and one frame at a time from a ring of keys and values.

A frame sees itself and the `window - 1` frames before it. The ring holds the keys and values of the last
`window` frames of all worlds at once; all worlds write to the same slot, and what differs between worlds is
only how many of the slots are theirs since their last reset. The ring is laid out [window, 2, heads,
channels, worlds], worlds innermost: queries times keys is then a stream of products over contiguous worlds,
which costs a fifth of what thousands of tiny matrix products would.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from neurodyn.nets.rotary import rotate


@dataclass(frozen=True)
class Frame:
    """What all layers share during one step.

    Attributes:
        slot: Where in the ring this frame is written.
        cos: Cosines of the frame's position, shape [channels / 2].
        sin: Sines of the frame's position, shape [channels / 2].
        valid: Which slots belong to a world's history, this frame included, shape [window, worlds]; None
            where all do.
    """

    slot: int
    cos: Tensor
    sin: Tensor
    valid: Tensor | None


class SlidingAttention(nn.Module):
    """Multi-head attention over the last `window` frames, without biases."""

    def __init__(self, width: int, heads: int, window: int) -> None:
        super().__init__()
        self.width, self.heads, self.window = width, heads, window
        self.channels = width // heads
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, band: Tensor | None) -> Tensor:
        """Attend within chunks.

        Args:
            x: Shape [worlds, time, width].
            cos: Cosines of the positions, shape [time, channels / 2].
            sin: Sines of the positions, shape [time, channels / 2].
            band: Which frame (row) sees which (column), shape [time, time]; None for plain causality, which
                is the same where time is at most `window`.
        """
        worlds, time, _ = x.shape
        q, k, v = self.qkv(x).view(worlds, time, 3, self.heads, self.channels).permute(2, 0, 3, 1, 4)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        mixed = functional.scaled_dot_product_attention(q, k, v, attn_mask=band, is_causal=band is None)
        return self.out(mixed.transpose(1, 2).reshape(worlds, time, self.width))

    def begin(self, batch: int, like: dict) -> Tensor:
        """Return an empty ring, shape [window, 2, heads, channels, worlds]."""
        return torch.zeros(self.window, 2, self.heads, self.channels, batch, **like)

    def step(self, x: Tensor, ring: Tensor, frame: Frame) -> tuple[Tensor, Tensor]:
        """Attend from one frame, [worlds, width] -> [worlds, width]; differentiable, `ring` stays valid."""
        q, k, v = self.qkv(x).t().reshape(3, self.heads, self.channels, -1)
        q, k = (rotate(y, frame.cos[:, None], frame.sin[:, None], 1) for y in (q, k))
        # See step_: values stay finite, so that a weight of exactly zero silences them.
        new = torch.stack((k, torch.nan_to_num(v)))
        ring = torch.cat((ring[: frame.slot], new[None], ring[frame.slot + 1 :]))
        seen = ring
        if frame.valid is not None:
            # Both passes need this: a stale infinity times a zero gradient would be a NaN.
            seen = torch.where(frame.valid[:, None, None, None], ring, 0.0)
        scores = (seen[:, 0] * (q * self.channels**-0.5)).sum(2)
        if frame.valid is not None:
            scores = torch.where(frame.valid[:, None], scores, -torch.inf)
        mixed = (seen[:, 1] * scores.softmax(0)[:, :, None]).sum(0)
        return self.out(mixed.reshape(self.width, -1).t()), ring

    def step_(self, x: Tensor, ring: Tensor, frame: Frame, onto: Tensor) -> Tensor:
        """Attend from one frame, write it into the ring, and add the result to `onto` [worlds, width] in place.

        All worlds are at the same position, so the weights of queries and keys are turned instead of their
        values, and the products land in the ring without a copy.
        """
        width, x = self.width, x.t()
        turned = self._turned_weights(frame)
        q = torch.mm(turned[0], x).view(self.heads, self.channels, -1)
        torch.mm(turned[1], x, out=ring[frame.slot, 0].view(width, -1))
        values = ring[frame.slot, 1]
        torch.mm(self.qkv.weight[2 * width :], x, out=values.view(width, -1))
        # What a world leaves behind at a reset gets weight zero, and zero times NaN would be NaN.
        torch.nan_to_num(values, out=values)
        product = ring[:, 0] * q
        scores = product.sum(2)
        if frame.valid is not None:
            scores.masked_fill_(~frame.valid[:, None], -torch.inf)
        torch.mul(ring[:, 1], scores.softmax(0)[:, :, None], out=product)
        return onto.addmm_(product.sum(0).view(width, -1).t(), self.out.weight.t())

    def _turned_weights(self, frame: Frame) -> Tensor:
        """Return weights that give rotated queries, divided by sqrt(channels), and keys: [2, width, width]."""
        half = self.channels // 2
        weight = self.qkv.weight[: 2 * self.width].view(2, self.heads, 2, half, self.width)
        cos, sin = frame.cos[:, None], frame.sin[:, None]
        a, b = weight[:, :, 0], weight[:, :, 1]
        turned = torch.empty_like(weight)
        torch.mul(a, cos, out=turned[:, :, 0]).addcmul_(b, sin, value=-1)
        torch.mul(b, cos, out=turned[:, :, 1]).addcmul_(a, sin)
        turned[0] *= self.channels**-0.5
        return turned.view(2, self.width, self.width)
