# SPDX-License-Identifier: Apache-2.0
"""A causal transformer that is trained on chunks and run one frame at a time, with the same numbers.

Attention slides: in every layer a frame sees the last `window` frames. Because no frame is ever recomputed under
another history, keys and values can be kept, and a step costs one frame instead of a window. It is trained on chunks
longer than the window, so that training sees the same histories as a long roll-out.
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from neurodyn.core.errors import InputError
from neurodyn.nets.attention import Frame, SlidingAttention
from neurodyn.nets.mlp import MLP
from neurodyn.nets.rotary import Rotary
from neurodyn.nets.sequence import SequenceNet

if TYPE_CHECKING:
    from neurodyn.nets.networks import NetConfig


@dataclass(frozen=True)
class RingCarry:
    """Keys and values of the last frames of a batch of worlds.

    Attributes:
        rings: One ring a layer, shape [window, 2, heads, channels, worlds] each.
        filled: Number of frames of each world's history, at most `window`, shape [worlds].
        frame: Number of the next frame; all worlds share it, whatever their histories.
        settled: Number of steps since any world began anew; from `window` on all slots are valid for all worlds.
        stale: Whether slots outside of a world's history may hold older values, instead of zeros.
        scratch: Memory for the products of the fast path, once it was used.
    """

    rings: tuple[Tensor, ...]
    filled: Tensor
    frame: int = 0
    settled: int = 0
    stale: bool = False
    scratch: Tensor | None = None


class Block(nn.Module):
    """Attention and a perceptron, each behind a norm and added to the stream (pre-norm); no biases."""

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

    def step(self, x: Tensor, ring: Tensor, frame: Frame) -> tuple[Tensor, Tensor]:
        """Map one frame, [worlds, width] -> [worlds, width]; differentiable."""
        mixed, ring = self.attention.step(self.norm1(x), ring, frame)
        x = x + mixed
        return x + self.narrow(functional.gelu(self.widen(self.norm2(x)))), ring

    def step_(self, x: Tensor, ring: Tensor, frame: Frame, scratch: Tensor) -> Tensor:
        """Map one frame; `x` and `ring` are updated in place."""
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
        """Build the net.

        Args:
            inputs: Size of an input vector.
            outputs: Size of an output vector.
            width: Size E of the stream; a multiple of twice the number of heads.
            depth: Number of blocks.
            heads: Number of attention heads.
            window: Number of frames, the present one included, that a frame sees in each block.
            head: Sizes of hidden layers (ReLU) between the stream and the output.

        Raises:
            InputError: The width does not divide into heads of even size, or the window is empty.
        """
        super().__init__()
        if heads < 1 or width % (2 * heads):
            raise InputError(f"a transformer of width {width} with {heads} heads; valid: a multiple of 2 x heads")
        if window < 1:
            raise InputError(f"a transformer with a window of {window} frames; expected at least 1")
        self.inputs, self.outputs, self.window = inputs, outputs, window
        self.embed = nn.Linear(inputs, width)
        self.blocks = nn.ModuleList(Block(width, heads, window) for _ in range(depth))
        self.norm = nn.LayerNorm(width, bias=False)
        self.head = MLP(width, outputs, head, "relu")
        self.rotary = Rotary(width // heads, window)

    @classmethod
    def build(cls, config: "NetConfig", inputs: int, outputs: int) -> Self:
        """Build the network that a configuration describes."""
        head = (config.head,) if config.head else ()
        return cls(inputs, outputs, config.width, config.depth, config.heads, config.window, head=head)

    @classmethod
    def check(cls, config: "NetConfig") -> None:
        """Refuse a width that does not divide into heads of even size."""
        if config.heads < 1 or config.width % (2 * config.heads):
            raise InputError(f"net.width is {config.width} with {config.heads} heads; expected a multiple of 2 x heads")

    @classmethod
    def memory(cls, config: "NetConfig") -> int:
        """Return how far back the blocks look together."""
        return config.depth * (config.window - 1)

    @property
    def context(self) -> int:
        """Every block looks `window - 1` frames further back."""
        return len(self.blocks) * (self.window - 1)

    @property
    def output_layer(self) -> nn.Linear:
        """The last layer of the head."""
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

    def begin(self, batch: int, *, device: torch.device | None = None, dtype: torch.dtype | None = None) -> RingCarry:
        """Return the carry of `batch` worlds with an empty history."""
        like = self._like_weights(device, dtype)
        rings = tuple(block.attention.begin(batch, like) for block in self._blocks())
        return RingCarry(rings, torch.zeros(batch, dtype=torch.long, device=like["device"]))

    def step(self, x: Tensor, carry: RingCarry) -> tuple[Tensor, RingCarry]:
        """Map one frame, [worlds, inputs] -> [worlds, outputs]; differentiable."""
        x, rings, frame = self.embed(x), [], self._frame(carry)
        for block, ring in zip(self._blocks(), carry.rings, strict=True):
            x, ring = block.step(x, ring, frame)
            rings.append(ring)
        return self.head(self.norm(x)), self._advanced(replace(carry, rings=tuple(rings), stale=False))

    @torch.no_grad()
    def step_(self, x: Tensor, carry: RingCarry) -> tuple[Tensor, RingCarry]:
        """Map one frame without gradients; the rings are updated in place."""
        if carry.scratch is None:
            # An ordinary tensor even in inference mode: the carry may be stepped outside of it later.
            with torch.inference_mode(False):
                carry = replace(carry, scratch=carry.rings[0].new_empty(carry.rings[0][:, 0].shape))
        x, frame, scratch = self.embed(x), self._frame(carry), carry.scratch
        for block, ring in zip(self._blocks(), carry.rings, strict=True):
            x = block.step_(x, ring, frame, cast(Tensor, scratch))
        return self.head.step_(self.norm(x))[0], self._advanced(carry)

    def reset(self, carry: RingCarry, mask: Tensor) -> RingCarry:
        """Empty the history of the worlds where `mask` is true; the rings are not touched."""
        return replace(carry, filled=carry.filled.masked_fill(mask, 0), settled=0, stale=True)

    def merge(self, carry: RingCarry, other: RingCarry, mask: Tensor) -> RingCarry:
        """Take the worlds where `mask` is true from `other`, which must be at the same frame."""
        if carry.frame != other.frame:
            raise InputError(f"carries at frames {carry.frame} and {other.frame} cannot be merged; rewind one first")
        rings = tuple(torch.where(mask, b, a) for a, b in zip(carry.rings, other.rings, strict=True))
        filled = torch.where(mask, other.filled, carry.filled)
        settled, stale = min(carry.settled, other.settled), carry.stale or other.stale
        return RingCarry(rings, filled, carry.frame, settled, stale)

    def rewound(self, carry: RingCarry, frames: int) -> RingCarry:
        """Return an empty carry that is at the frame of `carry` after `frames` steps."""
        rings = tuple(torch.zeros_like(ring) for ring in carry.rings)
        return RingCarry(rings, torch.zeros_like(carry.filled), carry.frame - frames)

    @property
    def stream_names(self) -> tuple[str, ...]:
        """Names of the registers of keys and values, and of the number of frames in them."""
        return (*(f"keys_values_{layer}" for layer in range(len(self.blocks))), "filled")

    def stream_begin(self, worlds: int) -> tuple[Tensor, ...]:
        """Return empty registers."""
        self.rotary.tables(self.embed.weight)  # made now: a tracer would keep tables of its own
        registers = [block.attention.empty_register(worlds) for block in self._blocks()]
        return (*registers, torch.zeros(worlds, dtype=torch.long))

    def stream(self, x: Tensor, memory: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Map one frame.

        The last frames are kept as a register that shifts by one at every step, with keys that are not turned yet: what
        a frame sees of another depends on how far apart they are, so positions in the register serve as well as
        positions in time, and no frame need be counted.
        """
        *registers, filled = memory
        cos, sin = self.rotary.at(self.window, x)
        # Slots of the register from the oldest to the present frame; those before a world's history are hidden.
        age = torch.arange(self.window - 1, -1, -1, device=x.device)
        hidden = age > filled[:, None]
        x, kept = self.embed(x), []
        for block, register in zip(self._blocks(), registers, strict=True):
            mixed, register = block.attention.stream(block.norm1(x), register, cos, sin, hidden)
            x = x + mixed
            x = x + block.narrow(functional.gelu(block.widen(block.norm2(x))))
            kept.append(register)
        return self.head(self.norm(x)), (*kept, (filled + 1).clamp(max=self.window - 1))

    def _blocks(self) -> list[Block]:
        return cast(list[Block], list(self.blocks))

    def _frame(self, carry: RingCarry) -> Frame:
        slot, position = carry.frame % self.window, carry.frame % self.rotary.period
        cos, sin = self.rotary.tables(carry.rings[0]) if carry.rings else self.rotary.tables(self.embed.weight)
        valid = None
        if carry.settled < self.window - 1:
            slots = torch.arange(self.window, device=carry.filled.device)
            age = torch.remainder(slot - slots, self.window)
            valid = age[:, None] <= carry.filled
        return Frame(slot, cos[position], sin[position], valid, carry.stale)

    def _advanced(self, carry: RingCarry) -> RingCarry:
        if carry.settled >= self.window:
            return replace(carry, frame=carry.frame + 1)
        filled = (carry.filled + 1).clamp_(max=self.window)
        return replace(carry, filled=filled, frame=carry.frame + 1, settled=carry.settled + 1)
