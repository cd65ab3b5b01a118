# SPDX-License-Identifier: Apache-2.0
"""A world model as files: RUN/model/{model.safetensors, config.json, spec.json}."""

from pathlib import Path
from typing import Literal

from neurodyn.core import artifacts
from neurodyn.core.config import Config, to_dict
from neurodyn.core.spec import StateSpec
from neurodyn.dynamics.neural.artifact import load_weights, read_described
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


def save_world_model(run: Path, model: WorldModel, robot: str) -> None:
    """Write a world model into a run directory; each file replaces its predecessor atomically."""
    folder = run / "model"
    config = WorldModelConfig(kind="world-model", net=model.net.config, robot=robot, terminates=model.terminates)
    artifacts.write_tensors(folder / "model.safetensors", model.state_dict())
    artifacts.write_json(folder / "config.json", to_dict(config))
    artifacts.write_json(folder / "spec.json", to_dict(WorldModelSpec(state=model.spec)))


def read_world_model_config(run: str | Path) -> tuple[WorldModelConfig, WorldModelSpec]:
    """Read what a run directory says about its world model, without the weights.

    Raises:
        InputError: There is no such run, its files are malformed, or its model is of another kind.
    """
    return read_described(run, "world-model", WorldModelConfig, WorldModelSpec)


def load_world_model(run: str | Path, *, device: str = "cpu") -> WorldModel:
    """Load the world model of a run directory with frozen weights.

    Args:
        run: A run directory, or "pretrained:NAME".
        device: Torch device of the weights.

    Raises:
        InputError: There is no such run, or its files are missing, truncated or of another kind or version.
    """
    config, spec = read_world_model_config(run)
    model = WorldModel(spec.state, config.net, terminates=config.terminates)
    return load_weights(run, model, device)
