# SPDX-License-Identifier: Apache-2.0
"""A sequence network between physical units: normalised inputs and outputs, and an optional linear skip connection.

`StreamingPredictor` is the same as a pure function of tensors.
"""

from typing import Any

import torch
from torch import Tensor, nn

from neurodyn.core.errors import InputError
from neurodyn.nets.members import MemberLinear
from neurodyn.nets.networks import MEMBER_NETWORKS, NETWORKS, NetConfig, require_members
from neurodyn.nets.normaliser import Normaliser, pieces
from neurodyn.nets.sequence import Carry, SequenceNet

_SILENT = 1e-5
"""Tolerance within which biases count as those of a zero output, in standard deviations of the outputs."""
_RIDGE = 1e-9
"""Tikhonov weight per sample on the normalised coefficients, for collinear inputs."""


class Predictor(nn.Module):
    r"""$y = \bar y + \sigma_y (W n + b + net(n))$ with $n = (x - \bar x)/\sigma_x$.

    Follows the protocol of `SequenceNet` with inputs and outputs in physical units; a carry is the net's. Members of a
    net share the statistics but have separate skip connections.
    """

    config: NetConfig | None = None
    """Configuration that it was built from; None if built directly."""

    def __init__(self, net: SequenceNet, *, skip: bool = True, clip: float | None = None) -> None:
        """Wrap a network between normalised inputs and outputs.

        Args:
            net: The network.
            skip: Whether there is a linear skip connection.
            clip: Bound on the absolute value of normalised inputs; None for none.
        """
        super().__init__()
        self.net = net
        self.clip = clip
        self.normaliser = Normaliser(net.inputs)
        # Small outputs, such as a position residual beside a velocity, have equal weight in the loss.
        self.denormaliser = Normaliser(net.outputs, eps=1e-12)
        self.skip = _short_cut(net) if skip else None
        if self.skip is not None:
            nn.init.zeros_(self.skip.weight)
            nn.init.zeros_(self.skip.bias)
            net.zero_output()

    @property
    def members(self) -> int:
        """Number of members, the first axis of inputs (or 1), outputs and carries."""
        return self.net.members

    @property
    def context(self) -> int:
        """Number of earlier frames that an output can depend on."""
        return self.net.context

    @torch.no_grad()
    def fit(self, x: Any, y: Any, *, start_at_zero: bool = False, missing_outputs: int = 0) -> "Predictor":
        """Fit both normalisers, and the skip connection by least squares in float64.

        Args:
            x: Inputs, shape [N, inputs] or [..., inputs]; tensor, array or HDF5 dataset.
            y: Outputs, shape [N, outputs] or [..., outputs].
            start_at_zero: Whether to start with zero outputs instead; for corrections that are zero except in a few
                frames, which would dominate a least-squares fit.
            missing_outputs: Number of leading outputs missing in `y`; they have unit one and start at zero.

        Raises:
            InputError: The data are empty, differ in length, have another size, or are not finite.
        """
        if tuple(x.shape[:-1]) != tuple(y.shape[:-1]):
            rows = " x ".join(map(str, x.shape[:-1])), " x ".join(map(str, y.shape[:-1]))
            raise InputError(f"{rows[0]} rows of inputs and {rows[1]} of outputs; expected one output for each input")
        self.normaliser.fit(x)
        measured_outputs = (
            Normaliser(self.net.outputs - missing_outputs, eps=self.denormaliser.eps).to(self.denormaliser.mean).fit(y)
        )
        self.denormaliser.adopt(measured_outputs)
        if start_at_zero:
            self.silence()
            return self
        if self.skip is not None:
            solution = nn.functional.pad(
                least_squares(self.normaliser, measured_outputs, x, y, _RIDGE), (missing_outputs, 0)
            )
            self.skip.weight.copy_(solution[:-1] if self.members > 1 else solution[:-1].t())
            self.skip.bias.copy_(solution[-1])
            self.net.zero_output()
        return self

    @torch.no_grad()
    def silence(self) -> None:
        """Make all outputs zero."""
        self.net.zero_output()
        last = self.net.output_layer if self.skip is None else self.skip
        last.weight.zero_()
        last.bias.copy_(self.denormaliser(torch.zeros_like(last.bias)))

    @property
    def silent(self) -> bool:
        """Whether all outputs are zero for any inputs: weights are zero, and biases give a zero output."""
        last = [self.net.output_layer] if self.skip is None else [self.net.output_layer, self.skip]
        if any(bool(layer.weight.any()) for layer in last):
            return False
        biases: list[Tensor] = [layer.bias for layer in last if layer.bias is not None]
        bias = torch.stack(biases).sum(0) if biases else torch.zeros(self.net.outputs)
        zero = self.denormaliser(torch.zeros_like(bias))
        return bool(torch.allclose(bias, zero, rtol=_SILENT, atol=_SILENT))

    def normalise_input(self, x: Tensor) -> Tensor:
        """Return normalised and clipped inputs, shape [..., inputs]."""
        n = self.normaliser(x)
        return n if self.clip is None else n.clamp(-self.clip, self.clip)

    def normalise_target(self, y: Tensor) -> Tensor:
        """Return normalised outputs, the space of losses, shape [..., outputs]."""
        return self.denormaliser(y)

    def forward_normalised(self, x: Tensor) -> Tensor:
        """Predict chunks in normalised outputs, [worlds, time, inputs] -> [worlds, time, outputs]."""
        n = self.normalise_input(x)
        y = self.net(n)
        return y if self.skip is None else y + self.skip(n)

    def forward(self, x: Tensor) -> Tensor:
        """Predict chunks from an empty history, [worlds, time, inputs] -> [worlds, time, outputs]."""
        return self.denormaliser.inverse(self.forward_normalised(x))

    def begin(self, batch: int) -> Carry:
        """Return the carry of `batch` worlds with an empty history."""
        return self.net.begin(batch)

    def step(self, x: Tensor, carry: Carry) -> tuple[Tensor, Carry]:
        """Predict one frame, [worlds, inputs] -> [worlds, outputs]; differentiable, `carry` stays valid."""
        n = self.normalise_input(x)
        y, carry = self.net.step(n, carry)
        return self.denormaliser.inverse(y if self.skip is None else y + self.skip(n)), carry

    @torch.no_grad()
    def step_(self, x: Tensor, carry: Carry) -> tuple[Tensor, Carry]:
        """Predict one frame without gradients, fast; consumes the carry."""
        n = self.normalise_input(x)
        y, carry = self.net.step_(n, carry)
        if isinstance(self.skip, MemberLinear):
            y = y.baddbmm_(n.expand(self.members, -1, -1), self.skip.weight).add_(self.skip.bias)
        elif self.skip is not None:
            y = torch.addmm(y, n, self.skip.weight.t()).add_(self.skip.bias)
        return self.denormaliser.inverse(y), carry

    def reset(self, carry: Carry, mask: Tensor) -> Carry:
        """Empty the history of the worlds where `mask` [worlds] is true; others are unchanged bitwise."""
        return self.net.reset(carry, mask)

    def prime(self, carry: Carry, x: Tensor, mask: Tensor | None = None) -> Carry:
        """Set the history of the worlds in `mask` to `x`, shape [worlds, T, inputs]; see `SequenceNet.prime`."""
        return self.net.prime(carry, self.normalise_input(x), mask)


def _short_cut(net: SequenceNet) -> nn.Linear | MemberLinear:
    layers = [nn.Linear(net.inputs, net.outputs) for _ in range(net.members)]
    return layers[0] if net.members == 1 else MemberLinear.together(layers)


def least_squares(inputs: Normaliser, outputs: Normaliser, x: Any, y: Any, ridge: float) -> Tensor:
    r"""Return the best affine map between normalised inputs and outputs, in float64, shape [inputs + 1, outputs].

    $$\min_w \overline{|A w - y|^2} + ridge\,|w|^2$$ over the rows [n(x), 1] of A. The constants, in the last row of w,
    are not penalised.
    """
    gram = torch.zeros(inputs.size + 1, inputs.size + 1, dtype=torch.float64)
    moment = torch.zeros(inputs.size + 1, outputs.size, dtype=torch.float64)
    count = 0
    for a, b in zip(pieces(x, inputs.size), pieces(y, outputs.size), strict=True):
        rows = torch.cat((_normalise(inputs, a), torch.ones(a.shape[0], 1, dtype=torch.float64)), 1)
        gram += rows.t() @ rows
        moment += rows.t() @ _normalise(outputs, b)
        count += a.shape[0]
    weight = torch.full((inputs.size + 1,), ridge, dtype=torch.float64)
    weight[-1] = 0.0
    return torch.linalg.solve(gram / count + torch.diag(weight), moment / count)


def _normalise(normaliser: Normaliser, x: Tensor) -> Tensor:
    return (x - normaliser.mean.to("cpu", torch.float64)) * normaliser.gain.to("cpu", torch.float64)


def build_net(config: NetConfig, inputs: int, outputs: int) -> SequenceNet:
    """Build the network of a configuration, with random weights."""
    return NETWORKS[config.kind].build(config, inputs, outputs)


def build_predictor(config: NetConfig, inputs: int, outputs: int, members: int = 1) -> Predictor:
    """Build a predictor around `members` networks of a configuration, with independent random weights.

    Raises:
        InputError: The kind does not support several members.
    """
    require_members(config, members)
    nets = [build_net(config, inputs, outputs) for _ in range(members)]
    net = nets[0] if members == 1 else MEMBER_NETWORKS[config.kind](nets)
    predictor = Predictor(net, skip=config.skip, clip=config.clip)
    predictor.config = config
    return predictor


class StreamingPredictor(nn.Module):
    """One frame of a predictor as a pure function, in physical units."""

    def __init__(self, predictor: Predictor) -> None:
        super().__init__()
        self.predictor = predictor
        self.begin(1)  # creates cached tensors before tracing

    @property
    def memory_names(self) -> tuple[str, ...]:
        """Names of the memory's tensors."""
        return self.predictor.net.stream_names

    def begin(self, worlds: int) -> tuple[Tensor, ...]:
        """Return the memory of worlds without history; worlds are the first axis of every tensor."""
        return self.predictor.net.stream_begin(worlds)

    def forward(self, x: Tensor, *memory: Tensor) -> tuple[Tensor, ...]:
        """Predict one frame from inputs [worlds, inputs] and the memory of the last call or of `begin`.

        Returns:
            Outputs, shape [worlds, outputs], and the memory.
        """
        predictor = self.predictor
        n = predictor.normalise_input(x)
        y, memory = predictor.net.stream(n, memory)
        if predictor.skip is not None:
            y = y + predictor.skip(n)
        return (predictor.denormaliser.inverse(y), *memory)
