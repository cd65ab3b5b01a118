# SPDX-License-Identifier: Apache-2.0
"""World models as files."""

from typing import Literal

from neurodyn.core.config import Config
from neurodyn.core.description.spec import StateSpec
from neurodyn.data.training_range import TrainingRange
from neurodyn.dynamics.files.artifact import Artifact
from neurodyn.dynamics.world_model.model import WorldModel
from neurodyn.nets.ensemble import EnsembleConfig


class WorldModelConfig(Config, frozen=True):
    """Everything but the weights: what config.json holds.

    Attributes:
        kind: Kind of dynamics.
        net: The ensemble.
        robot: Name or path of the declaration that the model was trained for.
        terminates: Whether termination is predicted.
        own_bounds: As of `WorldModel`.
    """

    kind: Literal["world-model"]
    net: EnsembleConfig
    robot: str
    terminates: bool
    own_bounds: bool = False


class WorldModelSpec(Config, frozen=True):
    """What the model is a model of: what spec.json holds.

    Attributes:
        state: Names, order, units and dt of what the log measures.
        training_range: Range of motion in its training data; None where that is unknown.
        termination_shift: As of `WorldModel`.
    """

    state: StateSpec
    training_range: TrainingRange | None = None
    termination_shift: float = 0.0


def build_world_model(config: WorldModelConfig, spec: WorldModelSpec) -> WorldModel:
    """Build a world model with fresh weights."""
    model = WorldModel(
        spec.state, config.net, terminates=config.terminates, own_bounds=config.own_bounds, declaration=config.robot
    )
    model.training_range, model.termination_shift = spec.training_range, spec.termination_shift
    return model


def describe(model: WorldModel) -> tuple[WorldModelConfig, WorldModelSpec]:
    """Return what a world model's files say of it."""
    config = WorldModelConfig(
        kind="world-model", net=model.net.config, robot=model.declaration, terminates=model.terminates,
        own_bounds=model.own_bounds,
    )  # fmt: skip
    known = WorldModelSpec(
        state=model.spec, training_range=model.training_range, termination_shift=model.termination_shift
    )
    return config, known


WORLD_MODEL = Artifact("world-model", WorldModelConfig, WorldModelSpec, build_world_model, describe)
"""Files of world models."""
