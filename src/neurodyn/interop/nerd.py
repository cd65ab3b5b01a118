# SPDX-License-Identifier: Apache-2.0
"""NeRD transformers as dynamics of fixed-base robots without ground; their files, and the authors' checkpoints.

A checkpoint (MODEL/nn/model.pt) holds pickled modules, from which tensors, sizes and statistics are read: a pair
(model, name of the robot). The model has the modules `encoders.low_dim` (without layers in the published files),
`transformer_model` and `model`, the statistics `input_rms` (by input) and `output_rms`, and the order of inputs,
`low_dim_input_names`. cfg.yaml, two folders up, holds the number of frames that the network reads. Source: models/ and
solvers/ of https://github.com/NVlabs/neural-robot-dynamics.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from neurodyn.core.activations import require_activation
from neurodyn.core.config import Config, from_dict, read_plain, require_numbers
from neurodyn.core.description.mechanism import Fingerprint
from neurodyn.core.description.spec import StateSpec
from neurodyn.core.errors import InputError, choices
from neurodyn.dynamics.artifact import Artifact
from neurodyn.dynamics.base import LearnedDynamics
from neurodyn.dynamics.batch import Control, Environment, State, Step, Window, present_state
from neurodyn.dynamics.control import frame_torque
from neurodyn.dynamics.coordinates import wrap_angle
from neurodyn.dynamics.same_robot import built_articulation
from neurodyn.geometry.tensors import WorldMask
from neurodyn.interop.checkpoints import InertObject, read_inert, take, tensor_of
from neurodyn.nets.mlp import MLP
from neurodyn.robots import Robot
from neurodyn.sim.simulators import has_simulator

EPSILON = 1e-5
"""Added to variances."""


class NerdNetConfig(Config, frozen=True):
    """Sizes of the network.

    Attributes:
        inputs: Inputs per frame.
        outputs: Number of outputs.
        width: Width of the residual stream.
        depth: Number of blocks.
        heads: Number of attention heads.
        positions: Number of learned positions.
        head: Widths of hidden layers between residual stream and output.
        activation: Activation of these layers.
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
    """Maps windows of inputs to predictions for their last frames, normalisation included."""

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
"""Input of a network: positions and velocities, or torques of all joints."""


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
    """Dynamics of a NeRD network.

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
        """Build dynamics with new weights; a floating base or unsupported inputs or outputs raise an InputError."""
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
        """Return the carry of worlds with the history of `context`; a single state has none."""
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
        return carry, Step.make_unchecked(state=State.make_unchecked(q=state.q + dq, qd=state.qd + dqd))

    def reset(self, carry: NerdCarry, context: State | Window, mask: WorldMask) -> NerdCarry:
        """Restart the worlds where `mask`, shape [worlds], is true."""
        fresh = self.begin(context)
        frames = torch.where(mask[:, None, None], fresh.frames, carry.frames)
        return NerdCarry(frames, torch.where(mask, fresh.filled, carry.filled))

    def require_ground(self) -> None:
        """Raise an InputError: the network has no ground."""
        raise InputError(f"network of NeRD of {self.spec.robot!r}: feels no ground; valid: no ground")

    def require_gravity(self, gravity: Tensor) -> None:
        """Raise an InputError for a gravity other than the network's own."""
        own = None if self.fingerprint is None else torch.tensor(self.fingerprint.gravity)
        if own is not None and not torch.allclose(gravity.cpu().float(), own, atol=1e-6):
            raise InputError(f"network of NeRD of {self.spec.robot!r}: knows one gravity; valid: {own.tolist()} m/s^2")

    def _with(self, carry: NerdCarry, frame: Tensor) -> NerdCarry:
        """Append a frame to a history, dropping the oldest one if it was full."""
        full = carry.filled == self.window
        frames = torch.where(full[:, None, None], carry.frames.roll(-1, 1), carry.frames)
        place = torch.where(full, carry.filled - 1, carry.filled)
        there = torch.arange(self.window, device=frame.device) == place[:, None]
        return replace(carry, frames=torch.where(there[..., None], frame[:, None], frames), filled=place + 1)

    def _inputs(self, q: Tensor, qd: Tensor, torque: Tensor) -> Tensor:
        """Return the inputs of frames, shape [..., inputs]."""
        wrapped = torch.where(self._continuous, wrap_angle(q), q)
        whole = torch.zeros_like(qd).index_copy(-1, self._driven, torque)
        known: dict[str, list[Any]] = {"states": [wrapped, qd], "torques": [whole]}
        return torch.cat([tensor for part in self.parts for tensor in known[part]], -1)


class NerdConfig(Config, frozen=True):
    """Contents of config.json: everything except the weights; see `NerdDynamics`."""

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
    """Build dynamics with new weights."""
    return NerdDynamics(spec.state, config.net, config.window, config.parts, spec.fingerprint, config.robot)


def describe(model: NerdDynamics) -> tuple[NerdConfig, NerdSpec]:
    """Return the contents of a model's files."""
    config = NerdConfig(
        kind="nerd", net=model.net.config, robot=model.declaration, window=model.window, parts=model.parts
    )
    return config, NerdSpec(state=model.spec, fingerprint=model.fingerprint)


NERD = Artifact("nerd", NerdConfig, NerdSpec, build_nerd, describe)
"""File format of NeRD networks."""


_OF = "NeRD"
_FRAMES = 10
_PARTS: dict[str, Part] = {
    "states_embedding": "states",
    "states": "states",
    "joint_f": "torques",
    "joint_acts": "torques",
}
"""Inputs by their names in a checkpoint."""
_SOLVER = {
    "prediction_type": ("relative",), "states_embedding_type": (None, "identical"),
    "name": ("TransformerNeuralSolver", "TransformerNeuralIntegrator"),
}  # fmt: skip
"""Supported solver settings."""
_BLOCKS = {
    "ln_1": "norm1", "attn.c_attn": "qkv", "attn.c_proj": "out", "ln_2": "norm2", "mlp.c_fc": "widen",
    "mlp.c_proj": "narrow",
}  # fmt: skip


def read_nerd(path: Path, robot: Robot, statistics: Path | None) -> NerdDynamics:
    """Read a checkpoint's network as dynamics of a robot with the same joint order.

    See `formats.MODEL_LAYOUTS`; `statistics` must be None, because the checkpoint holds them.
    """
    if statistics is not None:
        raise InputError("--statistics is for --model rwm; a checkpoint of NeRD holds its own")
    where, pair = str(path), read_inert(path, _OF)
    model = pair[0] if isinstance(pair, tuple | list) and pair else pair
    if not isinstance(model, InertObject) or not model.kind.endswith("ModelMixedInput"):
        raise InputError(f"{where}: holds no ModelMixedInput; expected a checkpoint of {_OF}")
    names, parts = _parts(model, where)
    try:
        arrays = model.tensors()
        net = _config(model, arrays, where)
    except (LookupError, TypeError, RecursionError):
        raise InputError(f"{where}: its modules are not laid out as a transformer of {_OF}") from None
    known = built_articulation(robot) if has_simulator(robot) else None
    dynamics = NerdDynamics(robot.spec, net, _frames(path), parts, known, robot.name)
    _fill(dynamics, model, names, arrays, where)
    return dynamics.requires_grad_(False).eval()


def _parts(model: InertObject, where: str) -> tuple[list[str], tuple[Part, ...]]:
    """Return the inputs of a frame: their names in the file, and in `NerdDynamics`."""
    names = model.get("low_dim_input_names")
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise InputError(f"{where}: does not say what its inputs are; expected a checkpoint of {_OF}")
    other = [name for name in names if name not in _PARTS]
    if other:
        raise InputError(
            f"{where}: sees {choices(other)}, contact points and base of the authors' simulator; valid: networks of "
            f"{choices(_PARTS)} alone, as the cartpole's"
        )
    return names, tuple(_PARTS[name] for name in names)


def _config(model: InertObject, arrays: Mapping[str, Tensor], where: str) -> NerdNetConfig:
    modules = model.modules()
    gpt = modules.get("transformer_model")
    if gpt is None or "rnn" in modules:
        raise InputError(f"{where}: its network is no transformer; valid: a transformer")
    if any(name.startswith("encoders.") for name in arrays):
        raise InputError(f"{where}: its inputs pass through layers of an encoder; valid: none")
    weight = take(arrays, "transformer_model.transformer.wte.weight", where, _OF)
    positions = take(arrays, "transformer_model.transformer.wpe.weight", where, _OF)
    block = re.compile(r"transformer_model\.transformer\.h\.(\d+)\.")
    depth = len({match[1] for name in arrays if (match := block.match(name))})
    head = [take(arrays, name, where, _OF) for name in _head(arrays, "weight")]
    attention = gpt.modules()["transformer"].modules()["h"].modules()["0"].modules()["attn"]
    plain = {
        "inputs": weight.shape[1], "outputs": head[-1].shape[0], "width": weight.shape[0], "depth": depth,
        "heads": attention.get("n_head"), "positions": positions.shape[0],
        "head": [len(layer) for layer in head[:-1]], "activation": _activation(modules["model"], where),
        "bias": "transformer_model.transformer.h.0.attn.c_attn.bias" in arrays,
    }  # fmt: skip
    return from_dict(plain, NerdNetConfig, where)


def _activation(head: InertObject, where: str) -> str:
    body = head.modules()["feature_net"].modules()["body"].modules().values()
    names = {one.kind.rpartition(".")[2].lower() for one in body} - {"linear"}
    if len(names) != 1:
        raise InputError(f"{where}: its head has {choices(sorted(names)) or 'no activation'}; valid: one activation")
    return names.pop()


def _head(arrays: Mapping[str, Tensor], what: str) -> list[str]:
    """Return the names of the head's layers, in order."""
    pattern = re.compile(rf"model\.feature_net\.body\.(\d+)\.{what}")
    hidden = sorted((int(match[1]), name) for name in arrays if (match := pattern.fullmatch(name)))
    return [*(name for _, name in hidden), f"model.output_net.{what}"]


def _frames(path: Path) -> int:
    """Return the number of frames that the network reads according to its cfg.yaml (10 without one)."""
    beside = path.resolve().parent.parent / "cfg.yaml"
    plain = read_plain(beside) if beside.is_file() else {}
    environment = plain.get("env", {}) if isinstance(plain, dict) else {}
    solver = environment.get("neural_solver_cfg") or environment.get("neural_integrator_cfg") or {}
    for name, valid in _SOLVER.items():
        if name in solver and solver[name] not in valid:
            raise InputError(f"{beside}: {name} is {solver[name]!r}; valid: {choices(str(one) for one in valid)}")
    frames = solver.get("num_states_history", _FRAMES)
    if not isinstance(frames, int) or frames < 1:
        raise InputError(f"{beside}: num_states_history is {frames!r}; valid: at least 1")
    return frames


def _fill(
    dynamics: NerdDynamics, model: InertObject, names: list[str], arrays: Mapping[str, Tensor], where: str
) -> None:
    """Copy weights and statistics into a network."""
    net = dynamics.net
    if dynamics.window > net.config.positions:
        raise InputError(f"{where}: has {net.config.positions} positions, and sees {dynamics.window} frames")
    inputs = model.get("input_rms") if model.get("normalize_input") else None
    outputs = model.get("output_rms") if model.get("normalize_output") else None
    if not isinstance(inputs, Mapping) or not isinstance(outputs, InertObject):
        raise InputError(f"{where}: holds no statistics of inputs and outputs; expected a checkpoint of {_OF}")
    gpt = "transformer_model.transformer."
    theirs = {
        "embed.weight": f"{gpt}wte.weight", "embed.bias": f"{gpt}wte.bias", "positions": f"{gpt}wpe.weight",
        "norm.weight": f"{gpt}ln_f.weight", "norm.bias": f"{gpt}ln_f.bias",
        "project.weight": "transformer_model.lm_head.weight",
    }  # fmt: skip
    for depth in range(net.config.depth):
        for name, ours in _BLOCKS.items():
            for what in ("weight", "bias"):
                theirs[f"blocks.{depth}.{ours}.{what}"] = f"{gpt}h.{depth}.{name}.{what}"
    head = [name.removesuffix(".weight") for name in net.head.state_dict() if name.endswith(".weight")]
    for what in ("weight", "bias"):
        theirs |= {f"head.{ours}.{what}": name for ours, name in zip(head, _head(arrays, what), strict=True)}
    arrays_by_name = {
        **{ours: take(arrays, theirs[ours], where, _OF) for ours in dict(net.named_parameters())},
        **{f"input_{ours}": torch.cat([_statistic(inputs.get(name), part, where) for name in names])
           for ours, part in (("mean", "mean"), ("variance", "var"))},
        "output_mean": _statistic(outputs, "mean", where), "output_variance": _statistic(outputs, "var", where),
    }  # fmt: skip
    if any(bool((arrays_by_name[name] < 0).any()) for name in ("input_variance", "output_variance")):
        raise InputError(f"{where}: has negative variances")
    try:
        net.load_state_dict(arrays_by_name)
    except RuntimeError as error:
        raise InputError(f"{where}: {str(error).splitlines()[-1].strip()}") from None


def _statistic(rms: Any, name: str, where: str) -> Tensor:
    value = tensor_of(rms.get(name)) if isinstance(rms, InertObject) else None
    if value is None or value.ndim != 1 or not bool(value.isfinite().all()):
        raise InputError(f"{where}: holds no {name} of its inputs or outputs; expected a checkpoint of {_OF}")
    return value.float()
