# SPDX-License-Identifier: Apache-2.0
"""Dynamics of a floating robot beside recorded trajectories, such as tosses: open-loop errors from every start.

A sub-trajectory of H frames begins at every recorded state that has H more behind it in its episode. The dynamics
get that one state and nothing else (no earlier frames, no later ones), and prediction k is compared with recorded
state k. Errors are means over the H frames, then over the sub-trajectories; and likewise from the first state of
each episode alone (the release of a toss).
"""

import time
from typing import Any

import numpy as np
import torch

from neurodyn.data.split import episodes_of
from neurodyn.data.store import Store
from neurodyn.data.windows import all_windows, window_starts
from neurodyn.dynamics.interface import Dynamics, State, Trajectory
from neurodyn.dynamics.recorded_environment import RecordedEnvironments
from neurodyn.evaluate.comparison import compare
from neurodyn.robots import Robot

MOST = 20_000
"""Most sub-trajectories, unless asked for more."""
_BATCH = 2048
_SPLITS = ("train", "validation", "test")


def evaluate_floating(
    model: Dynamics,
    robot: Robot,
    store: Store,
    *,
    split: int | None,
    horizon: int | None = None,
    rollouts: int | None = None,
    seed: int = 500,
) -> dict[str, Any]:
    """Measure dynamics of any kind on recorded episodes of a robot with a floating base.

    Args:
        model: The dynamics.
        robot: The robot that the log is of.
        store: The recorded trajectories.
        split: Which episodes; None for all of them.
        horizon: Frames of a sub-trajectory; None for the robot's own.
        rollouts: Most sub-trajectories, spread evenly over all possible ones; None for 20,000.
        seed: Given back in the report; starts do not depend on it.

    Returns:
        A report of plain data: errors of all sub-trajectories at the top level, and those of the episodes' first
        states under "releases", each by horizon, beside baselines, and as a curve over single frames.

    Raises:
        InputError: No episode is long enough.
    """
    frames = horizon or robot.evaluation_horizon
    episodes = store.episodes() if split is None else episodes_of(store, split)
    stride = max(1, -(-len(window_starts(store, episodes, frames)) // (rollouts or MOST)))
    predicted, truth, released, seconds = _predict(model, store, split, frames, stride)
    first = predicted.rows(torch.from_numpy(released))
    return {
        "robot": robot.name,
        **describe(model),
        "horizon": frames,
        "rollouts": len(released),
        "seed": seed,
        "dt": robot.dt,
        "context_frames": 0,
        "split": "all" if split is None else _SPLITS[split],
        "episodes": len(episodes),
        "stride": stride,
        **_errors(robot, predicted, truth, frames),
        "releases": {
            "rollouts": int(released.sum()),
            **_errors(robot, first, truth.rows(torch.from_numpy(released)), frames),
        },
        "env_steps_per_second": len(released) * frames / seconds,
        "teacher": None,
        "notes": store.header.notes,
    }


def describe(model: Dynamics) -> dict[str, Any]:
    """Return the kind of some dynamics, and its network and number of weights where it is a network."""
    if not isinstance(model, torch.nn.Module):
        return {"kind": type(model).__name__.removesuffix("Dynamics").lower(), "network": None, "parameters": 0}
    kind = getattr(model, "kind", type(model).__name__.removesuffix("Dynamics").lower())
    network = getattr(model, "network", kind)
    return {"kind": kind, "network": network, "parameters": sum(p.numel() for p in model.parameters())}


@torch.no_grad()
def _predict(
    model: Dynamics, store: Store, split: int | None, frames: int, stride: int
) -> tuple[Trajectory, Trajectory, np.ndarray, float]:
    """Return predictions, recordings, which of them start an episode, and the time that predicting took [s]."""
    environments, seconds = RecordedEnvironments(store), 0.0
    predictions, truths, released = [], [], []
    for windows in all_windows(store, frames, split=split, stride=stride, batch=_BATCH):
        begin = time.perf_counter()
        state = State(windows.q[:, 0].contiguous(), windows.qd[:, 0].contiguous())
        predictions.append(model.rollout(state, windows.control, environments.of(windows)))
        seconds += time.perf_counter() - begin
        truths.append(Trajectory(windows.q, windows.qd))
        released.append(windows.start == 0)
    return Trajectory.joined(predictions), Trajectory.joined(truths), np.concatenate(released), seconds


def _errors(robot: Robot, predicted: Trajectory, truth: Trajectory, frames: int) -> dict[str, Any]:
    found = compare(robot, predicted, truth, frames)
    return {key: value for key, value in found.items() if key not in {"limits", "teacher_finite_fraction"}}
