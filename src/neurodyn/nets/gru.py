# SPDX-License-Identifier: Apache-2.0
"""Gated recurrent network (Cho et al. 2014, in cuDNN's variant) with a hidden state per layer."""

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Self

import torch
from torch import Tensor, nn

from neurodyn.nets.members import Dense, Weight
from neurodyn.nets.mlp import MLP
from neurodyn.nets.sequence import SequenceNet

if TYPE_CHECKING:
    from neurodyn.nets.networks import NetConfig

_WEIGHTS = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")

Hidden = tuple[Tensor, ...]
"""Hidden states, one per layer, shape [..., worlds, width] each."""


class RecurrentNet(SequenceNet):
    """A network whose history is a hidden state per layer."""

    warmup: int

    @property
    def context(self) -> int:
        """Declared number of warm-up frames; strictly, a hidden state depends on all earlier frames."""
        return self.warmup

    def reset(self, carry: Hidden, mask: Tensor) -> Hidden:
        """Set the hidden states of the worlds where `mask` is true to zero."""
        return tuple(h.masked_fill(mask[..., None], 0.0) for h in carry)

    def merge(self, carry: Hidden, other: Hidden, mask: Tensor) -> Hidden:
        """Replace the worlds where `mask` is true by those of `other`."""
        return tuple(torch.where(mask[..., None], b, a) for a, b in zip(carry, other, strict=True))

    def rewind(self, carry: Hidden, frames: int) -> Hidden:
        """Return an empty history; hidden states have no frame number."""
        return tuple(torch.zeros_like(h) for h in carry)

    @property
    def stream_names(self) -> tuple[str, ...]:
        """Names of the hidden states."""
        return tuple(f"hidden_{layer}" for layer in range(len(self.begin(1))))


class GRU(RecurrentNet):
    r"""Layers of gated recurrent units and a small head.

    Per layer, with input x and hidden state h:

    $$r = \sigma(W_{ir} x + b_{ir} + W_{hr} h + b_{hr}), \quad z = \sigma(W_{iz} x + b_{iz} + W_{hz} h + b_{hz}),$$

    $$n = \tanh(W_{in} x + b_{in} + r \odot (W_{hn} h + b_{hn})), \quad h' = (1 - z) \odot n + z \odot h$$
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        width: int,
        depth: int = 1,
        *,
        head: tuple[int, ...] = (),
        activation: str = "silu",
        warmup: int = 10,
    ) -> None:
        """Build the network.

        Args:
            inputs: Size of an input vector.
            outputs: Size of an output vector.
            width: Size of the hidden state of each layer.
            depth: Number of layers.
            head: Sizes of hidden layers between the hidden state and the output.
            activation: Activation of the hidden layers of the head.
            warmup: Number of frames that suffice to build up the hidden state; declared as `context`.
        """
        super().__init__()
        self.inputs, self.outputs, self.width, self.depth, self.warmup = inputs, outputs, width, depth, warmup
        self.cells = nn.GRU(inputs, width, depth, batch_first=True)
        self.head = MLP(width, outputs, head, activation)

    @classmethod
    def build(cls, config: "NetConfig", inputs: int, outputs: int) -> Self:
        """Build the network of a configuration."""
        head = (config.head,) if config.head else ()
        return cls(
            inputs, outputs, config.width, config.depth, head=head, activation=config.activation, warmup=config.warmup
        )

    @classmethod
    def memory(cls, config: "NetConfig") -> int:
        """Return the declared number of warm-up frames."""
        return config.warmup

    @property
    def output_layer(self) -> nn.Linear:
        """The last layer of the head."""
        return self.head.output_layer

    def forward(self, x: Tensor) -> Tensor:
        """Map chunks from an empty history, [worlds, time, inputs] -> [worlds, time, outputs]."""
        return self.head(self.cells(x)[0])

    def begin(self, batch: int) -> Hidden:
        """Return zero hidden states, one per layer, shape [worlds, width] each."""
        return tuple(torch.zeros(batch, self.width, **self._like_weights()) for _ in range(self.depth))

    def _weights(self, layer: int) -> Iterator[Tensor]:
        return (getattr(self.cells, f"{name}_l{layer}") for name in _WEIGHTS)

    def dense(self) -> Dense:
        """Return recurrent layers and head as matrices."""
        cells = tuple(tuple(Weight(self.cells, f"{name}_l{k}") for name in _WEIGHTS) for k in range(self.depth))
        return replace(self.head.dense(), cells=cells, width=self.width)

    def step(self, x: Tensor, carry: Hidden) -> tuple[Tensor, Hidden]:
        """Map one frame, [worlds, inputs] -> [worlds, outputs]."""
        new = []
        for layer, h in enumerate(carry):
            wi, wh, bi, bh = self._weights(layer)
            ri, zi, ni = torch.addmm(bi, x, wi.t()).chunk(3, 1)
            rh, zh, nh = torch.addmm(bh, h, wh.t()).chunk(3, 1)
            n = torch.tanh(ni + torch.sigmoid(ri + rh) * nh)
            x = n + torch.sigmoid(zi + zh) * (h - n)
            new.append(x)
        return self.head(x), tuple(new)

    @torch.no_grad()
    def step_(self, x: Tensor, carry: Hidden) -> tuple[Tensor, Hidden]:
        """Map one frame without gradients; the hidden states are updated in place."""
        width = self.width
        for layer, h in enumerate(carry):
            wi, wh, bi, bh = self._weights(layer)
            gates = torch.addmm(bi, x, wi.t())
            recurrent = torch.addmm(bh, h, wh.t())
            rz = gates[:, : 2 * width].add_(recurrent[:, : 2 * width]).sigmoid_()
            n = gates[:, 2 * width :].addcmul_(rz[:, :width], recurrent[:, 2 * width :]).tanh_()
            # h' = n + z (h - n), written over h.
            torch.lerp(n, h, rz[:, width:], out=h)
            x = h
        return self.head.step_(x)[0], carry

    def stream_begin(self, worlds: int) -> Hidden:
        """Return zero hidden states."""
        return self.begin(worlds)

    def stream(self, x: Tensor, memory: Hidden) -> tuple[Tensor, Hidden]:
        """Map one frame."""
        return self.step(x, memory)
