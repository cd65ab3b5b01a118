# SPDX-License-Identifier: Apache-2.0
"""The model of a run as its forecasts along a log start: an identified one as its held-out forecasts started."""

import torch

from neurodyn.core.artifacts import read_json, resolve_run
from neurodyn.core.config import read_config
from neurodyn.dynamics.artifact import load_simulator
from neurodyn.dynamics.base import LearnedDynamics
from neurodyn.dynamics.hybrid.model import HybridDynamics
from neurodyn.identify.noise import Noise
from neurodyn.identify.settings import IdentificationRecord
from neurodyn.identify.starts import FromPast


def as_evaluated(run: str) -> LearnedDynamics | FromPast:
    """Load the model of a run; one that was identified with starts from the past takes them from there again.

    Raises:
        InputError: There is no such run, its files are damaged, or its model is a world model.
    """
    model = load_simulator(run)
    folder = resolve_run(run)
    if not isinstance(model, HybridDynamics) or not (folder / "identification.json").is_file():
        return model
    found = read_json(folder / "identification.json")
    if found["held_out"]["start"] == "logged":
        return model
    context = read_config(folder / "config.yaml", IdentificationRecord).settings.context
    sizes = torch.tensor(list(found["noise"].values()), dtype=torch.float64)
    return FromPast(model, context, Noise(*sizes.chunk(2)))


def without_past(model: LearnedDynamics | FromPast) -> LearnedDynamics:
    """Return the model itself, for roll-outs that begin in a state."""
    return model.dynamics if isinstance(model, FromPast) else model
