# SPDX-License-Identifier: Apache-2.0
"""Errors of several models side by side: open-loop forecasts of the same held-out windows, by horizon."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from neurodyn.core.spec import StateSpec
from neurodyn.dynamics.hybrid.model import HybridDynamics
from neurodyn.dynamics.interface import Dynamics, Environment, State, Trajectory, Window
from neurodyn.dynamics.measures import MOVING, constant_velocity, error_names, finite_worlds, hold_last, joint_distance
from neurodyn.dynamics.recorded_environment import RecordedEnvironments
from neurodyn.identify.noise import Noise
from neurodyn.identify.starts import Start, started
from neurodyn.learn.hybrid.windows import FitWindows

Forecast = Callable[[FitWindows, int], Trajectory]
"""From windows and their frames of context to the T + 1 states from the end of the context on."""


def hybrid_forecast(
    dynamics: HybridDynamics, start: Start, context: int, noise: Noise, environments: RecordedEnvironments
) -> Forecast:
    """Return the forecasts of a hybrid model, from states as logged or estimated from `context` past frames."""

    def forecast(windows: FitWindows, frames: int) -> Trajectory:
        first = frames - context
        future = started(dynamics, windows.cut(first), context, start, noise, environments)
        where = environments.at(future.ground)
        return dynamics.rollout(State(future.q[:, 0], future.qd[:, 0]), future.control, where)

    return forecast


def model_forecast(model: Dynamics, environments: RecordedEnvironments) -> Forecast:
    """Return the forecasts of any other model, from the logged state and as much history as it makes use of."""

    def forecast(windows: FitWindows, frames: int) -> Trajectory:
        seen = min(model.spec.context, frames)
        part = windows.cut(frames - seen)
        q, qd, control = (x.float() for x in (part.q, part.qd, part.control))
        where: Environment = environments.at(None if part.ground is None else part.ground.float())
        past = Window(q[:, : seen + 1], qd[:, : seen + 1], control[:, :seen])
        found = model.rollout(past if seen else past.present, control[:, seen:], where)
        return Trajectory(found.q.double(), found.qd.double())

    return forecast


def baselines(spec: StateSpec) -> dict[str, Forecast]:
    """Return the forecasts that need no model."""

    def truth(windows: FitWindows, frames: int) -> Trajectory:
        part = windows.cut(frames)
        return Trajectory(part.q, part.qd)

    return {
        "hold-last": lambda windows, frames: hold_last(truth(windows, frames)),
        "constant-velocity": lambda windows, frames: constant_velocity(truth(windows, frames), spec.dt, spec),
    }


@torch.no_grad()
def forecast_errors(
    models: Mapping[str, Forecast], spec: StateSpec, windows: FitWindows, context: int, seconds: tuple[float, ...]
) -> dict[str, Any]:
    """Measure models on windows of `context` and then more frames.

    Args:
        models: Their forecasts by name.
        spec: Names of the coordinates.
        windows: The windows.
        context: Frames that are not forecast.
        seconds: Horizons; those beyond the windows are left out.

    Returns:
        For each model and horizon ("0.1") the mean absolute errors at the horizon over the windows in which it is
        finite: "q_mean", "qd_mean" (over coordinates), "q", "qd" (by name), "moving" (likewise over the windows that
        move), and "finite_fraction".
    """
    truth = windows.cut(context)
    moving = truth.qd.abs().mean((1, 2)) > MOVING
    marks = {f"{s:g}": round(s / spec.dt) for s in seconds if 1 <= round(s / spec.dt) <= truth.frames}
    found: dict[str, Any] = {}
    for name, forecast in models.items():
        path = forecast(windows, context)
        finite = finite_worlds(path)
        found[name] = {
            mark: {
                **_means(path, truth, spec, frame, finite),
                "moving": _means(path, truth, spec, frame, finite & moving),
                "finite_fraction": float(finite.double().mean()),
            }
            for mark, frame in marks.items()
        }
    return {
        "by_model": found,
        "starts": truth.count,
        "moving_starts": int(moving.sum()),
        "moving_above": MOVING,
        "seconds": [float(mark) for mark in marks],
    }


def _means(path: Trajectory, truth: FitWindows, spec: StateSpec, frame: int, rows: Tensor) -> dict[str, Any]:
    if not bool(rows.any()):
        return {"q_mean": None, "qd_mean": None, "q": {}, "qd": {}}
    q = joint_distance(spec, path.q[rows, frame], truth.q[rows, frame]).mean(0)
    qd = (path.qd[rows, frame] - truth.qd[rows, frame]).abs().mean(0)
    return {
        "q_mean": float(q.mean()),
        "qd_mean": float(qd.mean()),
        "q": dict(zip(error_names(spec), q.tolist(), strict=True)),
        "qd": dict(zip(spec.qd_names, qd.tolist(), strict=True)),
    }
