# SPDX-License-Identifier: Apache-2.0
"""A world model beside recorded episodes: errors by horizon, and whether it knows how large they are.

Errors are compared with those of holding the last state, and of other world models on the same starts. The spread is
measured by how often the truth lies within it; the disagreement of the members by how well it orders forecasts by their
error, and by whether it grows on states unlike those of the log.
"""

import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from neurodyn.core.errors import InputError
from neurodyn.data.split import episodes_of
from neurodyn.data.store import Store
from neurodyn.data.windows import Windows
from neurodyn.dynamics.world_model.model import WorldModel
from neurodyn.evaluate.calibration import coverage_at, disagreement_at, unlike, with_noise
from neurodyn.evaluate.events import event_scores
from neurodyn.evaluate.forecasts import Forecasts, column_means, forecast, windows_of

MOST = 20_000
"""Starts of forecasts, unless told otherwise."""

_VALUES = 40_000_000  # errors that are held in memory at once: starts x frames x columns
_SECONDS = (0.1, 0.25, 0.5, 1.0)
_FRAMES = (1, 10, 50, 100, 200)
_SUBSET = 1000


@torch.no_grad()
def evaluate_world_model(
    model: WorldModel,
    store: Store,
    *,
    split: int | None,
    horizon: int | None = None,
    rollouts: int | None = None,
    seed: int = 500,
    beside: Mapping[str, WorldModel] | None = None,
) -> dict[str, Any]:
    """Measure a world model on recorded episodes.

    Args:
        model: The model.
        store: The recorded trajectories.
        split: Which episodes; None for all of them.
        horizon: Frames of a forecast; None for 100, or one second if that is more, as far as episodes hold them.
        rollouts: Most starts, spread evenly over all possible ones; None for as many as fit, at most 20,000.
        seed: Seed of the noise.
        beside: Other world models of the same data, by name, measured from the same starts.

    Returns:
        A report of plain data.

    Raises:
        InputError: No episode is long enough, or a model to compare with predicts something else.
    """
    others = dict(beside or {})
    _require_same(model, others, store)
    context = max([model.spec.context, *(other.spec.context for other in others.values())])
    frames = _horizon(model, store, split, horizon, context)
    size = model.observation.size
    most = min(rollouts or MOST, max(100, _VALUES // (frames * size)))
    windows = windows_of(store, split, context + frames, most)
    found = forecast(model, windows, context)
    compared = {name: forecast(other, windows, context) for name, other in others.items()}
    marks = _marks(model.spec.dt, frames)
    few = _few(windows)
    return {
        **_summary(model, store, split, found, frames, context, seed),
        "columns": list(model.observation.names),
        "units": list(model.observation.units),
        "state_scale": model.state_scale.tolist(),
        "marks": marks,
        "at_horizon": {str(m): _at(model, found, compared, m) for m in marks},
        "groups": _by_group(model, store, found, marks),
        "by_frame": _by_frame(model, found, compared),
        "coverage": {str(m): coverage_at(model, found, m) for m in marks},
        "epistemic": {str(m): disagreement_at(model, found, m) for m in marks},
        "unlike": unlike(model, few, context),
        "noise": with_noise(model, few, context, marks, seed),
        "events": event_scores(model, few, context),
        "env_steps_per_second": _speed(model, few, context),
        "notes": store.header.notes,
    }


def _require_same(model: WorldModel, others: Mapping[str, WorldModel], store: Store) -> None:
    for name, other in {"the data": store.header.spec, **{n: o.spec for n, o in others.items()}}.items():
        differences = model.spec.differences(other)
        if differences:
            raise InputError(f"{name}: not what the world model of {model.spec.robot!r} predicts: {differences[0]}")


def _horizon(model: WorldModel, store: Store, split: int | None, horizon: int | None, context: int) -> int:
    if horizon is not None:
        return horizon
    episodes = store.episodes() if split is None else episodes_of(store, split)
    longest = int(store.lengths[episodes].max()) - context
    return max(1, min(max(100, round(1.0 / model.spec.dt)), longest))


def _marks(dt: float, frames: int) -> list[int]:
    seconds = {round(s / dt) for s in _SECONDS}
    return sorted({m for m in (*seconds, *_FRAMES) if 0 < m <= frames} | {frames})


def _few(windows: list[Windows]) -> list[Windows]:
    """Return about a thousand of the windows, spread evenly."""
    stride = max(1, sum(len(w.group) for w in windows) // _SUBSET)
    return [w.rows(slice(None, None, stride)) for w in windows]


def _summary(
    model: WorldModel, store: Store, split: int | None, found: Forecasts, frames: int, context: int, seed: int
) -> dict[str, Any]:
    """Return what every evaluation says, with means over all frames up to a horizon."""
    kept = found.error[found.finite].abs()
    return {
        "robot": model.spec.robot,
        "kind": model.kind,
        "network": model.network,
        "members": model.members,
        "parameters": sum(p.numel() for p in model.parameters()),
        "horizon": frames,
        "rollouts": len(found.group),
        "seed": seed,
        "dt": model.spec.dt,
        "context_frames": context,
        "split": "all" if split is None else ("train", "validation", "test")[split],
        "episodes": len(store.episodes() if split is None else episodes_of(store, split)),
        "base_position_m": 0.0,
        "base_orientation_rad": 0.0,
        **_jointcolumn_means(model, kept),
        "by_horizon": {str(m): _jointcolumn_means(model, kept[:, :m]) for m in _marks(model.spec.dt, frames)},
        "finite_fraction": float(found.finite.double().mean()),
        "teacher": None,
    }


def _jointcolumn_means(model: WorldModel, errors: Tensor) -> dict[str, float | None]:
    result: dict[str, float | None] = {}
    for key, unit in (("joint_rad", "rad"), ("joint_m", "m")):
        columns = [i for i, u in enumerate(model.spec.q_units) if u == unit]
        if columns:
            result[key] = float(errors[..., columns].double().mean()) if len(errors) else None
    return result


def _at(model: WorldModel, found: Forecasts, compared: Mapping[str, Forecasts], mark: int) -> dict[str, Any]:
    """Return mean absolute errors at a horizon by column, of the model and of what it is compared with."""
    rows = found.finite
    entry: dict[str, Any] = {"seconds": mark * model.spec.dt, "starts": int(rows.sum())}
    for name, errors in {"model": found.error, "hold_last": found.held, **_of(compared)}.items():
        entry[name] = column_means(model, errors[rows, mark - 1])
    return entry


def _of(compared: Mapping[str, Forecasts]) -> dict[str, Tensor]:
    return {name: other.error.nan_to_num(torch.inf) for name, other in compared.items()}


def _by_group(model: WorldModel, store: Store, found: Forecasts, marks: list[int]) -> dict[str, Any]:
    groups = {}
    for index in np.unique(found.group):
        rows = torch.from_numpy(found.group == index) & found.finite
        name = store.header.groups[index] if index >= 0 else "(no group)"
        groups[name] = {
            "starts": int(rows.sum()),
            **{
                str(m): {
                    "model": column_means(model, found.error[rows, m - 1]),
                    "hold_last": column_means(model, found.held[rows, m - 1]),
                }
                for m in marks
            },
        }
    return groups


def _by_frame(model: WorldModel, found: Forecasts, compared: Mapping[str, Forecasts]) -> dict[str, list[float]]:
    """Return the mean error of all columns in their spreads, frame by frame."""
    curves: dict[str, list[float]] = {}
    if not bool(found.finite.any()):
        return curves
    for name, errors in {"model": found.error, "hold_last": found.held, **_of(compared)}.items():
        picked = errors[found.finite].abs().double().mean(0) / model.state_scale
        curves[name] = picked[:, model.varying].mean(-1).nan_to_num(posinf=torch.finfo(torch.float64).max).tolist()
    return curves


def _speed(model: WorldModel, windows: list[Windows], context: int) -> float:
    """Return forecast frames per second, all members of each included."""
    count = sum(len(w.group) * (w.control.shape[1] - context) for w in windows)
    start = time.perf_counter()
    forecast(model, windows, context)
    return count / (time.perf_counter() - start)
