# SPDX-License-Identifier: Apache-2.0
"""Models (one frame, with the memory as input and output) and policies as ONNX files, for runtimes without Python."""

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from neurodyn.core.description.spec import StateSpec
from neurodyn.core.errors import InputError
from neurodyn.dynamics.batch import State
from neurodyn.dynamics.control import control_of
from neurodyn.dynamics.ensemble import deviation
from neurodyn.dynamics.interface import Dynamics
from neurodyn.dynamics.kinds import KindOperation
from neurodyn.dynamics.neural.base_prediction import BasePrediction
from neurodyn.dynamics.neural.model import NeuralDynamics
from neurodyn.dynamics.world_model.model import WorldCarry, WorldModel
from neurodyn.geometry import rotation
from neurodyn.multibody.trace import Graph
from neurodyn.multibody.trace.source import live_nodes
from neurodyn.nets.onnx_file import write_onnx
from neurodyn.nets.predictor import StreamingPredictor
from neurodyn.policy.artifact import PolicyConfig, PolicyNetwork, load_policy, require_unprivileged

EXAMPLES = 8
"""Number of worlds in the example inputs."""


@dataclass(frozen=True)
class OnnxFrame:
    """One frame of a model as a torch module.

    Attributes:
        module: Maps the inputs to a tuple of the outputs.
        inputs: Names and examples of the inputs, worlds first.
        outputs: Names of the outputs.
        before: ONNX graph whose outputs are appended to the module's inputs; None for no graph.
        functions: ONNX graphs of symbolic operators of the module; see `write_onnx`.
        reference: Module to compare the file with; None for `module`.
    """

    module: nn.Module
    inputs: dict[str, Tensor]
    outputs: tuple[str, ...]
    before: Any = None
    functions: Mapping[str, Callable[[str], Any]] | None = None
    reference: nn.Module | None = None


def export_model(model: Dynamics, path: Path) -> float:
    """Write a model as an ONNX file, verified against ONNX Runtime.

    The file maps `q`, `qd`, `control` (and `channels` of a world model) and the memory at the start of a frame to their
    values at its end; the initial memory is zero. Gravity and ground are the model's own. The metadata hold the names
    and units of the columns, the time step, and the robot.

    Returns:
        Largest difference between file and model, relative to the spread of the outputs.

    Raises:
        InputError: Part of the model has no ONNX form, a package is missing, or the file cannot be written.
    """
    frame: OnnxFrame = ONNX_FRAMES.of(model.kind, f"export of {model.spec.robot!r}")(model)
    return write_onnx(
        path, frame.module, list(frame.inputs.values()), inputs=list(frame.inputs), outputs=frame.outputs,
        metadata=describe(model, frame), before=frame.before, functions=frame.functions, reference=frame.reference,
    )  # fmt: skip


def describe(model: Dynamics, frame: OnnxFrame) -> dict[str, Any]:
    """Return the metadata of a model's file: names in order, units, time step [s], memory shapes, and any caveat."""
    spec = model.spec
    memory = {name: list(x.shape[1:]) for name, x in frame.inputs.items() if f"{name}_next" in frame.outputs[2:]}
    return {
        "kind": model.kind,
        **({"caveat": model.caveat} if model.caveat else {}),
        "robot": spec.robot,
        "dt": spec.dt,
        "q_names": list(spec.q_names),
        "q_units": list(spec.q_units),
        "qd_names": list(spec.qd_names),
        "qd_units": list(spec.qd_units),
        "control_names": list(spec.controls),
        "control_kind": spec.control_kind,
        "control_units": list(spec.control_units),
        "channel_names": [channel.name for channel in spec.channels],
        "channel_units": [channel.unit for channel in spec.channels],
        "contact_names": list(spec.contacts),
        "continuous": [name for name, turns in zip(spec.q_names, spec.continuous, strict=True) if turns],
        "memory": memory,
    }


_OPERATIONS: dict[str, Callable[..., Any]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": operator.truediv, "neg": operator.neg,
    "sqrt": torch.sqrt, "sin": torch.sin, "cos": torch.cos,
}  # fmt: skip


def _evaluate(graph: Graph, nodes: Sequence[int], inputs: Mapping[str, Sequence[Tensor]]) -> list[Any]:
    """Return the values of a graph's nodes, with constants as numbers."""
    values: dict[int, Any] = {}
    for index in live_nodes(graph, nodes):
        kind, *rest = graph.nodes[index]
        if kind == "constant":
            values[index] = rest[0]
        elif kind == "input":
            values[index] = inputs[rest[0]][rest[1]]
        else:
            values[index] = _OPERATIONS[kind](*(values[i] for i in rest))
    return [values[index] for index in nodes]


class NeuralFrame(nn.Module):
    """One frame of neural dynamics in its own environment; with members, their mean and standard deviation."""

    def __init__(self, model: NeuralDynamics) -> None:
        super().__init__()
        self.encoding = model.encoding
        self.environment = model.home
        self.predictor = StreamingPredictor(model.predictor)
        self.members = model.members

    def outputs(self) -> tuple[str, ...]:
        """Return the names of the outputs."""
        known = ("epistemic",) if self.members > 1 else ()
        return ("q_next", "qd_next", *known, *(f"{name}_next" for name in self.predictor.memory_names))

    def forward(self, q: Tensor, qd: Tensor, control: Tensor, *memory: Tensor) -> tuple[Tensor, ...]:
        """Predict one frame from q [worlds, nq], qd [worlds, nv], control [worlds, nu], and the memory."""
        base_prediction = self.encoding.predict_base(q, qd, control, self.environment)
        return self._after(base_prediction, self.encoding.encode(base_prediction, control, self.environment), memory)

    def _after(self, base_prediction: BasePrediction, inputs: Tensor, memory: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        output, *memory_next = self.predictor(inputs if self.members == 1 else inputs[None], *memory)
        state = self.decode(base_prediction, output if self.members == 1 else output.mean(0))
        if self.members == 1:
            return (state.q, state.qd, *memory_next)
        changes = torch.stack([self.changes(base_prediction, one) for one in output])
        each = self.encoding.decode(base_prediction.repeat(self.members), changes)
        return (state.q, state.qd, deviation(torch.cat([each.q, each.qd], -1)), *memory_next)

    def decode(self, base_prediction: BasePrediction, output: Tensor) -> State:
        """Return the state after the frame from the network's outputs."""
        return self.encoding.decode(base_prediction, self.changes(base_prediction, output))

    def changes(self, base_prediction: BasePrediction, output: Tensor) -> Tensor:
        """Return dqd and r from the network's outputs."""
        return self.encoding.changes(base_prediction, output, self.environment)


class PlainFrame(NeuralFrame):
    """`NeuralFrame` without Warp kernels.

    A base motion is computed outside the module, which takes the predicted q and qd as inputs after the memory. Contact
    distances are to a plane; other grounds raise an InputError.
    """

    def __init__(self, model: NeuralDynamics) -> None:
        super().__init__(model)
        impulses, self._graph = self.encoding.impulses, Graph()
        if impulses is not None:
            after = impulses.response(impulses.sizes.inputs(self._graph))[model.spec.nq :]
            self._changed = [self._graph.lift(x).index for x in after]
        self._contacts = None
        contact, layout = self.encoding.config.contact, self.encoding.layout
        if contact is not None and layout is not None:
            from neurodyn.geometry.contact_features import PlaneContacts
            from neurodyn.multibody.contacts.held_ground import plane_numbers  # loads Warp

            plane = plane_numbers(self.environment.ground)
            if plane is None:
                raise InputError(
                    f"model of {model.spec.robot!r}: its ground is no plane, and has no form in ONNX or C; valid: "
                    "models whose own ground is one plane"
                )
            pairs = zip(layout.contact_points, contact.margins, strict=True)
            sight = [(point.radius, margin, model.spec.dt) for point, margin in pairs]
            self._contacts = PlaneContacts(layout, sight, [plane])

    def forward(self, q: Tensor, qd: Tensor, control: Tensor, *rest: Tensor) -> tuple[Tensor, ...]:
        """Predict one frame; see `NeuralFrame.forward`."""
        ahead = rest[-2:] if self.encoding.starts_ahead else ()
        start = self.base_prediction(q, qd, *ahead)
        return self._after(start, self.encode(start, control), rest[: len(rest) - len(ahead)])

    def base_prediction(self, q: Tensor, qd: Tensor, *ahead: Tensor) -> BasePrediction:
        """Return the state that the network corrects; `ahead` holds q and qd after the base motion, if any."""
        start = BasePrediction(ahead[0], ahead[1], ahead[1] - qd, start=q) if ahead else BasePrediction(q, qd)
        return self.encoding.with_view(start, self.environment)

    def encode(self, start: BasePrediction, control: Tensor) -> Tensor:
        """Return the network's inputs."""
        contacts = None if self._contacts is None else self._contact_features
        return self.encoding.encode(start, control, self.environment, contacts)

    def changes(self, base_prediction: BasePrediction, output: Tensor) -> Tensor:
        """Return dqd and r from the network's outputs."""
        impulses = self.encoding.impulses
        if impulses is None:
            return output
        points = None if self._contacts is None else self._contacts.measure(base_prediction.q, base_prediction.qd)
        return impulses.from_points(base_prediction, output, points, self._velocity_change)

    def _velocity_change(self, q: Tensor, points: Tensor, pushes: Tensor, joints: Tensor) -> Tensor:
        """`Impulses.velocity_change` as elementary operations."""
        held = torch.cat([points, pushes], -1).flatten(-2)
        columns = {name: x.unbind(-1) for name, x in (("x", q), ("u", joints), ("h", held))}
        changes = _evaluate(self._graph, self._changed, columns)
        return torch.stack([x + torch.zeros_like(q[..., 0]) for x in changes], -1)

    def _contact_features(self, q: Tensor, qd: Tensor) -> Tensor:
        assert self._contacts is not None
        of_objects = self.encoding.object_contact
        if of_objects is None:
            return self._contacts(q, qd)
        return torch.cat([self._contacts(q, qd), of_objects.of_points(q, qd, *self._contacts.points(q, qd))], -1)


class _SymbolicFrame(PlainFrame):
    """`PlainFrame` with the response to impulses as one symbolic operator: torch would take minutes to export it."""

    RESPONSE = "neurodyn::Response"

    def functions(self) -> dict[str, Callable[[str], Any]]:
        """Return the graphs of the symbolic operators."""
        impulses = self.encoding.impulses
        if impulses is None:
            return {}
        from neurodyn.multibody.trace.onnx import function_graph  # loads Warp

        sizes = impulses.sizes
        widths = {"x": self.encoding.spec.nq, "u": sizes.control, "h": sizes.held}
        return {self.RESPONSE: lambda prefix: function_graph(self._graph, self._changed, widths, prefix)}

    def _velocity_change(self, q: Tensor, points: Tensor, pushes: Tensor, joints: Tensor) -> Tensor:
        held = torch.cat([points, pushes], -1).flatten(-2)
        shape = [q.shape[0], len(self._changed)]
        return torch.onnx.ops.symbolic(self.RESPONSE, [q, joints, held], dtype=q.dtype, shape=shape, version=1)


def neural_frame(model: NeuralDynamics) -> OnnxFrame:
    """Return a frame of neural dynamics, or raise an InputError if ground or base has no ONNX form."""
    module = _SymbolicFrame(model)
    names = module.predictor.memory_names
    spec = model.spec
    state = {"q": _positions(spec), "qd": torch.randn(EXAMPLES, spec.nv), "control": torch.randn(EXAMPLES, spec.nu)}
    memory = dict(zip(names, module.predictor.begin(EXAMPLES), strict=True))
    motion = model.encoding.motion
    before = None
    if motion is not None:
        from neurodyn.multibody.trace.onnx import frame_graph  # loads Warp

        before = frame_graph(motion.constant(model.home), spec.nq)
    return OnnxFrame(
        module, {**state, **memory}, module.outputs(), before=before, functions=module.functions(),
        reference=NeuralFrame(model),
    )  # fmt: skip


def _positions(spec: StateSpec) -> Tensor:
    """Return example positions with unit quaternions, shape [EXAMPLES, nq]."""
    q = torch.randn(EXAMPLES, spec.nq)
    for joint, place in zip(spec.joints, spec.places, strict=True):
        if not joint.scalar:
            q[:, place.quaternion] = rotation.normalise(q[:, place.quaternion])
    return q


class WorldFrame(nn.Module):
    """One frame of a world model: the mean of its members, and its uncertainty."""

    def __init__(self, model: WorldModel) -> None:
        super().__init__()
        self.model = model

    def outputs(self, memory: tuple[str, ...]) -> tuple[str, ...]:
        """Return the names of the outputs."""
        spec = self.model.spec
        offered = [("channels_next", spec.nx), ("contacts", spec.nc), ("termination", self.model.terminates)]
        names = ["q_next", "qd_next", *(name for name, there in offered if there), "epistemic", "aleatoric"]
        return (*names, *(f"{name}_next" for name in memory))

    def forward(self, q: Tensor, qd: Tensor, control: Tensor, *others: Tensor) -> tuple[Tensor, ...]:
        """Predict one frame; `others` holds the channels, if the model has any, and the hidden states."""
        model, spec = self.model, self.model.spec
        channels, memory = (others[0], others[1:]) if spec.nx else (None, others)
        hidden = tuple(h.transpose(0, 1) for h in memory)  # members come first within the model
        state = State(q, qd, channels)
        carry, step = model.step(WorldCarry(hidden, None), state, control_of(spec, control))
        then = [step.state.q, step.state.qd, step.state.channels, step.contacts, step.termination]
        known = [x for x in (*then, step.epistemic, step.aleatoric) if x is not None]
        return (*known, *(h.transpose(0, 1) for h in carry.hidden))


def world_frame(model: WorldModel) -> OnnxFrame:
    """Return a frame of a world model."""
    spec, module = model.spec, WorldFrame(model)
    x = model.state_scale * torch.randn(EXAMPLES, model.observation.size)
    q, qd, channels = model.observation.split(x)
    given = {"q": q, "qd": qd, "control": torch.randn(EXAMPLES, spec.nu)}
    if channels is not None:
        given["channels"] = channels
    hidden = model.net.begin(EXAMPLES, x)
    memory = {f"hidden_{layer}": h.transpose(0, 1).contiguous() for layer, h in enumerate(hidden)}
    return OnnxFrame(module, {**given, **memory}, module.outputs(tuple(memory)))


ONNX_FRAMES: KindOperation[Callable[[Any], OnnxFrame]] = KindOperation(
    "frame of ONNX", **{"neural": neural_frame, "world-model": world_frame}
)
"""From a model to one frame of it for ONNX, by kind."""


class PolicyFrame(nn.Module):
    """A policy that returns the raw and the scaled action; memory goes in and out."""

    scale: Tensor

    def __init__(self, network: PolicyNetwork, config: PolicyConfig) -> None:
        super().__init__()
        self.network = network
        self.register_buffer("scale", torch.tensor(config.action_scale))

    def forward(self, observation: Tensor, *memory: Tensor) -> tuple[Tensor, ...]:
        """Return the action, and the action times its scale, both [worlds, actions], and the memory [worlds, width]."""
        if not memory:
            action = self.network(observation)
            return action, action * self.scale
        action, after = self.network.remember(observation, tuple(h[None] for h in memory))
        return action, action * self.scale, *(h[0] for h in after)


def export_policy(folder: str | Path, path: Path) -> float:
    """Write a policy as an ONNX file, verified against ONNX Runtime.

    The file maps `observation` to `action` (the task's input, and part of later observations) and `scaled_action` (in
    the units named in its metadata). For a policy with a history, `observation` is the last frames, newest first, the
    first one repeated at the start of an episode; for a recurrent one, `memory` goes in and out, zero at the start.

    Args:
        folder: Folder of the policy, or "pretrained-policy:NAME".
        path: File to write.

    Returns:
        Largest difference between file and policy, relative to the spread of the outputs.

    Raises:
        InputError: There is no policy, a package is missing, or the file cannot be written.
    """
    config, network = load_policy(folder)
    require_unprivileged(config, str(folder))
    # Example inputs are spread like observations, so that every output varies.
    examples = network.mean + network.deviation * torch.randn(EXAMPLES, len(network.mean))
    count = 0 if network.memory is None else (1 if config.network.recurrent == "gru" else 2)
    memory = [f"memory_{number}" for number in range(count)]
    return write_onnx(
        path,
        PolicyFrame(network, config),
        [examples, *(torch.randn(EXAMPLES, config.network.memory) for _ in memory)],
        inputs=["observation", *memory],
        outputs=["action", "scaled_action", *(f"{name}_next" for name in memory)],
        metadata={
            "kind": "policy",
            "task": config.task,
            "robot": config.robot,
            "dt": config.dt,
            "observe": config.observe,
            "observation_names": list(config.observations),
            "history": config.network.history,
            "history_has_actions": config.network.with_actions,
            "memory": {name: [config.network.memory] for name in memory},
            "action_names": list(config.actions),
            "action_scale": list(config.action_scale),
            "action_meaning": config.action_meaning,
        },
    )
