# SPDX-License-Identifier: Apache-2.0
"""World models as files."""

from typing import Literal

from neurodyn.core.config import Config
from neurodyn.core.spec import StateSpec
from neurodyn.dynamics.artifact import Artifact
from neurodyn.dynamics.world_model.model import WorldModel
from neurodyn.nets.ensemble import EnsembleConfig


class WorldModelConfig(Config, frozen=True):
    """Everything but the weights: what config.json holds.

    Attributes:
        kind: Kind of dynamics.
        net: The ensemble.
        robot: Name or path of the declaration that the model was trained for.
        terminates: Whether termination is predicted.
    """

    kind: Literal["world-model"]
    net: EnsembleConfig
    robot: str
    terminates: bool


class WorldModelSpec(Config, frozen=True):
    """What the model is a model of: what spec.json holds.

    Attributes:
        state: Names, order, units and dt of what the log measures.
    """

    state: StateSpec


def build_world_model(config: WorldModelConfig, spec: WorldModelSpec) -> WorldModel:
    """Build a world model with fresh weights."""
    return WorldModel(spec.state, config.net, terminates=config.terminates, declaration=config.robot)


def describe(model: WorldModel) -> tuple[WorldModelConfig, WorldModelSpec]:
    """Return what a world model's files say of it."""
    net, terminates = model.net.config, model.terminates
    config = WorldModelConfig(kind="world-model", net=net, robot=model.declaration, terminates=terminates)
    return config, WorldModelSpec(state=model.spec)


WORLD_MODEL = Artifact("world-model", WorldModelConfig, WorldModelSpec, build_world_model, describe)
"""Files of world models."""
