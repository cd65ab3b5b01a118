# SPDX-License-Identifier: Apache-2.0
"""Models of every kind, from run directories."""

from pathlib import Path

from neurodyn.core import artifacts
from neurodyn.core.errors import InputError
from neurodyn.dynamics.hybrid.artifact import load_hybrid
from neurodyn.dynamics.hybrid.model import HybridDynamics
from neurodyn.dynamics.neural.artifact import KINDS
from neurodyn.dynamics.neural.artifact import load as load_neural
from neurodyn.dynamics.neural.model import NeuralDynamics
from neurodyn.dynamics.world_model.artifact import load_world_model
from neurodyn.dynamics.world_model.model import WorldModel

Model = NeuralDynamics | HybridDynamics
"""Dynamics of a simulator's state that were learned or identified."""


def load(run: str | Path, *, device: str = "cpu") -> Model | WorldModel:
    """Load the model of a run directory, or one that ships with the package, with frozen weights.

    Args:
        run: A run directory, or "pretrained:NAME".
        device: Torch device of the model.

    Raises:
        InputError: There is no such run, or its files are missing, truncated or of another version.
    """
    kind = run_field(run, "kind")
    if kind == "world-model":
        return load_world_model(run, device=device)
    return load_neural(run, device=device) if kind == "neural" else load_hybrid(run).to(device)


def load_simulator(run: str | Path, *, device: str = "cpu") -> Model:
    """Load a model that predicts what a simulator has as its state; arguments and errors as of `load`.

    Raises:
        InputError: It is a world model, which predicts what a log measures.
    """
    model = load(run, device=device)
    if isinstance(model, WorldModel):
        raise InputError(f"{run}: holds a world model, which knows what its log measures; valid here: {_SIMULATING}")
    return model


_SIMULATING = "a neural or hybrid model"


def robot_of(run: str | Path) -> str:
    """Return name or path of the robot that a run's model was made for.

    Raises:
        InputError: There is no such run, or its files are malformed.
    """
    return run_field(run, "robot")


def run_field(run: str | Path, name: str) -> str:
    """Return "kind" or "robot" of a run's model.

    Raises:
        InputError: There is no such run, or its config.json is malformed.
    """
    path = artifacts.resolve_run(run) / "model" / "config.json"
    config = artifacts.read_json(path)
    kind, value = (config.get("kind"), config.get(name)) if isinstance(config, dict) else (None, None)
    if kind not in KINDS:
        raise InputError(f"{path}: kind is {kind!r}; valid: {' or '.join(KINDS)}")
    if not isinstance(value, str):
        raise InputError(f"{path}: {name} is {value!r}; valid: a text")
    return value
