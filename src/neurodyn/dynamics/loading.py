# SPDX-License-Identifier: Apache-2.0
"""Models of every kind, from run directories."""

from pathlib import Path

from neurodyn.core import artifacts
from neurodyn.core.errors import InputError
from neurodyn.dynamics.artifact import load as load_neural
from neurodyn.dynamics.hybrid import HybridDynamics
from neurodyn.dynamics.hybrid_artifact import load_hybrid
from neurodyn.dynamics.neural import NeuralDynamics

Model = NeuralDynamics | HybridDynamics
"""Dynamics that were learned or identified."""

KINDS = ("neural", "hybrid")


def load(run: str | Path, *, device: str = "cpu") -> Model:
    """Load the model of a run directory, or one that ships with the package, with frozen weights.

    Args:
        run: A run directory, or "pretrained:NAME".
        device: Torch device of the model.

    Raises:
        InputError: There is no such run, or its files are missing, truncated or of another version.
    """
    kind = run_field(run, "kind")
    return load_neural(run, device=device) if kind == "neural" else load_hybrid(run).to(device)


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
