# SPDX-License-Identifier: Apache-2.0
"""Evaluate the world model of a run with the defaults that suit it: on the test episodes of the log it learned from."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from neurodyn.core.artifacts import resolve_run
from neurodyn.core.config import read_config
from neurodyn.core.errors import InputError
from neurodyn.data.store import Split, Store
from neurodyn.dynamics.artifact import robot_of
from neurodyn.dynamics.world_model.artifact import WORLD_MODEL
from neurodyn.evaluate.world_model import evaluate_world_model
from neurodyn.learn.world_model.train import WorldRunConfig, require_log
from neurodyn.robots import load as load_robot
from neurodyn.robots.data import open_measured_data

_SPLITS = {"train": Split.TRAIN, "validation": Split.VALIDATION, "test": Split.TEST}


def evaluate_world_run(
    run: str,
    *,
    horizon: int | None = None,
    rollouts: int | None = None,
    seed: int = 500,
    data: str | None = None,
    split: str | None = None,
    beside: Sequence[str] = (),
) -> dict[str, Any]:
    """Measure the world model of a run; arguments and result as of `evaluate_world_model`.

    Args:
        run: Run directory, or "pretrained:NAME".
        horizon: Frames of a forecast.
        rollouts: Most starts.
        seed: Seed of the noise.
        data: Recorded trajectories; None for those that the model was trained on.
        split: "train", "validation", "test" or "all"; None for the test episodes where there are any.
        beside: Runs of other world models to measure from the same starts.

    Raises:
        InputError: A run or the data are missing or damaged, or of another robot.
    """
    for name, value in (("horizon", horizon), ("rollouts", rollouts)):
        if value is not None and value < 1:
            raise InputError(f"--{name} is {value}; valid: at least 1")
    model = WORLD_MODEL.load(run)
    store = open_log_of(run, data)
    others = {str(name): WORLD_MODEL.load(name) for name in beside}
    return evaluate_world_model(
        model, store, split=chosen_split(store, split), horizon=horizon, rollouts=rollouts, seed=seed, beside=others
    )


def open_log_of(run: str | Path, data: str | None = None) -> Store:
    """Open the data that a world model was trained on, or others of the same robot.

    Raises:
        InputError: They are gone, damaged or of another robot.
    """
    if data is None:
        data = read_config(resolve_run(run) / "config.yaml", WorldRunConfig).data
        if not Path(data).exists():
            raise InputError(f"{run}: was trained on {data}, which is gone; name a log with --data")
    robot = load_robot(robot_of(run))
    store = open_measured_data(robot, data)
    require_log(robot, store)
    return store


def chosen_split(store: Store, name: str | None) -> int | None:
    """Return the split of a name; by default the test episodes where there are any, else the held-out ones."""
    if name is None:
        return Split.TEST if len(store.episodes(Split.TEST)) else Split.VALIDATION
    return None if name == "all" else _SPLITS[name]
