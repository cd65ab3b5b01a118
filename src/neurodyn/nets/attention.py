# SPDX-License-Identifier: Apache-2.0
"""Causal attention over a sliding window, for whole chunks and one frame at a time from a ring of keys and values.

A frame sees itself and the `window - 1` frames before it. The ring holds the keys and values of the last `window`
frames of all worlds at once; all worlds write to the same slot, and they differ only in how many slots belong to their
history since the last reset. The ring is laid out [window, 2, heads, channels, worlds], worlds innermost: queries times
keys is then a stream of products over contiguous worlds, which costs a fifth of thousands of tiny matrix products.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from neurodyn.nets.rotary import rotate, rotate_


@dataclass(frozen=True)
class Frame:
    """The state of a step that all layers share.

    Attributes:
        slot: Slot of the ring that this frame is written to.
        cos: Cosines of the frame's position, shape [channels / 2].
        sin: Sines of the frame's position, shape [channels / 2].
        valid: Slots of each world's history, this frame included, shape [window, worlds]; None where all are.
        stale: Whether other slots may hold values from before a reset, instead of zeros.
    """

    slot: int
    cos: Tensor
    sin: Tensor
    valid: Tensor | None
    stale: bool


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
        if frame.stale and frame.valid is not None:
            # The gradient needs this: a stale infinity times a zero gradient would be a NaN.
            ring = ring.masked_fill(~frame.valid[:, None, None, None], 0.0)
        ring = torch.cat((ring[: frame.slot], new[None], ring[frame.slot + 1 :]))
        keys, values = ring.unbind(1)
        scores = (keys * (q * self.channels**-0.5)).sum(2)
        if frame.valid is not None:
            scores = scores.masked_fill(~frame.valid[:, None], -torch.inf)
        mixed = (values * scores.softmax(0)[:, :, None]).sum(0)
        return self.out(mixed.reshape(self.width, -1).t()), ring

    def step_(self, x: Tensor, ring: Tensor, frame: Frame, onto: Tensor, scratch: Tensor) -> Tensor:
        """Attend from one frame and write it into the ring, without gradients; returns `onto`.

        Args:
            x: Shape [worlds, width].
            ring: Updated in place.
            frame: State of the step.
            onto: The result is added to it, in place, shape [worlds, width].
            scratch: Memory for products, shape [window, heads, channels, worlds]; fresh memory at every call
                would cost more in page faults than the arithmetic.
        """
        width, flat, x = self.width, (self.width, -1), x.t()
        wq, wk, wv = self.qkv.weight.chunk(3)
        q = torch.mm(wq, x).view(self.heads, self.channels, -1)
        # Worlds are innermost in the ring, so the products land there without a copy.
        k, v = ring[frame.slot].unbind()
        torch.mm(wk, x, out=k.view(flat))
        torch.mm(wv, x, out=v.view(flat))
        scale = self.channels**-0.5
        rotate_(q, frame.cos[:, None] * scale, frame.sin[:, None] * scale)
        rotate_(k, frame.cos[:, None], frame.sin[:, None])
        # Values from before a reset get weight zero, and zero times NaN would be NaN.
        torch.nan_to_num(v, out=v)
        scores = torch.mul(ring[:, 0], q, out=scratch).sum(2)
        if frame.valid is not None:
            scores.masked_fill_(~frame.valid[:, None], -torch.inf)
        mixed = torch.mul(ring[:, 1], scores.softmax(0)[:, :, None], out=scratch).sum(0)
        return onto.addmm_(mixed.view(width, -1).t(), self.out.weight.t())

    def empty_register(self, worlds: int) -> Tensor:
        """Return the register of worlds without history, shape [worlds, window - 1, 2, heads, channels]."""
        return torch.zeros(worlds, self.window - 1, 2, self.heads, self.channels)

    def stream(self, x: Tensor, register: Tensor, cos: Tensor, sin: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """Attend from the present frame to it and to those in a register; return the register one frame later.

        Args:
            x: Shape [worlds, width].
            register: Keys and values of the last frames, oldest first; keys are not turned.
            cos: Cosines of the positions in the window, shape [window, channels / 2].
            sin: Sines, likewise.
            hidden: Which frames lie before a world's history, shape [worlds, window].
        """
        q, k, v = self.qkv(x).view(-1, 3, self.heads, self.channels).unbind(1)
        seen = torch.cat((register, torch.stack((k, v), 1)[:, None]), 1)  # [worlds, window, 2, heads, channels]
        keys = rotate(seen[:, :, 0].transpose(1, 2), cos, sin)  # [worlds, heads, window, channels]
        query = rotate(q[:, :, None], cos[-1:], sin[-1:])
        scores = (keys * query).sum(-1) * self.channels**-0.5
        weights = scores.masked_fill(hidden[:, None], -torch.inf).softmax(-1)
        mixed = (seen[:, :, 1].transpose(1, 2) * weights[..., None]).sum(2)
        return self.out(mixed.reshape(-1, self.heads * self.channels)), seen[:, 1:]
