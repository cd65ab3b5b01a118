# SPDX-License-Identifier: Apache-2.0
"""Gradients of an MLP over many rows on a CPU: forward and backward chunk by chunk, in reused memory.

Automatic differentiation keeps the activations of all rows: with thousands of rows they exceed a core's cache, and each
layer goes through slower memory. With few rows, as in the frames of a window, call overhead dominates: there, gradients
of weights are computed at the end of the window. Updates of PPO take 0.49 (cartpole) and 0.59 (ant) of rsl_rl's CPU
time, updates of SHAC 0.93 and 0.84 of those by automatic differentiation (cartpole, planar runner).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from rsl_rl.modules import EmpiricalNormalization
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from neurodyn.nets.products import add_product_, linear, product

CHUNK = 2048
"""Rows of a chunk: few enough for the cache, enough to make call overhead small."""


@dataclass(frozen=True)
class InPlaceActivation:
    """An activation whose derivative follows from its output.

    Attributes:
        apply_: Replaces inputs, multiplied by `scale`, with outputs.
        backward_: Replaces gradients with respect to outputs with gradients with respect to inputs, given the outputs
            and work space of the same shape.
        scale: See `apply_`.
    """

    apply_: Callable[[Tensor], object]
    backward_: Callable[[Tensor, Tensor, Tensor], object]
    scale: float = 1.0

    def layer(self, weight: Tensor, bias: Tensor, x: Tensor, room: Tensor) -> Tensor:
        """Return the outputs for a linear layer and inputs `x`, in `room` or in memory of their own."""
        y = linear(x, weight, bias, room, self.scale)
        self.apply_(y)
        return y


def _elu_backward_(gradient: Tensor, y: Tensor, spare: Tensor) -> None:
    torch.clamp(y, max=0.0, out=spare)
    gradient.addcmul_(gradient, spare)


_MINUS_ONE = torch.tensor(-1.0)


def _tanh_of_twice_(x: Tensor) -> None:
    """Replace 2 x by tanh x = 2 / (1 + exp(-2 x)) - 1: a sixth of the time of torch's tanh, right to 1e-7 of 1."""
    torch.add(_MINUS_ONE, x.sigmoid_(), alpha=2.0, out=x)


IN_PLACE_ACTIVATIONS: dict[type[nn.Module], InPlaceActivation] = {
    nn.ELU: InPlaceActivation(lambda x: nn.functional.elu(x, inplace=True), _elu_backward_),
    nn.ReLU: InPlaceActivation(
        lambda x: x.relu_(), lambda gradient, y, spare: gradient.mul_(torch.gt(y, 0.0, out=spare))
    ),
    nn.Tanh: InPlaceActivation(
        _tanh_of_twice_,
        lambda gradient, y, spare: gradient.addcmul_(gradient, torch.mul(y, y, out=spare), value=-1),
        scale=2.0,
    ),
}
"""Supported activations; ELU with alpha 1."""


class _Space(NamedTuple):
    """Work space for some rows, by layer: outputs, gradients by outputs, and buffers for activations."""

    outputs: list[Tensor]
    gradients: list[Tensor]
    spare: list[Tensor]


class MlpPass:
    """Forward and backward passes of one MLP, which accumulate gradients in its parameters."""

    def __init__(self, mlp: nn.Sequential, into: Tensor | None = None) -> None:
        """Wrap an MLP: linear layers with one supported activation between them; see `fits`.

        Its gradients lie side by side in `into`, shape [weights], or in memory of their own.
        """
        self._layers = [layer for layer in mlp if isinstance(layer, nn.Linear)]
        self._activation = IN_PLACE_ACTIVATIONS[type(mlp[1])]
        self._outputs, self._gradients, self._spare = (
            [layer.weight.new_empty(CHUNK, layer.out_features) for layer in self._layers] for _ in range(3)
        )
        self._inputs: list[Tensor] = []
        self._spaces: dict[int, _Space] = {}
        self._weights = [layer.weight for layer in self._layers]
        self._biases = [layer.bias for layer in self._layers]
        self._parameters = [parameter for layer in self._layers for parameter in (layer.weight, layer.bias)]
        count = sum(parameter.numel() for parameter in self._parameters)
        self._whole = self._parameters[0].new_zeros(count) if into is None else into
        parts = self._whole.split([parameter.numel() for parameter in self._parameters])
        self._parts = [part.view_as(parameter) for part, parameter in zip(parts, self._parameters, strict=True)]

    @staticmethod
    def fits(mlp: nn.Module) -> bool:
        """Return whether all parts of an MLP are supported."""
        if not isinstance(mlp, nn.Sequential):
            return False
        layers = list(mlp)
        if len(layers) < 3 or len(layers) % 2 == 0:
            return False
        linear = all(isinstance(layer, nn.Linear) and layer.bias is not None for layer in layers[::2])
        kinds = {type(layer) for layer in layers[1::2]}
        plain = all(getattr(layer, "alpha", 1.0) == 1.0 for layer in layers[1::2])
        return linear and len(kinds) == 1 and kinds <= IN_PLACE_ACTIVATIONS.keys() and plain

    def begin(self) -> None:
        """Set the gradients to zero."""
        self._whole.zero_()
        for parameter, part in zip(self._parameters, self._parts, strict=True):
            parameter.grad = part

    def clip(self, limit: float) -> None:
        """Scale the gradients down to a norm of at most `limit`."""
        clip_(self._whole, limit)

    def outputs(self, x: Tensor) -> Tensor:
        """Return the outputs for any number of rows, shape [rows, outputs]."""
        return torch.cat([self.forward(rows).clone() for rows in x.split(CHUNK)])

    def forward(self, x: Tensor) -> Tensor:
        """Return the outputs for at most CHUNK rows, valid until the next call, shape [rows, outputs]."""
        rows = self._space(x.shape[0])
        self._inputs = [x]
        for weight, bias, room in zip(self._weights[:-1], self._biases[:-1], rows.outputs[:-1], strict=True):
            x = self._activation.layer(weight, bias, x, room)
            self._inputs.append(x)
        return linear(x, self._weights[-1], self._biases[-1], rows.outputs[-1])

    def backward(self, gradient: Tensor) -> None:
        """Add the gradients of the parameters, given the gradient of the last outputs, shape [rows, outputs]."""
        rows = self._space(gradient.shape[0])
        for number in range(len(self._weights) - 1, -1, -1):
            x = self._inputs[number]
            add_product_(self._parts[2 * number], gradient, x)
            self._parts[2 * number + 1].add_(gradient.sum(0))
            if number:
                before = product(gradient, self._weights[number], rows.gradients[number - 1])
                self._activation.backward_(before, x, rows.spare[number - 1])
                gradient = before

    def _space(self, rows: int) -> _Space:
        space = self._spaces.get(rows)
        if space is None:
            parts = (self._outputs, self._gradients, self._spare)
            space = self._spaces[rows] = _Space(*([whole[:rows] for whole in part] for part in parts))
        return space


def clip_(gradients: Tensor, limit: float) -> None:
    """Scale gradients that lie side by side down to a norm of at most `limit`."""
    gradients.mul_((limit / (gradients.norm() + 1e-6)).clamp_(max=1.0))


class WindowPass:
    """Noisy actions of one MLP in the frames of a window, within automatic differentiation.

    Gradients of observations and noise pass frame by frame; `finish` computes those of the weights in one product for
    all frames.
    """

    def __init__(self, mlp: nn.Sequential, normaliser: nn.Module) -> None:
        """Wrap an MLP that `fits`, and the normaliser of its inputs."""
        self._layers = [layer for layer in mlp if isinstance(layer, nn.Linear)]
        self._weights = [layer.weight for layer in self._layers]
        self._biases = [layer.bias for layer in self._layers]
        self._activation = IN_PLACE_ACTIVATIONS[type(mlp[1])]
        self._normaliser = normaliser if isinstance(normaliser, EmpiricalNormalization) else None
        self._inputs: list[Tensor] = []
        self._gradients: list[Tensor] = []
        self._rows: list[tuple[list[Tensor], list[Tensor]]] = []
        self._spare: list[Tensor] = []
        self._frame, self._scale = 0, torch.ones(())

    @staticmethod
    def fits(mlp: nn.Module, normaliser: nn.Module) -> bool:
        """Return whether all parts of an MLP and its normaliser are supported."""
        return MlpPass.fits(mlp) and isinstance(normaliser, EmpiricalNormalization | nn.Identity)

    @torch.no_grad()
    def begin(self, frames: int, worlds: int) -> None:
        """Prepare for a window, in which weights and normalisation stay constant."""
        if not self._inputs or self._inputs[0].shape[:2] != (frames, worlds):
            like = self._layers[0].weight
            self._inputs = [like.new_empty(frames, worlds, layer.in_features) for layer in self._layers]
            self._gradients = [like.new_empty(frames, worlds, layer.out_features) for layer in self._layers]
            self._spare = [like.new_empty(worlds, layer.out_features) for layer in self._layers]
            frames_of = [[part.unbind() for part in parts] for parts in (self._inputs, self._gradients)]
            self._rows = [([x[t] for x in frames_of[0]], [g[t] for g in frames_of[1]]) for t in range(frames)]
        for gradient in self._gradients:  # frames without dependants are not visited
            gradient.zero_()
        if self._normaliser is not None:
            self._scale = self._normaliser.std + self._normaliser.eps
        self._frame = 0

    def __call__(self, seen: Tensor, std: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Return the actions of the next frame and their means, without gradients, each of shape [worlds, actions].

        Args:
            seen: Observations, shape [worlds, observations].
            std: Standard deviations of the actions, shape [actions].
            noise: Noise in standard deviations, shape [worlds, actions].
        """
        frame, self._frame = self._frame, self._frame + 1
        action, mean = _Acting.apply(seen, std, noise, self, frame)  # type: ignore[misc]
        return action, mean

    def forward(self, seen: Tensor, frame: int) -> Tensor:
        """Return the outputs of a frame, shape [worlds, outputs]."""
        inputs, _ = self._rows[frame]
        x = inputs[0]
        if self._normaliser is None:
            x.copy_(seen)
        else:
            torch.sub(seen, self._normaliser._mean, out=x).div_(self._scale)
        for number in range(len(inputs) - 1):
            room = inputs[number + 1]
            y = self._activation.layer(self._weights[number], self._biases[number], x, room)
            x = y if y is room else room.copy_(y)
        return torch.addmm(self._biases[-1], x, self._weights[-1].t())

    def backward(self, gradient: Tensor, frame: int) -> Tensor:
        """Return the gradient of a frame's observations, given that of its outputs, which is stored for `finish`."""
        inputs, gradients = self._rows[frame]
        gradient = gradients[-1].copy_(gradient)
        for number in range(len(inputs) - 1, 0, -1):
            room = gradients[number - 1]
            before = product(gradient, self._weights[number], room)
            self._activation.backward_(before, inputs[number], self._spare[number - 1])
            gradient = before if before is room else room.copy_(before)
        gradient = product(gradient, self._weights[0], gradient.new_empty(len(gradient), self._weights[0].shape[1]))
        return gradient if self._normaliser is None else gradient.div_(self._scale)

    @torch.no_grad()
    def finish(self) -> None:
        """Write the gradients of all frames to the weights."""
        for layer, x, gradient in zip(self._layers, self._inputs, self._gradients, strict=True):
            rows = gradient.flatten(0, 1)
            layer.weight.grad = torch.zeros_like(layer.weight)
            add_product_(layer.weight.grad, rows, x.flatten(0, 1))
            layer.bias.grad = rows.sum(0)


class _Acting(torch.autograd.Function):
    """See `WindowPass.__call__`."""

    @staticmethod
    def forward(
        ctx: Any, seen: Tensor, std: Tensor, noise: Tensor, within: WindowPass, frame: int
    ) -> tuple[Tensor, Tensor]:
        mean = within.forward(seen, frame)
        ctx.noise, ctx.within, ctx.frame = noise, within, frame
        ctx.mark_non_differentiable(mean)
        ctx.set_materialize_grads(False)
        return torch.addcmul(mean, std, noise), mean

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Any) -> tuple[Any, ...]:  # type: ignore[override]
        gradient = gradients[0]
        if gradient is None:
            return None, None, None, None, None
        by_std = (gradient * ctx.noise).sum(0)
        return ctx.within.backward(gradient, ctx.frame), by_std, None, None, None
