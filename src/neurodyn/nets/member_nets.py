# SPDX-License-Identifier: Apache-2.0
"""Sequence networks with several members, which evaluate existing networks in one batched pass."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Self, cast

import torch
from torch import Tensor, nn

from neurodyn.core.errors import NeurodynError
from neurodyn.nets.gru import GRU, Hidden, RecurrentNet
from neurodyn.nets.members import MemberGRU, MemberLinear
from neurodyn.nets.mlp import MLP, Perceptron
from neurodyn.nets.sequence import SequenceNet

if TYPE_CHECKING:
    from neurodyn.nets.networks import NetConfig


class MemberNet(SequenceNet):
    """Base of networks with members."""

    def __init__(self, nets: Sequence[SequenceNet]) -> None:
        """Combine networks of the same sizes."""
        super().__init__()
        self.inputs, self.outputs = nets[0].inputs, nets[0].outputs
        self._members, self._title = len(nets), nets[0].title

    @property
    def members(self) -> int:
        """Number of members."""
        return self._members

    @property
    def title(self) -> str:
        """Kind of the members."""
        return self._title

    @classmethod
    def build(cls, config: "NetConfig", inputs: int, outputs: int) -> Self:
        """Raise an error: these networks combine existing ones (`nets.predictor.build_predictor`)."""
        raise NeurodynError(f"{cls.__name__} is made of networks of one member")


class MemberMLP(MemberNet, Perceptron):
    """Multi-layer perceptrons: every frame is mapped independently."""

    def __init__(self, nets: Sequence[MLP]) -> None:
        """Combine networks of the same sizes."""
        super().__init__(nets)
        self.activation = nets[0].activation
        columns = zip(*(cast(Sequence[nn.Linear], net.layers) for net in nets), strict=True)
        self.layers = nn.ModuleList(MemberLinear.together(column) for column in columns)


class MemberRecurrent(MemberNet, RecurrentNet):
    """Gated recurrent networks with heads (`nets.gru`); masks [worlds] or [members, worlds]; `stream`: worlds first."""

    def __init__(self, nets: Sequence[GRU]) -> None:
        """Combine networks of the same sizes."""
        super().__init__(nets)
        self.width, self.warmup = nets[0].width, nets[0].warmup
        cells = [net.cells for net in nets]
        self.cells = nn.ModuleList(MemberGRU.together(cells, layer) for layer in range(nets[0].depth))
        self.head = MemberMLP([net.head for net in nets])

    @property
    def output_layer(self) -> MemberLinear:
        """Last layer of the heads."""
        return self.head.output_layer

    def forward(self, x: Tensor) -> Tensor:
        """Map chunks from an empty history, shape [members or 1, worlds, time, inputs or outputs]."""
        h = x.new_zeros(self.members, x.shape[1], self.width)
        x = x.expand(self.members, *x.shape[1:]).transpose(1, 2)  # cells expect time before rows
        for cell in self.cells:
            x = cell(x, h)
        return self.head(x).transpose(1, 2)

    def begin(self, batch: int) -> Hidden:
        """Return zero hidden states, one per layer, shape [members, worlds, width] each."""
        return tuple(torch.zeros(self.members, batch, self.width, **self._like_weights()) for _ in self.cells)

    def step(self, x: Tensor, carry: Hidden) -> tuple[Tensor, Hidden]:
        """Map one frame."""
        x, new = x.expand(self.members, *x.shape[1:]), []
        for cell, h in zip(self.cells, carry, strict=True):
            x = cast(MemberGRU, cell).step(x, h)
            new.append(x)
        return self.head(x), tuple(new)

    @torch.no_grad()
    def step_(self, x: Tensor, carry: Hidden) -> tuple[Tensor, Hidden]:
        """Map one frame without gradients."""
        return self.step(x, carry)

    def stream_begin(self, worlds: int) -> Hidden:
        """Return zero hidden states, shape [worlds, members, width] each."""
        return tuple(h.transpose(0, 1).contiguous() for h in self.begin(worlds))

    def stream(self, x: Tensor, memory: Hidden) -> tuple[Tensor, Hidden]:
        """Map one frame."""
        y, after = self.step(x, tuple(h.transpose(0, 1) for h in memory))
        return y, tuple(h.transpose(0, 1) for h in after)
