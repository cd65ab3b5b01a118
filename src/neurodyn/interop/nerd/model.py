# SPDX-License-Identifier: Apache-2.0
"""Transformers of NeRD as dynamics of robots with a fixed base, without ground, and their files."""

from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from neurodyn.core.activations import require_activation
from neurodyn.core.config import Config, require_numbers
from neurodyn.core.description.mechanism import Fingerprint
from neurodyn.core.description.spec import StateSpec
from neurodyn.core.errors import InputError
from neurodyn.dynamics.artifact import Artifact
from neurodyn.dynamics.base import LearnedDynamics
from neurodyn.dynamics.batch import Control, Environment, State, Step, Window, present_state
from neurodyn.dynamics.control import frame_torque
from neurodyn.geometry.tensors import WorldMask
from neurodyn.nets.mlp import MLP

EPSILON = 1e-5
"""Added to variances."""


class NerdNetConfig(Config, frozen=True):
    """Sizes of the network.

    Attributes:
        inputs: Numbers that it sees of a frame.
        outputs: Numbers that it predicts.
        width: Width of the stream.
        depth: Number of blocks.
        heads: Number of attention heads.
        positions: Number of learned positions.
        head: Widths of hidden layers between stream and output.
        activation: Activation of these.
        bias: Whether blocks have biases.
    """

    inputs: int
    outputs: int
    width: int
    depth: int
    heads: int
    positions: int
    head: tuple[int, ...] = (64,)
    activation: str = "relu"
    bias: bool = False

    def __post_init__(self) -> None:
        require_activation(self.activation, "function")
        require_numbers(self, above=("inputs", "outputs", "width", "depth", "heads", "positions", "head"))
        if self.width % self.heads:
            raise ValueError(f"width is {self.width} with {self.heads} heads; valid: a multiple of the heads")


class _Block(nn.Module):
    def __init__(self, config: NerdNetConfig) -> None:
        super().__init__()
        width, bias = config.width, config.bias
        self.heads = config.heads
        self.norm1, self.norm2 = nn.LayerNorm(width, bias=bias), nn.LayerNorm(width, bias=bias)
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=bias), nn.Linear(width, width, bias=bias)
        self.widen, self.narrow = nn.Linear(width, 4 * width, bias=bias), nn.Linear(4 * width, width, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(self.norm1(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.narrow(functional.gelu(self.widen(self.norm2(x))))


class NerdNet(nn.Module):
    """From windows of inputs to predictions of their last frames, normalisation included."""

    input_mean: Tensor
    input_variance: Tensor
    output_mean: Tensor
    output_variance: Tensor

    def __init__(self, config: NerdNetConfig) -> None:
        super().__init__()
        self.config = config
        for name, size in (("input", config.inputs), ("output", config.outputs)):
            self.register_buffer(f"{name}_mean", torch.zeros(size))
            self.register_buffer(f"{name}_variance", torch.ones(size))
        self.embed = nn.Linear(config.inputs, config.width)
        self.positions = nn.Parameter(torch.zeros(config.positions, config.width))
        self.blocks = nn.ModuleList(_Block(config) for _ in range(config.depth))
        self.norm = nn.LayerNorm(config.width, bias=config.bias)
        self.project = nn.Linear(config.width, config.width, bias=False)
        self.head = MLP(config.width, config.outputs, config.head, config.activation)

    def forward(self, x: Tensor) -> Tensor:
        """Map windows of frames, [worlds, time, inputs] -> [worlds, time, outputs]."""
        x = (x - self.input_mean) / (self.input_variance + EPSILON).sqrt()
        x = self.embed(x) + self.positions[: x.shape[1]]
        for block in self.blocks:
            x = block(x)
        y = self.head(self.project(self.norm(x)))
        return y * (self.output_variance + EPSILON).sqrt() + self.output_mean


Part = Literal["states", "torques"]
"""Inputs of a network: positions and velocities, or torques of all joints."""


@dataclass(frozen=True)
class NerdCarry:
    """History of a batch of worlds.

    Attributes:
        frames: Inputs of the last frames, oldest first, shape [worlds, window, inputs].
        filled: Number of valid frames in each world, shape [worlds].
    """

    frames: Tensor
    filled: Tensor


class NerdDynamics(LearnedDynamics):
    """Dynamics by a network of NeRD.

    Attributes:
        window: Frames that the network reads, including the current one.
        parts: Inputs of a frame, in order.
    """

    kind = "nerd"

    _continuous: Tensor
    _driven: Tensor

    def __init__(
        self,
        spec: StateSpec,
        net: NerdNetConfig,
        window: int,
        parts: tuple[Part, ...],
        fingerprint: Fingerprint | None = None,
        declaration: str | None = None,
    ) -> None:
        """Build dynamics with fresh weights; a floating base or other inputs or outputs raise an InputError."""
        super().__init__(spec.with_context(window - 1), declaration)
        if spec.floating or spec.nq != spec.nv:
            raise InputError(f"robot {spec.robot!r}: its base floats; valid for networks of NeRD: a fixed base")
        sizes = {"states": spec.nq + spec.nv, "torques": spec.nv}
        expected = sum(sizes[part] for part in parts), spec.nq + spec.nv
        if (net.inputs, net.outputs) != expected:
            raise InputError(
                f"robot {spec.robot!r} has {expected[0]} inputs and {expected[1]} outputs, the network has "
                f"{net.inputs} and {net.outputs}; valid: the robot that it was trained for"
            )
        self.window, self.parts, self.fingerprint, self.net = window, parts, fingerprint, NerdNet(net)
        self.register_buffer("_continuous", torch.tensor(spec.continuous), persistent=False)
        driven = torch.tensor([spec.qd_names.index(name) for name in spec.controls], dtype=torch.long)
        self.register_buffer("_driven", driven, persistent=False)

    @property
    def network(self) -> str:
        """Kind of network."""
        return "transformer"

    def begin(self, context: State | Window, environment: Environment | None = None) -> NerdCarry:
        """Return the carry of worlds with the history of `context`; a state has none."""
        self.resolve_environment(environment)
        state = present_state(context)
        shape = state.worlds, self.window, self.net.config.inputs
        carry = NerdCarry(state.q.new_zeros(shape), torch.zeros(state.worlds, dtype=torch.long, device=state.q.device))
        if not isinstance(context, Window):
            return carry
        frames = self._inputs(context.q[:, :-1], context.qd[:, :-1], context.torque)
        for frame in frames[:, max(0, frames.shape[1] - self.window + 1) :].unbind(1):
            carry = self._with(carry, frame)
        return carry

    def step(self, carry: NerdCarry, state: State, control: Control) -> tuple[NerdCarry, Step]:
        """Predict one frame; `carry` stays valid."""
        carry = self._with(carry, self._inputs(state.q, state.qd, frame_torque(self.spec, state, control)))
        change = self.net(carry.frames)[torch.arange(state.worlds, device=state.q.device), carry.filled - 1]
        dq, dqd = change.split([self.spec.nq, self.spec.nv], -1)
        return carry, Step.unchecked(state=State.unchecked(q=state.q + dq, qd=state.qd + dqd))

    def reset(self, carry: NerdCarry, context: State | Window, mask: WorldMask) -> NerdCarry:
        """Restart the worlds where `mask`, shape [worlds], is true."""
        fresh = self.begin(context)
        frames = torch.where(mask[:, None, None], fresh.frames, carry.frames)
        return NerdCarry(frames, torch.where(mask, fresh.filled, carry.filled))

    def require_ground(self) -> None:
        """Raise an InputError: the network knows no ground."""
        raise InputError(f"network of NeRD of {self.spec.robot!r}: feels no ground; valid: no ground")

    def require_gravity(self, gravity: Tensor) -> None:
        """Raise an InputError for another gravity than the network's own."""
        own = None if self.fingerprint is None else torch.tensor(self.fingerprint.gravity)
        if own is not None and not torch.allclose(gravity.cpu().float(), own, atol=1e-6):
            raise InputError(f"network of NeRD of {self.spec.robot!r}: knows one gravity; valid: {own.tolist()} m/s^2")

    def _with(self, carry: NerdCarry, frame: Tensor) -> NerdCarry:
        """Return a history with one more frame, without the oldest one if it was full."""
        full = carry.filled == self.window
        frames = torch.where(full[:, None, None], carry.frames.roll(-1, 1), carry.frames)
        place = torch.where(full, carry.filled - 1, carry.filled)
        there = torch.arange(self.window, device=frame.device) == place[:, None]
        return replace(carry, frames=torch.where(there[..., None], frame[:, None], frames), filled=place + 1)

    def _inputs(self, q: Tensor, qd: Tensor, torque: Tensor) -> Tensor:
        """Return the inputs of frames, shape [..., inputs]."""
        wrapped = torch.where(self._continuous, torch.remainder(q + torch.pi, 2 * torch.pi) - torch.pi, q)
        whole = torch.zeros_like(qd).index_copy(-1, self._driven, torque)
        known: dict[str, list[Any]] = {"states": [wrapped, qd], "torques": [whole]}
        return torch.cat([tensor for part in self.parts for tensor in known[part]], -1)


class NerdConfig(Config, frozen=True):
    """Contents of config.json: everything but the weights; see `NerdDynamics`."""

    kind: Literal["nerd"]
    net: NerdNetConfig
    robot: str
    window: int
    parts: tuple[Part, ...]


class NerdSpec(Config, frozen=True):
    """Contents of spec.json: state, and the articulation as built at the import (None without a simulator)."""

    state: StateSpec
    fingerprint: Fingerprint | None = None


def build_nerd(config: NerdConfig, spec: NerdSpec) -> NerdDynamics:
    """Build dynamics with fresh weights."""
    return NerdDynamics(spec.state, config.net, config.window, config.parts, spec.fingerprint, config.robot)


def describe(model: NerdDynamics) -> tuple[NerdConfig, NerdSpec]:
    """Return the contents of a model's files."""
    config = NerdConfig(
        kind="nerd", net=model.net.config, robot=model.declaration, window=model.window, parts=model.parts
    )  # fmt: skip
    return config, NerdSpec(state=model.spec, fingerprint=model.fingerprint)


NERD = Artifact("nerd", NerdConfig, NerdSpec, build_nerd, describe)
"""Files of networks of NeRD."""
