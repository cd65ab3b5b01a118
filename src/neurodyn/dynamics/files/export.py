# SPDX-License-Identifier: Apache-2.0
"""Models as ONNX files: one frame, with the memory as inputs and outputs, for runtimes without Python."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from neurodyn.core.description.spec import StateSpec
from neurodyn.dynamics.interface import Dynamics
from neurodyn.dynamics.kinds import KINDS
from neurodyn.nets.onnx_file import write_onnx

EXAMPLES = 8
"""Worlds in the examples of a frame's inputs."""


@dataclass(frozen=True)
class Frame:
    """A frame as a module of tensors.

    Attributes:
        module: From the inputs to a tuple of the outputs.
        inputs: Names and examples of the inputs, worlds first.
        outputs: Names of the outputs.
        before: An ONNX graph whose outputs the module takes after the inputs; None for no more than those.
        reference: What the file is compared with; None for the module.
    """

    module: nn.Module
    inputs: dict[str, Tensor]
    outputs: tuple[str, ...]
    before: Any = None
    reference: nn.Module | None = None


def export_model(model: Dynamics, path: Path) -> float:
    """Write a model as an ONNX file, after a check that ONNX Runtime computes the same from it.

    The file maps `q`, `qd`, `control` (of a world model also `channels`) and the memory at the start of a frame to
    those at its end; a memory begins as zeros. Gravity and ground are those that the model is at home in. Its metadata
    name the columns in order, their units, the frame's length, and what the model is of.

    Returns:
        Largest difference between the file and the model, over the spread of the outputs.

    Raises:
        InputError: Part of the model has no form in ONNX, a package is missing, or the file cannot be written.
    """
    frame: Frame = KINDS[model.kind].part("export", f"export of {model.spec.robot!r}")(model)
    return write_onnx(
        path,
        frame.module,
        list(frame.inputs.values()),
        inputs=list(frame.inputs),
        outputs=frame.outputs,
        metadata=describe(model.spec, model.kind, frame),
        before=frame.before,
        reference=frame.reference,
    )


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
