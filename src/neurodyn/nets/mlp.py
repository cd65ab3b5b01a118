# SPDX-License-Identifier: Apache-2.0
"""Multi-layer perceptron: a sequence network without memory."""

import itertools
from typing import TYPE_CHECKING, Any, Self, cast

import torch
from torch import Tensor, nn

from neurodyn.core.activations import ACTIVATIONS
from neurodyn.nets.members import Dense, linear_weights
from neurodyn.nets.sequence import SequenceNet

if TYPE_CHECKING:
    from neurodyn.nets.networks import NetConfig


class Perceptron(SequenceNet):
    """Layers with one activation between them and no memory, of one network or of several members."""

    layers: nn.ModuleList
    activation: str

    @property
    def context(self) -> int:
        """No dependence on earlier frames."""
        return 0

    @property
    def output_layer(self) -> Any:
        """The last layer."""
        return self.layers[-1]

    def forward(self, x: Tensor) -> Tensor:
        """Map every frame by itself, shape [..., inputs] -> [..., outputs], members first if there are several."""
        activation = ACTIVATIONS[self.activation].apply
        *hidden, last = self.layers  # a slice would build a module
        for layer in hidden:
            x = activation(layer(x))
        return last(x)

    def dense(self) -> Dense:
        """Return the layers as matrices."""
        return Dense((), tuple(linear_weights(cast(Any, layer)) for layer in self.layers), self.activation)

    def begin(self, batch: int) -> None:
        """Return None: there is no history."""

    def step(self, x: Tensor, carry: None = None) -> tuple[Tensor, None]:
        """Map one frame, [worlds, inputs] -> [worlds, outputs], with members first if there are several."""
        return self.forward(x), None

    @torch.no_grad()
    def step_(self, x: Tensor, carry: None = None) -> tuple[Tensor, None]:
        """Map one frame without gradients; activations are computed in place."""
        activation = ACTIVATIONS[self.activation].apply_
        *hidden, last = self.layers
        for layer in hidden:
            x = activation(layer(x))
        return last(x), None

    def reset(self, carry: None, mask: Tensor) -> None:
        """Do nothing."""

    def merge(self, carry: None, other: None, mask: Tensor) -> None:
        """Do nothing."""

    def rewind(self, carry: None, frames: int) -> None:
        """Return None: there is no history."""

    def prime(self, carry: None, x: Tensor, mask: Tensor | None = None) -> None:
        """Ignore the history."""


class MLP(Perceptron):
    """Fully connected layers with one activation between them; every frame is mapped independently."""

    def __init__(self, inputs: int, outputs: int, widths: tuple[int, ...], activation: str = "silu") -> None:
        """Build the net; without hidden `widths` it is linear."""
        super().__init__()
        self.inputs, self.outputs, self.activation = inputs, outputs, activation
        _ = ACTIVATIONS[activation].apply  # looked up here, as torch's compiler cannot follow a first use
        sizes = (inputs, *widths, outputs)
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in itertools.pairwise(sizes))

    least_depth = 0

    @classmethod
    def build(cls, config: "NetConfig", inputs: int, outputs: int) -> Self:
        """Build the network of a configuration."""
        return cls(inputs, outputs, (config.width,) * config.depth, config.activation)
