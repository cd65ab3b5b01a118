# SPDX-License-Identifier: Apache-2.0
"""Protocol of all sequence networks: training on whole chunks, roll-outs one step at a time.

A network maps a sequence of inputs causally to a sequence of outputs. `forward` maps whole chunks that start with an
empty history. `begin`, `step` and `reset` do the same frame by frame, with the history in a carry held by the caller,
and give the same numbers.
"""

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Self

from torch import Tensor, nn

from neurodyn.core.errors import InputError

if TYPE_CHECKING:
    from neurodyn.nets.members import Dense, MemberLinear
    from neurodyn.nets.networks import NetConfig

Carry = Any
"""History of a batch of worlds; its type is private to each kind of network."""


class SequenceNet(nn.Module, ABC):
    """A causal map from sequences of inputs to sequences of outputs.

    Attributes:
        inputs: Size of an input vector.
        outputs: Size of an output vector.
        least_depth: Smallest depth of a configuration.
        stream_names: Names of the tensors of `stream`'s memory.
    """

    inputs: int
    outputs: int
    least_depth: ClassVar[int] = 1

    @classmethod
    @abstractmethod
    def build(cls, config: "NetConfig", inputs: int, outputs: int) -> Self:
        """Build the network of a configuration, with random weights."""

    @classmethod
    def check(cls, config: "NetConfig") -> None:
        """Raise an InputError for invalid sizes."""

    @classmethod
    def memory(cls, config: "NetConfig") -> int:
        """Return the frames of history that a network of this configuration needs."""
        return 0

    @property
    def members(self) -> int:
        """Number of members."""
        return 1

    @property
    def title(self) -> str:
        """Kind of network in a word."""
        return type(self).__name__.lower()

    @property
    @abstractmethod
    def context(self) -> int:
        """Number of earlier frames that an output depends on; for a recurrent network the declared number."""

    @property
    @abstractmethod
    def output_layer(self) -> "nn.Linear | MemberLinear":
        """Last layer; the output is exactly zero if its weight and bias are."""

    @abstractmethod
    def forward(self, x: Tensor) -> Tensor:
        """Map chunks that start from an empty history: [worlds, time, inputs] -> [worlds, time, outputs]."""

    @abstractmethod
    def begin(self, batch: int) -> Carry:
        """Return the carry of `batch` worlds with an empty history, on the device and of the type of the weights."""

    @abstractmethod
    def step(self, x: Tensor, carry: Carry) -> tuple[Tensor, Carry]:
        """Map one frame, [worlds, inputs] -> [worlds, outputs]; differentiable, and `carry` stays valid."""

    @abstractmethod
    def step_(self, x: Tensor, carry: Carry) -> tuple[Tensor, Carry]:
        """Map one frame without gradients, fast; consumes the carry and every carry that `reset` derived from it."""

    @abstractmethod
    def reset(self, carry: Carry, mask: Tensor) -> Carry:
        """Empty the history of the worlds where `mask` [worlds] is true; others are unchanged bitwise."""

    @abstractmethod
    def merge(self, carry: Carry, other: Carry, mask: Tensor) -> Carry:
        """Replace the worlds where `mask` [worlds] is true by those of `other`, at the same frame (see `rewind`)."""

    @abstractmethod
    def rewind(self, carry: Carry, frames: int) -> Carry:
        """Return an empty carry for the same worlds that reaches the frame of `carry` after `frames` steps."""

    def prime(self, carry: Carry, x: Tensor, mask: Tensor | None = None) -> Carry:
        """Set the history of the worlds in `mask` as if they had been reset and then stepped through `x`.

        `x` has shape [worlds, T, inputs]; `mask` is [worlds], or None for all. Other worlds stay bitwise the same, and
        `carry` stays valid.
        """
        primed = self.rewind(carry, x.shape[-2])
        for frame in x.unbind(-2):
            _, primed = self.step(frame, primed)
        return primed if mask is None else self.merge(carry, primed, mask)

    @property
    def stream_names(self) -> tuple[str, ...]:
        """Names of the tensors of `stream`'s memory."""
        return ()

    def stream_begin(self, worlds: int) -> tuple[Tensor, ...]:
        """Return the memory of `stream` for worlds without history; worlds are the first axis of every tensor."""
        return ()

    def stream(self, x: Tensor, memory: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Map one frame as a pure function of tensors, for other runtimes; raises an InputError if unsupported."""
        if self.begin(1) is not None:
            raise InputError(f"{type(self).__name__}: cannot be exported; valid: networks that override `stream`")
        return self(x), memory

    def dense(self) -> "Dense | None":
        """Return the network as matrices; None if only torch can run it."""
        return None

    def zero_output(self) -> None:
        """Set the last layer to zero, so that every output is exactly zero."""
        nn.init.zeros_(self.output_layer.weight)
        if self.output_layer.bias is not None:
            nn.init.zeros_(self.output_layer.bias)

    def _like_weights(self) -> dict[str, Any]:
        weight = self.output_layer.weight
        return {"device": weight.device, "dtype": weight.dtype}
