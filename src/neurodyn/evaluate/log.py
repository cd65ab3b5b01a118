# SPDX-License-Identifier: Apache-2.0
"""A neural model beside recorded trajectories: open-loop errors on held-out episodes, from many starts.

Robots with a floating base have an evaluation of their own, see `evaluate_floating`.

Prediction k of a roll-out is compared with recorded state k: the roll-out starts in the recorded state at
the start of frame 0, and the recorded torque of frame k leads from state k to state k + 1. A network with a
memory first sees the recorded frames before the start; the baselines start from the same state.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from neurodyn.data.split import episodes_of
from neurodyn.data.store import Store
from neurodyn.data.windows import Windows, all_windows, window_starts
from neurodyn.dynamics.base import LearnedDynamics
from neurodyn.dynamics.interface import Trajectory, Window
from neurodyn.dynamics.measures import (
    MOVING,
    Columns,
    constant_velocity,
    error_names,
    error_units,
    finite_worlds,
    hold_last,
    joint_distance,
    percentiles,
    summarise,
)
from neurodyn.dynamics.recorded_environment import RecordedEnvironments
from neurodyn.evaluate.as_evaluated import without_past
from neurodyn.evaluate.tosses import MOST, evaluate_floating
from neurodyn.identify.starts import FromPast
from neurodyn.robots import Robot

SECONDS = (0.1, 0.25, 0.5)


@dataclass
class _Scored:
    """Errors of all starts.

    Attributes:
        q: Absolute position errors of model and baselines, shape [starts, T, errors].
        qd: Absolute velocity errors, shape [starts, T, nv].
        group: Group of each start, shape [starts].
        speed: Mean speed of the joints in the forecast window, shape [starts].
        finite: Whether the model's roll-out is finite, shape [starts].
    """

    q: dict[str, Tensor]
    qd: dict[str, Tensor]
    group: np.ndarray
    speed: Tensor
    finite: Tensor


def evaluate_log(
    model: LearnedDynamics | FromPast,
    robot: Robot,
    store: Store,
    *,
    split: int | None,
    horizon: int | None = None,
    rollouts: int | None = None,
    seed: int = 500,
) -> dict[str, Any]:
    """Measure a model on recorded episodes.

    Args:
        model: The model.
        robot: The robot that the log is of.
        store: The recorded trajectories.
        split: Which episodes; None for all of them.
        horizon: Frames of a roll-out; None for half a second.
        rollouts: Most starts, spread evenly over all possible ones; None for 20,000.
        seed: Given back in the report; starts do not depend on it.

    Returns:
        A report of plain data (of a robot with a floating base, that of `evaluate_floating`); "by_horizon" holds
        means over all frames up to a horizon, "at_horizon" the errors at the horizon itself, both by group and for
        moving windows.

    Raises:
        InputError: No episode is long enough.
    """
    spec = robot.spec
    if spec.floating:
        return evaluate_floating(
            without_past(model), robot, store, split=split, horizon=horizon, rollouts=rollouts, seed=seed
        )
    frames = horizon or round(SECONDS[-1] / spec.dt)
    marks = sorted({m for s in SECONDS if 0 < (m := round(s / spec.dt)) <= frames} | {frames})
    context = model.spec.context
    scored = _score(model, robot, store, split, frames, context, rollouts or MOST)
    columns = Columns.of(robot)
    everything = np.ones(len(scored.group), bool)
    errors = scored.q["model"][scored.finite]
    return {
        "robot": robot.name,
        "kind": model.kind,
        "network": model.network,
        "parameters": sum(p.numel() for p in model.parameters()),
        "horizon": frames,
        "rollouts": len(scored.group),
        "seed": seed,
        "dt": spec.dt,
        "context_frames": context,
        "split": "all" if split is None else ("train", "validation", "test")[split],
        "episodes": len(_episodes(store, split)),
        "moving_above": MOVING,
        **summarise(errors, columns, frames),
        "by_horizon": {str(m): summarise(errors, columns, m) for m in marks},
        "finite_fraction": float(scored.finite.double().mean()),
        "at_horizon": {
            "all": _table(scored, everything, marks, spec.dt),
            "moving": _table(scored, (scored.speed > MOVING).numpy(), marks, spec.dt),
        },
        "groups": _by_group(store, scored, marks, spec.dt),
        "q_names": list(error_names(spec)),
        "q_units": list(error_units(spec)),
        "qd_names": list(spec.qd_names),
        "teacher": None,
        "env_steps_per_second": None,
        "notes": store.header.notes,
    }


def _episodes(store: Store, split: int | None) -> np.ndarray:
    return store.episodes() if split is None else episodes_of(store, split)


def _score(
    model: LearnedDynamics | FromPast,
    robot: Robot,
    store: Store,
    split: int | None,
    frames: int,
    context: int,
    most: int,
) -> _Scored:
    length = context + frames
    total = len(window_starts(store, _episodes(store, split), length))
    environments = RecordedEnvironments(store)
    parts = [
        _score_windows(model, robot, windows, context, environments)
        for windows in all_windows(store, length, split=split, stride=max(1, -(-total // most)))
    ]
    return _Scored(
        q={name: torch.cat([p.q[name] for p in parts]) for name in parts[0].q},
        qd={name: torch.cat([p.qd[name] for p in parts]) for name in parts[0].qd},
        group=np.concatenate([p.group for p in parts]),
        speed=torch.cat([p.speed for p in parts]),
        finite=torch.cat([p.finite for p in parts]),
    )


@torch.no_grad()
def _score_windows(
    model: LearnedDynamics | FromPast, robot: Robot, windows: Windows, context: int, environments: RecordedEnvironments
) -> _Scored:
    past = Window(windows.q[:, : context + 1], windows.qd[:, : context + 1], windows.control[:, :context])
    truth = Trajectory(windows.q[:, context:], windows.qd[:, context:])
    predictions = {
        "model": model.rollout(
            past if context else past.present, windows.control[:, context:], environments.of(windows)
        ),
        "hold_last": hold_last(truth),
        "constant_velocity": constant_velocity(truth, robot.dt, robot.spec),
    }
    return _Scored(
        q={n: joint_distance(robot.spec, p.q[:, 1:], truth.q[:, 1:]) for n, p in predictions.items()},
        qd={n: (p.qd - truth.qd)[:, 1:].abs() for n, p in predictions.items()},
        group=windows.group,
        speed=truth.qd.abs().mean((1, 2)),
        finite=finite_worlds(predictions["model"]),
    )


def _by_group(store: Store, scored: _Scored, marks: list[int], dt: float) -> dict[str, Any]:
    found = {}
    for index in np.unique(scored.group):
        name = store.header.groups[index] if index >= 0 else "(no group)"
        found[name] = _table(scored, scored.group == index, marks, dt)
    return found


def _table(scored: _Scored, rows: np.ndarray, marks: list[int], dt: float) -> dict[str, Any]:
    """Return errors at horizons of model and baselines, over the starts that `rows` picks."""
    picked = torch.from_numpy(np.flatnonzero(rows & scored.finite.numpy()))
    table: dict[str, Any] = {"starts": len(picked)}
    for mark in marks if len(picked) else ():
        entry: dict[str, Any] = {"seconds": mark * dt}
        for name in scored.q:
            q, qd = scored.q[name][picked, mark - 1].double(), scored.qd[name][picked, mark - 1].double()
            entry[name] = {
                "q": q.mean(0).tolist(),
                "qd": qd.mean(0).tolist(),
                "q_mean": float(q.mean()),
                "qd_mean": float(qd.mean()),
                "q_percentiles": percentiles(q.mean(1)),
                "qd_percentiles": percentiles(qd.mean(1)),
            }
        entry["better_than_baselines"] = {
            what: min(entry[name][what] for name in ("hold_last", "constant_velocity"))
            / max(entry["model"][what], 1e-12)
            for what in ("q_mean", "qd_mean")
        }
        table[str(mark)] = entry
    return table
