# SPDX-License-Identifier: Apache-2.0
"""Causal transformer with sliding-window attention and rotary positions, trained on chunks and run frame by frame."""

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from neurodyn.core.errors import InputError
from neurodyn.nets.mlp import MLP
from neurodyn.nets.sequence import SequenceNet

if TYPE_CHECKING:
    from neurodyn.nets.networks import NetConfig


class Rotary:
    """Tables of cosines and sines for a sliding window.

    Attributes:
        period: P, the number of distinct positions; a power of two.
        harmonics: Frequency of each pair of channels in units of 2 pi / P.
    """

    def __init__(self, channels: int, window: int) -> None:
        self.period = max(16, 1 << math.ceil(math.log2(4 * window)))
        pairs = channels // 2
        # From one period in P frames to one in four frames, evenly spaced on a logarithmic scale.
        top = math.log2(self.period / 4)
        self.harmonics = [round(2 ** (top * i / max(1, pairs - 1))) for i in range(pairs)]
        self._tables: dict[tuple[torch.device, torch.dtype], tuple[Tensor, Tensor]] = {}

    def tables(self, like: Tensor) -> tuple[Tensor, Tensor]:
        """Return cosines and sines in the type and on the device of `like`, shape [period, channels / 2] each."""
        key = (like.device, like.dtype)
        if key not in self._tables:
            with torch.inference_mode(False):
                position = torch.arange(self.period, dtype=torch.float64)
                # Reduced as integers before the multiplication, so that equal angles are equal bitwise.
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
    """Rotate the channel pairs (i, i + n/2) of `x` along `dim` by the angles of `cos` and `sin` (broadcast)."""
    a, b = x.chunk(2, dim)
    return torch.cat((a * cos - b * sin, a * sin + b * cos), dim)


def rotate_(x: Tensor, cos: Tensor, sin: Tensor) -> None:
    """Rotate the channel pairs of `x`, shape [heads, channels, worlds], in place; cos, sin: [channels / 2, 1]."""
    a, b = x.chunk(2, 1)
    rest = a * sin
    a.mul_(cos).addcmul_(b, sin, value=-1)
    b.mul_(cos).add_(rest)


@dataclass(frozen=True)
class AttentionFrame:
    """State of a step that all layers share."""

    slot: int
    """Ring slot of this frame."""
    cos: Tensor
    """Cosines of the frame's position, shape [channels / 2]."""
    sin: Tensor
    """Their sines."""
    valid: Tensor | None
    """Slots of each world's history, including this frame, shape [window, worlds]; None if all are valid."""
    stale: bool
    """Whether other slots may hold values from before a reset instead of zeros."""


class SlidingAttention(nn.Module):
    """Multi-head attention over the last `window` frames, without biases."""

    def __init__(self, width: int, heads: int, window: int) -> None:
        super().__init__()
        self.width, self.heads, self.window = width, heads, window
        self.channels = width // heads
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, band: Tensor | None) -> Tensor:
        """Attend within chunks [worlds, time, width], rotated by `cos`, `sin` [time, channels / 2].

        `band` [time, time] says whether a frame (row) sees another (column); None for plain causality, which is the
        same if time is at most `window`.
        """
        worlds, time, _ = x.shape
        q, k, v = self.qkv(x).view(worlds, time, 3, self.heads, self.channels).permute(2, 0, 3, 1, 4)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        mixed = functional.scaled_dot_product_attention(q, k, v, attn_mask=band, is_causal=band is None)
        return self.out(mixed.transpose(1, 2).reshape(worlds, time, self.width))

    def begin(self, batch: int, like: dict) -> Tensor:
        """Return an empty ring, shape [window, 2, heads, channels, worlds]."""
        return torch.zeros(self.window, 2, self.heads, self.channels, batch, **like)

    def step(self, x: Tensor, ring: Tensor, frame: AttentionFrame) -> tuple[Tensor, Tensor]:
        """Attend from one frame, [worlds, width] -> [worlds, width]; differentiable, and `ring` stays valid."""
        q, k, v = self.qkv(x).t().reshape(3, self.heads, self.channels, -1)
        q, k = (rotate(y, frame.cos[:, None], frame.sin[:, None], 1) for y in (q, k))
        # Finite values, so that a weight of exactly zero cancels them; see step_.
        new = torch.stack((k, torch.nan_to_num(v)))
        if frame.stale and frame.valid is not None:
            # Needed for gradients: a stale infinity times a zero gradient would be NaN.
            ring = ring.masked_fill(~frame.valid[:, None, None, None], 0.0)
        ring = torch.cat((ring[: frame.slot], new[None], ring[frame.slot + 1 :]))
        keys, values = ring.unbind(1)
        scores = (keys * (q * self.channels**-0.5)).sum(2)
        if frame.valid is not None:
            scores = scores.masked_fill(~frame.valid[:, None], -torch.inf)
        mixed = (values * scores.softmax(0)[:, :, None]).sum(0)
        return self.out(mixed.reshape(self.width, -1).t()), ring

    def step_(self, x: Tensor, ring: Tensor, frame: AttentionFrame, onto: Tensor, scratch: Tensor) -> Tensor:
        """Attend from one frame [worlds, width] without gradients: write into the ring, and add the result to `onto`.

        `scratch` holds products, shape [window, heads, channels, worlds]: allocating it at every call would cost more
        in page faults than the arithmetic.
        """
        width, flat, x = self.width, (self.width, -1), x.t()
        wq, wk, wv = self.qkv.weight.chunk(3)
        q = torch.mm(wq, x).view(self.heads, self.channels, -1)
        # Worlds are innermost in the ring, so the products are written there without a copy.
        k, v = ring[frame.slot].unbind()
        torch.mm(wk, x, out=k.view(flat))
        torch.mm(wv, x, out=v.view(flat))
        scale = self.channels**-0.5
        rotate_(q, frame.cos[:, None] * scale, frame.sin[:, None] * scale)
        rotate_(k, frame.cos[:, None], frame.sin[:, None])
        # Values from before a reset get weight zero, but zero times NaN is NaN.
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
        """Attend from frames `x` [worlds, width] to themselves and a register of earlier ones; return it shifted too.

        Args:
            x: Current frames.
            register: Keys (not rotated) and values of the last frames, oldest first.
            cos: Cosines of the positions in the window, shape [window, channels / 2].
            sin: Their sines.
            hidden: Which frames are before a world's history, shape [worlds, window].
        """
        q, k, v = self.qkv(x).view(-1, 3, self.heads, self.channels).unbind(1)
        seen = torch.cat((register, torch.stack((k, v), 1)[:, None]), 1)  # [worlds, window, 2, heads, channels]
        keys = rotate(seen[:, :, 0].transpose(1, 2), cos, sin)  # [worlds, heads, window, channels]
        query = rotate(q[:, :, None], cos[-1:], sin[-1:])
        scores = (keys * query).sum(-1) * self.channels**-0.5
        weights = scores.masked_fill(hidden[:, None], -torch.inf).softmax(-1)
        mixed = (seen[:, :, 1].transpose(1, 2) * weights[..., None]).sum(2)
        return self.out(mixed.reshape(-1, self.heads * self.channels)), seen[:, 1:]


@dataclass(frozen=True)
class RingCarry:
    """Keys and values of the last frames of a batch of worlds."""

    rings: tuple[Tensor, ...]
    """One ring per layer, shape [window, 2, heads, channels, worlds] each."""
    filled: Tensor
    """Number of frames of each world's history, at most `window`, shape [worlds]."""
    frame: int = 0
    """Number of the next frame; shared by all worlds, whatever their histories."""
    settled: int = 0
    """Number of steps since the last reset of any world; from `window` on all slots are valid everywhere."""
    stale: bool = False
    """Whether slots outside of a world's history may hold older values instead of zeros."""
    scratch: Tensor | None = None
    """Memory for the products of the fast path, once it was used."""


class TransformerBlock(nn.Module):
    """Attention and a perceptron, each after a norm and added to the residual stream (pre-norm); no biases."""

    def __init__(self, width: int, heads: int, window: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width, bias=False)
        self.attention = SlidingAttention(width, heads, window)
        self.norm2 = nn.LayerNorm(width, bias=False)
        self.widen = nn.Linear(width, 4 * width, bias=False)
        self.narrow = nn.Linear(4 * width, width, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, band: Tensor | None) -> Tensor:
        """Map chunks, [worlds, time, width] -> [worlds, time, width]."""
        x = x + self.attention(self.norm1(x), cos, sin, band)
        return x + self.narrow(functional.gelu(self.widen(self.norm2(x))))

    def step(self, x: Tensor, ring: Tensor, frame: AttentionFrame) -> tuple[Tensor, Tensor]:
        """Map one frame, [worlds, width] -> [worlds, width]; differentiable."""
        mixed, ring = self.attention.step(self.norm1(x), ring, frame)
        x = x + mixed
        return x + self.narrow(functional.gelu(self.widen(self.norm2(x)))), ring

    def step_(self, x: Tensor, ring: Tensor, frame: AttentionFrame, scratch: Tensor) -> Tensor:
        """Map one frame; updates `x` and `ring` in place."""
        self.attention.step_(self.norm1(x), ring, frame, x, scratch)
        return x.addmm_(functional.gelu(self.widen(self.norm2(x))), self.narrow.weight.t())


class Transformer(SequenceNet):
    """Embedding, `depth` blocks with sliding-window attention and rotary positions, norm, and a head."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        width: int,
        depth: int,
        heads: int,
        window: int,
        *,
        head: tuple[int, ...] = (64,),
    ) -> None:
        """Build the network.

        Args:
            inputs: Size of an input vector.
            outputs: Size of an output vector.
            width: Size of the residual stream; a multiple of twice the number of heads.
            depth: Number of blocks.
            heads: Number of attention heads.
            window: Number of frames, including the current one, that a frame sees in each block.
            head: Sizes of hidden layers (ReLU) before the output.
        """
        super().__init__()
        self.inputs, self.outputs, self.window = inputs, outputs, window
        self.embed = nn.Linear(inputs, width)
        self.blocks = nn.ModuleList(TransformerBlock(width, heads, window) for _ in range(depth))
        self.norm = nn.LayerNorm(width, bias=False)
        self.head = MLP(width, outputs, head, "relu")
        self.rotary = Rotary(width // heads, window)

    @classmethod
    def build(cls, config: "NetConfig", inputs: int, outputs: int) -> Self:
        """Build the network of a configuration."""
        head = (config.head,) if config.head else ()
        return cls(inputs, outputs, config.width, config.depth, config.heads, config.window, head=head)

    @classmethod
    def check(cls, config: "NetConfig") -> None:
        """Raise an InputError for a width that does not divide into heads of even size."""
        if config.heads < 1 or config.width % (2 * config.heads):
            raise InputError(f"net.width is {config.width} with {config.heads} heads; expected a multiple of 2 x heads")

    @classmethod
    def memory(cls, config: "NetConfig") -> int:
        """Return how many frames all blocks together look back."""
        return config.depth * (config.window - 1)

    @property
    def context(self) -> int:
        """Frames that all blocks together look back, `window - 1` each."""
        return len(self.blocks) * (self.window - 1)

    @property
    def output_layer(self) -> nn.Linear:
        """Last layer of the head."""
        return self.head.output_layer

    def forward(self, x: Tensor) -> Tensor:
        """Map chunks from an empty history, [worlds, time, inputs] -> [worlds, time, outputs]."""
        return self.head(self.features(x))

    def features(self, x: Tensor) -> Tensor:
        """Map chunks to the normalised stream before the head, [worlds, time, inputs] -> [worlds, time, width]."""
        time = x.shape[1]
        x = self.embed(x)
        cos, sin = self.rotary.at(time, x)
        band = None
        if time > self.window:
            index = torch.arange(time, device=x.device)
            age = index[:, None] - index
            band = (age >= 0) & (age < self.window)
        for block in self.blocks:
            x = block(x, cos, sin, band)
        return self.norm(x)

    def begin(self, batch: int) -> RingCarry:
        """Return the carry of `batch` worlds with an empty history."""
        like = self._like_weights()
        rings = tuple(block.attention.begin(batch, like) for block in self._blocks())
        return RingCarry(rings, torch.zeros(batch, dtype=torch.long, device=like["device"]))

    def step(self, x: Tensor, carry: RingCarry) -> tuple[Tensor, RingCarry]:
        """Map one frame, [worlds, inputs] -> [worlds, outputs]; differentiable."""
        x, rings, frame = self.embed(x), [], self._frame(carry)
        for block, ring in zip(self._blocks(), carry.rings, strict=True):
            x, ring = block.step(x, ring, frame)
            rings.append(ring)
        return self.head(self.norm(x)), self._advance(replace(carry, rings=tuple(rings), stale=False))

    @torch.no_grad()
    def step_(self, x: Tensor, carry: RingCarry) -> tuple[Tensor, RingCarry]:
        """Map one frame without gradients; updates the rings in place."""
        if carry.scratch is None:
            # An ordinary tensor even in inference mode, because the carry may be used outside of it later.
            with torch.inference_mode(False):
                carry = replace(carry, scratch=carry.rings[0].new_empty(carry.rings[0][:, 0].shape))
        x, frame, scratch = self.embed(x), self._frame(carry), carry.scratch
        for block, ring in zip(self._blocks(), carry.rings, strict=True):
            x = block.step_(x, ring, frame, cast(Tensor, scratch))
        return self.head.step_(self.norm(x))[0], self._advance(carry)

    def reset(self, carry: RingCarry, mask: Tensor) -> RingCarry:
        """Empty the history of the worlds where `mask` is true, without touching the rings."""
        return replace(carry, filled=carry.filled.masked_fill(mask, 0), settled=0, stale=True)

    def merge(self, carry: RingCarry, other: RingCarry, mask: Tensor) -> RingCarry:
        """Replace the worlds where `mask` is true by those of `other`, which must be at the same frame."""
        if carry.frame != other.frame:
            raise InputError(f"carries at frames {carry.frame} and {other.frame} cannot be merged; rewind one first")
        rings = tuple(torch.where(mask, b, a) for a, b in zip(carry.rings, other.rings, strict=True))
        filled = torch.where(mask, other.filled, carry.filled)
        settled, stale = min(carry.settled, other.settled), carry.stale or other.stale
        return RingCarry(rings, filled, carry.frame, settled, stale)

    def rewind(self, carry: RingCarry, frames: int) -> RingCarry:
        """Return an empty carry that reaches the frame of `carry` after `frames` steps."""
        rings = tuple(torch.zeros_like(ring) for ring in carry.rings)
        return RingCarry(rings, torch.zeros_like(carry.filled), carry.frame - frames)

    @property
    def stream_names(self) -> tuple[str, ...]:
        """Names of the registers of keys and values, and of the number of frames in them."""
        return (*(f"keys_values_{layer}" for layer in range(len(self.blocks))), "filled")

    def stream_begin(self, worlds: int) -> tuple[Tensor, ...]:
        """Return empty registers."""
        self.rotary.tables(self.embed.weight)  # cached before tracing
        registers = [block.attention.empty_register(worlds) for block in self._blocks()]
        return (*registers, torch.zeros(worlds, dtype=torch.long))

    def stream(self, x: Tensor, memory: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Map one frame; the register of last frames holds unrotated keys and shifts by one at every step.

        Attention depends on relative positions only, so positions in the register serve as well as absolute ones.
        """
        *registers, filled = memory
        cos, sin = self.rotary.at(self.window, x)
        # Slots of the register from the oldest to the current frame; those before a world's history are hidden.
        age = torch.arange(self.window - 1, -1, -1, device=x.device)
        hidden = age > filled[:, None]
        x, kept = self.embed(x), []
        for block, register in zip(self._blocks(), registers, strict=True):
            mixed, register = block.attention.stream(block.norm1(x), register, cos, sin, hidden)
            x = x + mixed
            x = x + block.narrow(functional.gelu(block.widen(block.norm2(x))))
            kept.append(register)
        return self.head(self.norm(x)), (*kept, (filled + 1).clamp(max=self.window - 1))

    def _blocks(self) -> list[TransformerBlock]:
        return cast(list[TransformerBlock], list(self.blocks))

    def _frame(self, carry: RingCarry) -> AttentionFrame:
        slot, position = carry.frame % self.window, carry.frame % self.rotary.period
        cos, sin = self.rotary.tables(carry.rings[0]) if carry.rings else self.rotary.tables(self.embed.weight)
        valid = None
        if carry.settled < self.window - 1:
            slots = torch.arange(self.window, device=carry.filled.device)
            age = torch.remainder(slot - slots, self.window)
            valid = age[:, None] <= carry.filled
        return AttentionFrame(slot, cos[position], sin[position], valid, carry.stale)

    def _advance(self, carry: RingCarry) -> RingCarry:
        if carry.settled >= self.window:
            return replace(carry, frame=carry.frame + 1)
        filled = (carry.filled + 1).clamp_(max=self.window)
        return replace(carry, filled=filled, frame=carry.frame + 1, settled=carry.settled + 1)
