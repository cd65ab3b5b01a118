# SPDX-License-Identifier: Apache-2.0
"""Hybrid dynamics as files.

The free quantities are written as physical values, for readers, and as the raw numbers of `Parameters`, from which a
model is loaded exactly, without rounding or clipping at bounds.
"""

from typing import Literal

import msgspec
import torch
from torch import Tensor

from neurodyn.core.config import Config
from neurodyn.core.description.mechanism import Fingerprint, Mechanism
from neurodyn.core.description.parameter import Parameter
from neurodyn.core.description.scene import Scene
from neurodyn.core.description.sensors import Sensor
from neurodyn.core.description.spec import StateSpec
from neurodyn.core.errors import InputError
from neurodyn.data.training_range import TrainingRange
from neurodyn.dynamics.artifact import Artifact
from neurodyn.dynamics.hybrid.model import HybridDynamics
from neurodyn.multibody.engine import EngineConfig


class HybridConfig(Config, frozen=True):
    """Contents of config.json: everything but the identified numbers.

    Attributes:
        kind: Kind of dynamics.
        engine: Settings of the engine, including the blueprint.
        parameters: The free quantities, with their bounds and nominal values.
        robot: Name or path of the declaration that the model was identified for.
    """

    kind: Literal["hybrid"]
    engine: EngineConfig
    parameters: tuple[Parameter, ...]
    robot: str


class HybridSpec(Config, frozen=True):
    """Contents of spec.json: the system that the model describes.

    Attributes:
        state: Names, order, units and dt.
        mechanism: The tree of links, nominal.
        fingerprint: The articulation that it was taken from; None if unknown.
        scene: The default ground; None for free space.
        training_range: Range of motion in the data of the identification; None if unknown.
        sensors: Sensors that sit otherwise than declared, as the log told.
    """

    state: StateSpec
    mechanism: Mechanism
    fingerprint: Fingerprint | None = None
    scene: Scene | None = None
    training_range: TrainingRange | None = None
    sensors: dict[str, Sensor] = msgspec.field(default_factory=dict)


def build_hybrid(config: HybridConfig, spec: HybridSpec, *, threads: int = 1) -> HybridDynamics:
    """Build a model with nominal quantities and fresh weights; its worlds are split over `threads`."""
    model = HybridDynamics(
        spec.state, spec.mechanism, config.engine, config.parameters, spec.fingerprint, spec.scene,
        declaration=config.robot, threads=threads,
    )  # fmt: skip
    model.training_range, model.sensors = spec.training_range, spec.sensors
    return model


def describe(model: HybridDynamics) -> tuple[HybridConfig, HybridSpec]:
    """Return the contents of a model's files."""
    engine = msgspec.structs.replace(model.config, free=())
    config = HybridConfig(kind="hybrid", engine=engine, parameters=model.physical.specs, robot=model.declaration)
    spec = HybridSpec(
        state=model.spec, mechanism=model.mechanism, fingerprint=model.fingerprint, scene=model.scene,
        training_range=model.training_range, sensors=model.sensors,
    )  # fmt: skip
    return config, spec


def numbers(model: HybridDynamics) -> dict[str, Tensor]:
    """Return the identified and trained tensors."""
    return {"raw": model.physical.raw, "quantities": model.physical(), "weights": model.weights}


@torch.no_grad()
def restore(model: HybridDynamics, tensors: dict[str, Tensor]) -> None:
    """Load the tensors of a file into a model; an `InputError` if they do not fit or are not finite."""
    for name, own in numbers(model).items():
        if name not in tensors or tensors[name].shape != own.shape:
            raise InputError(f"{name!r} does not fit config.json beside it; valid: shape {list(own.shape)}")
        if not tensors[name].isfinite().all():
            raise InputError(f"{name!r} holds numbers that are not finite; valid: finite numbers")
    model.physical.raw.copy_(tensors["raw"])
    model.weights.copy_(tensors["weights"])
    if not torch.allclose(model.physical(), tensors["quantities"].double(), rtol=1e-6, atol=1e-9):
        raise InputError("quantities do not follow from the start and bounds in config.json beside it")


HYBRID = Artifact("hybrid", HybridConfig, HybridSpec, build_hybrid, describe, numbers, restore)
"""Files of hybrid dynamics."""
