# SPDX-License-Identifier: Apache-2.0
"""Models as ONNX files: one frame, with the memory as inputs and outputs, for runtimes without Python."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from neurodyn.core.errors import InputError
from neurodyn.core.spec import StateSpec
from neurodyn.dynamics.hybrid.model import HybridDynamics
from neurodyn.dynamics.interface import Control, State
from neurodyn.dynamics.loading import Model
from neurodyn.dynamics.neural.model import NeuralDynamics
from neurodyn.dynamics.world_model.model import WorldCarry, WorldModel
from neurodyn.geometry import rotation
from neurodyn.nets.onnx_file import write_onnx
from neurodyn.nets.streaming import StreamingPredictor

_EXAMPLES = 8


@dataclass(frozen=True)
class Frame:
    """A frame as a module of tensors.

    Attributes:
        module: From the inputs to a tuple of the outputs.
        inputs: Names and examples of the inputs, worlds first.
        outputs: Names of the outputs.
    """

    module: nn.Module
    inputs: dict[str, Tensor]
    outputs: tuple[str, ...]


class NeuralFrame(nn.Module):
    """One frame of neural dynamics: q, qd, control and the memory, one frame later."""

    def __init__(self, model: NeuralDynamics) -> None:
        super().__init__()
        self.encoding = model.encoding
        self.predictor = StreamingPredictor(model.predictor)

    def forward(self, q: Tensor, qd: Tensor, control: Tensor, *memory: Tensor) -> tuple[Tensor, ...]:
        """Predict one frame; shapes [worlds, nq], [worlds, nv], [worlds, nu]."""
        base_prediction = self.encoding.predict_base(q, qd, control)
        output, *memory_next = self.predictor(self.encoding.encode(base_prediction, control), *memory)
        state = self.encoding.decode(base_prediction, output)
        return (state.q, state.qd, *memory_next)


class WorldFrame(nn.Module):
    """One frame of a world model: the state by the mean of its members, and what they know about it."""

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
        """Predict one frame; `others` are the channels, where there are any, and the hidden states."""
        model, spec = self.model, self.model.spec
        channels, memory = (others[0], others[1:]) if spec.nx else (None, others)
        hidden = tuple(h.transpose(0, 1) for h in memory)  # members come first within the model
        state = State(q, qd, channels)
        given = Control(target=control) if spec.control_kind == "target" else Control(torque=control)
        carry, step = model.step(WorldCarry(hidden, None), state, given)
        then = [step.state.q, step.state.qd, step.state.channels, step.contacts, step.termination]
        known = [x for x in (*then, step.epistemic, step.aleatoric) if x is not None]
        return (*known, *(h.transpose(0, 1) for h in carry.hidden))


def export_model(model: Model | WorldModel, path: Path) -> float:
    """Write a model as an ONNX file, after a check that ONNX Runtime computes the same from it.

    The file maps `q`, `qd`, `control` (of a world model also `channels`) and the memory at the start of a frame to
    those at its end; a memory begins as zeros. Its metadata name the columns in order, their units, the frame's length,
    and what the model is of.

    Returns:
        Largest difference between the file and the model, over the spread of the outputs.

    Raises:
        InputError: Part of the model is compiled code that ONNX cannot hold, a package is missing, or the file cannot
            be written.
    """
    frame = model_frame(model)
    return write_onnx(
        path,
        frame.module,
        list(frame.inputs.values()),
        inputs=list(frame.inputs),
        outputs=frame.outputs,
        metadata=describe(model.spec, model.kind, frame),
    )


def model_frame(model: Model | WorldModel) -> Frame:
    """Return a frame of a model; errors as of `export_model`."""
    if isinstance(model, WorldModel):
        return _world_frame(model)
    if isinstance(model, HybridDynamics):
        raise InputError(
            f"hybrid model of {model.spec.robot!r}: its frame is compiled code, which ONNX cannot hold; valid: neural "
            "models without contact points, world models, policies"
        )
    return _neural_frame(model)


def _neural_frame(model: NeuralDynamics) -> Frame:
    config = model.encoding.config
    compiled = [
        name
        for name, there in (("contact points", model.contact_points), ("free motion", config.free_motion))
        if there is not None
    ]
    if compiled:
        raise InputError(
            f"model of {model.spec.robot!r}: its {' and '.join(compiled)} are compiled code, which ONNX cannot hold; "
            "valid: models without them (a bolted robot without ground, free_motion: false), world models, policies"
        )
    module = NeuralFrame(model)
    names = module.predictor.memory_names
    spec = model.spec
    state = {
        "q": _positions(spec),
        "qd": torch.randn(_EXAMPLES, spec.nv),
        "control": torch.randn(_EXAMPLES, spec.nu),
    }
    memory = dict(zip(names, module.predictor.begin(_EXAMPLES), strict=True))
    outputs = ("q_next", "qd_next", *(f"{name}_next" for name in names))
    return Frame(module, {**state, **memory}, outputs)


def _world_frame(model: WorldModel) -> Frame:
    spec, module = model.spec, WorldFrame(model)
    x = model.state_scale * torch.randn(_EXAMPLES, model.observation.size)
    q, qd, channels = model.observation.split(x)
    given = {"q": q, "qd": qd, "control": torch.randn(_EXAMPLES, spec.nu)}
    if channels is not None:
        given["channels"] = channels
    hidden = model.net.begin(_EXAMPLES, x)
    memory = {f"hidden_{layer}": h.transpose(0, 1).contiguous() for layer, h in enumerate(hidden)}
    return Frame(module, {**given, **memory}, module.outputs(tuple(memory)))


def _positions(spec: StateSpec) -> Tensor:
    """Return example positions; quaternions have unit length."""
    q = torch.randn(_EXAMPLES, spec.nq)
    for joint, place in zip(spec.joints, spec.places, strict=True):
        if not joint.scalar:
            q[:, place.quaternion] = rotation.normalise(q[:, place.quaternion])
    return q


def describe(spec: StateSpec, kind: str, frame: Frame) -> dict[str, Any]:
    """Return the metadata of a model's file: names in order, units, the length of a frame, shapes of the memory."""
    memory = {name: list(x.shape[1:]) for name, x in frame.inputs.items() if f"{name}_next" in frame.outputs[2:]}
    return {
        "kind": kind,
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
