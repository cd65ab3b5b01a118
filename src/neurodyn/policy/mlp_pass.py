# SPDX-License-Identifier: Apache-2.0
"""Gradients of an MLP over many rows on a CPU: forward and backward chunk by chunk, in memory that is used again.

Automatic differentiation holds the activations of all rows: with thousands of rows that is more than a core's cache
holds, and each layer writes and reads them in slower memory.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

CHUNK = 1024
"""Rows of a chunk: few enough for the cache, and enough that calls cost little."""


@dataclass(frozen=True)
class InPlaceActivation:
    """An activation whose derivative follows from its output; the last argument is work space of the same shape.

    Attributes:
        apply_: Replaces inputs by outputs.
        backward_: Replaces gradients with respect to outputs by gradients with respect to inputs, given the outputs.
    """

    apply_: Callable[[Tensor, Tensor], object]
    backward_: Callable[[Tensor, Tensor, Tensor], object]


def _elu_(x: Tensor, spare: Tensor) -> None:
    torch.clamp(x, max=0.0, out=spare)
    spare.exp_().sub_(1.0)
    x.relu_().add_(spare)


def _elu_backward_(gradient: Tensor, y: Tensor, spare: Tensor) -> None:
    torch.clamp(y, max=0.0, out=spare)
    gradient.addcmul_(gradient, spare)


ACTIVATIONS: dict[type[nn.Module], InPlaceActivation] = {
    nn.ELU: InPlaceActivation(_elu_, _elu_backward_),
    nn.ReLU: InPlaceActivation(
        lambda x, _: x.relu_(), lambda gradient, y, spare: gradient.mul_(torch.gt(y, 0.0, out=spare))
    ),
    nn.Tanh: InPlaceActivation(
        lambda x, _: x.tanh_(),
        lambda gradient, y, spare: gradient.addcmul_(gradient, torch.mul(y, y, out=spare), value=-1),
    ),
}
"""Activations that a pass knows, ELU with alpha 1."""


class MlpPass:
    """Forward and backward passes of one MLP, whose gradients add up in its parameters."""

    def __init__(self, mlp: nn.Sequential) -> None:
        """Take an MLP: linear layers with one known activation between them; see `fits`."""
        self._layers = [layer for layer in mlp if isinstance(layer, nn.Linear)]
        self._activation = ACTIVATIONS[type(mlp[1])]
        self._outputs, self._gradients, self._spare = (
            [layer.weight.new_empty(CHUNK, layer.out_features) for layer in self._layers] for _ in range(3)
        )
        self._inputs: list[Tensor] = []

    @staticmethod
    def fits(mlp: nn.Module) -> bool:
        """Return whether a pass knows all parts of an MLP."""
        if not isinstance(mlp, nn.Sequential):
            return False
        layers = list(mlp)
        if len(layers) < 3 or len(layers) % 2 == 0:
            return False
        linear = all(isinstance(layer, nn.Linear) and layer.bias is not None for layer in layers[::2])
        kinds = {type(layer) for layer in layers[1::2]}
        plain = all(getattr(layer, "alpha", 1.0) == 1.0 for layer in layers[1::2])
        return linear and len(kinds) == 1 and kinds <= ACTIVATIONS.keys() and plain

    def begin(self) -> None:
        """Set the gradients to zero."""
        for layer in self._layers:
            for parameter in layer.parameters():
                parameter.grad = torch.zeros_like(parameter)

    def forward(self, x: Tensor) -> Tensor:
        """Return the outputs for at most CHUNK rows, valid until the next call, shape [rows, outputs]."""
        self._inputs = []
        for number, layer in enumerate(self._layers):
            self._inputs.append(x)
            y = self._outputs[number][: len(x)]
            torch.addmm(layer.bias, x, layer.weight.t(), out=y)
            if number < len(self._layers) - 1:
                self._activation.apply_(y, self._spare[number][: len(x)])
            x = y
        return x

    def backward(self, gradient: Tensor) -> None:
        """Add the gradients of the parameters, given the gradient of the last outputs, shape [rows, outputs]."""
        rows = len(gradient)
        for number in reversed(range(len(self._layers))):
            layer, x = self._layers[number], self._inputs[number]
            weight, bias = layer.weight.grad, layer.bias.grad
            assert weight is not None
            assert bias is not None
            weight.addmm_(gradient.t(), x)
            bias.add_(gradient.sum(0))
            if number:
                before = self._gradients[number - 1][:rows]
                torch.mm(gradient, layer.weight, out=before)
                self._activation.backward_(before, x, self._spare[number - 1][:rows])
                gradient = before
