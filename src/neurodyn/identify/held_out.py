# SPDX-License-Identifier: Apache-2.0
"""Open-loop forecasts of held-out windows by several models, and their errors by horizon.

The noise floor is the error of a perfect model under sensor noise: a model forecasts its own motion, measured with
that noise. Errors on a log above the floor come from the model, from torques that differ from the logged ones, or from
noise that is not white. Whole runs are forecast in pieces, one after the other.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

import msgspec
import numpy as np
import torch
from torch import Tensor

from neurodyn.core.config import Record
from neurodyn.core.description.spec import StateSpec
from neurodyn.core.seeds import derive_seed
from neurodyn.data.split import episodes_in
from neurodyn.data.store import Store
from neurodyn.data.windows import Windows, select_windows
from neurodyn.dynamics.batch import RecordedEnvironments, State, Trajectory, Window
from neurodyn.dynamics.coordinates import position_difference
from neurodyn.dynamics.hybrid.model import HybridDynamics
from neurodyn.dynamics.interface import Dynamics
from neurodyn.dynamics.measures import (
    MOVING,
    constant_velocity,
    displace,
    error_names,
    finite_worlds,
    joint_distance,
    persistence,
)
from neurodyn.dynamics.rollouts import context_of
from neurodyn.identify.readings import Noise
from neurodyn.identify.starts import Start, frames_before, started

Forecast = Callable[[Windows, int], Trajectory]
"""Maps windows and their number of past frames to the T + 1 states from the last past frame on."""


class CoordinateErrors(Record, frozen=True):
    """Mean absolute errors at a horizon, over coordinates and by name; None if no window counts."""

    q_mean: float | None = None
    qd_mean: float | None = None
    q: dict[str, float] = msgspec.field(default_factory=dict)
    qd: dict[str, float] = msgspec.field(default_factory=dict)


class HorizonErrors(Record, frozen=True):
    """Errors at a horizon over all windows with a finite forecast, and over the moving ones among them."""

    inline = ("errors",)

    errors: CoordinateErrors
    moving: CoordinateErrors
    finite_fraction: float


class HeldOut(Record, frozen=True):
    """Errors by model and horizon ("0.1"), and the number of windows."""

    by_model: dict[str, dict[str, HorizonErrors]]
    starts: int
    moving_starts: int
    moving_above: float
    seconds: list[float]


def hybrid_forecast(
    dynamics: HybridDynamics, start: Start, context: int, noise: Noise, environments: RecordedEnvironments
) -> Forecast:
    """Return the forecast of a hybrid model from states as logged or estimated from `context` past frames."""
    history = dynamics.spec.context
    before = frames_before(context, history)

    def forecast(windows: Windows, frames: int) -> Trajectory:
        cut = windows.cut(frames - before)
        future = started(dynamics, cut, context, start, noise, environments, history=history)
        environment = environments.at(future.ground)
        return dynamics.rollout(context_of(future), future.control, environment)

    return forecast


def model_forecast(model: Dynamics, environments: RecordedEnvironments) -> Forecast:
    """Return the forecast of another model, from the logged state and as much history as it uses."""

    def forecast(windows: Windows, frames: int) -> Trajectory:
        context = min(model.spec.context, frames)
        part = windows.cut(frames - context)
        q, qd, control = (x.float() for x in (part.q, part.qd, part.control))
        ground, parameters = (None if x is None else x.float() for x in (part.ground, part.parameters))
        environment = environments.at(ground, parameters)
        past = Window(q[:, : context + 1], qd[:, : context + 1], control[:, :context])
        path = model.rollout(past if context else past.present, control[:, context:], environment)
        return Trajectory(path.q.double(), path.qd.double())

    return forecast


def baselines(spec: StateSpec) -> dict[str, Forecast]:
    """Return the persistence and constant-velocity baselines."""

    def truth(windows: Windows, frames: int) -> Trajectory:
        part = windows.cut(frames)
        return Trajectory(part.q, part.qd)

    return {
        "hold-last": lambda windows, frames: persistence(truth(windows, frames)),
        "constant-velocity": lambda windows, frames: constant_velocity(truth(windows, frames), spec.dt, spec),
    }


@torch.no_grad()
def forecast_errors(
    models: Mapping[str, Forecast], spec: StateSpec, windows: Windows, context: int, seconds: tuple[float, ...]
) -> HeldOut:
    """Evaluate forecasts on windows.

    Args:
        models: Forecasts by name.
        spec: Names of the coordinates.
        windows: The windows.
        context: Past frames of each window.
        seconds: Horizons [s]; those longer than the windows are left out.
    """
    truth = windows.cut(context)
    moving = truth.qd.abs().mean((1, 2)) > MOVING
    horizons = {f"{s:g}": round(s / spec.dt) for s in seconds if 1 <= round(s / spec.dt) <= truth.frames}
    errors = {}
    for name, forecast in models.items():
        path = forecast(windows, context)
        finite = finite_worlds(path)
        errors[name] = {
            mark: HorizonErrors(
                errors=_means(path, truth, spec, frame, finite),
                moving=_means(path, truth, spec, frame, finite & moving),
                finite_fraction=float(finite.double().mean()),
            )
            for mark, frame in horizons.items()
        }
    return HeldOut(
        by_model=errors, starts=truth.count, moving_starts=int(moving.sum()), moving_above=MOVING,
        seconds=[float(mark) for mark in horizons],
    )  # fmt: skip


def _means(path: Trajectory, truth: Windows, spec: StateSpec, frame: int, rows: Tensor) -> CoordinateErrors:
    if not bool(rows.any()):
        return CoordinateErrors()
    q = joint_distance(spec, path.q[rows, frame], truth.q[rows, frame]).mean(0)
    qd = (path.qd[rows, frame] - truth.qd[rows, frame]).abs().mean(0)
    return CoordinateErrors(
        q_mean=float(q.mean()), qd_mean=float(qd.mean()), q=dict(zip(error_names(spec), q.tolist(), strict=True)),
        qd=dict(zip(spec.qd_names, qd.tolist(), strict=True)),
    )  # fmt: skip


@torch.no_grad()
def noise_floor(
    dynamics: HybridDynamics,
    windows: Windows,
    past: int,
    noise: Noise,
    environments: RecordedEnvironments,
    *,
    start: Start,
    context: int,
    seconds: tuple[float, ...],
    seed: int,
) -> dict[str, HorizonErrors]:
    """Return the errors of a model on its own motion, measured with noise, by horizon.

    Args:
        dynamics: The model.
        windows: Windows of `past` frames and the frames to forecast, with the initial states and torques of the log.
        past: Past frames of each window.
        noise: White sensor noise.
        environments: Environments of the windows.
        start: How forecasts start; see `starts.started`.
        context: Past frames to which an initial state is fitted.
        seconds: Horizons [s].
        seed: Seed of the noise.
    """
    measured = own_motion(dynamics, windows, noise, environments, seed)
    forecast = hybrid_forecast(dynamics, start, context, noise, environments)
    return forecast_errors({"floor": forecast}, dynamics.spec, measured, past, seconds).by_model["floor"]


def own_motion(
    dynamics: HybridDynamics, windows: Windows, noise: Noise, environments: RecordedEnvironments, seed: int
) -> Windows:
    """Return the model's own motion in windows as measured with white noise; non-finite roll-outs are left out."""
    generator = torch.Generator().manual_seed(derive_seed(seed, "noise floor"))
    environment = environments.at(windows.ground)
    path = dynamics.rollout(State(windows.q[:, 0], windows.qd[:, 0]), windows.control, environment)
    kept = finite_worlds(path).nonzero()[:, 0]
    q, qd, windows = path.q[kept], path.qd[kept], windows.rows(kept)
    drawn = noise.joined * torch.randn((*qd.shape[:2], 2 * dynamics.spec.nv), generator=generator, dtype=torch.float64)
    moved, faster = drawn.chunk(2, -1)
    return replace(windows, q=displace(dynamics.spec, q, moved), qd=qd + faster)


class RunErrors(Record, frozen=True):
    """Root mean square residuals of a whole run, by consecutive roll-outs.

    Attributes:
        run: Name of the log or episode.
        seconds: Duration [s].
        q: Position residuals by model [rad or m].
        floor: Position residuals of a perfect model under the sensor noise [rad or m].
    """

    run: str
    seconds: float
    q: dict[str, float]
    floor: float


class RunFit(Record, frozen=True):
    """Fit of a whole held-out run by consecutive roll-outs, each from the state that the log provides.

    Attributes:
        run: Name of the log or episode.
        begin: Time of the first start in the run [s].
        dt: Frame time [s].
        horizon: Frames of a roll-out.
        names: Names of the positions.
        logged: Logged positions, shape [nq, T].
        paths: Predicted positions by model, shape [nq, T].
        residuals: Predicted minus logged positions by model, shape [nv, T].
        tangent_names: Names of the residuals.
        floor: Standard deviation of each residual from the sensor noise alone; empty if unknown.
    """

    run: str
    begin: float
    dt: float
    horizon: int
    names: list[str]
    logged: list[list[float]]
    paths: dict[str, list[list[float]]]
    residuals: dict[str, list[list[float]]]
    tangent_names: list[str]
    floor: list[float]


_RUNS = 3
_SECONDS = 20.0
"""Longest part of a run that is evaluated."""
_ALL = 1 << 40


@torch.no_grad()
def whole_runs(
    models: Mapping[str, Forecast],
    store: Store,
    split: int | None,
    *,
    frames: int,
    past: int,
    perfect: tuple[Forecast, Callable[[Windows], Windows]] | None = None,
) -> list[RunFit]:
    """Roll models out over up to three of the longest runs of a split, `frames` at a time, each after `past` frames.

    `perfect` gives the residuals that sensor noise alone causes: a forecast, and its own motion in windows as sensors
    measure it.
    """
    spec, dt = store.header.spec, store.header.spec.dt
    most = max(1, round(_SECONDS / (frames * dt)))
    runs = []
    for episode in _longest(store, episodes_in(store, split), past + frames):
        run = select_windows(store.select([episode]), None, past + frames, stride=frames, most=_ALL)
        run = run.rows(torch.arange(min(run.count, most)))
        logged, floor = run.cut(past), []
        if perfect is not None:
            measured = perfect[1](run)
            errors = position_difference(spec, perfect[0](measured, past).q[:, 1:], measured.cut(past).q[:, 1:])
            floor = errors.square().mean((0, 1)).sqrt().tolist()
        fits = {name: forecast(run, past) for name, forecast in models.items()}
        runs.append(
            RunFit(
                run=store.run_name(episode), begin=past * dt, dt=dt, horizon=frames, names=list(spec.q_names),
                logged=_joined(logged.q[:, 1:]),
                paths={name: _joined(path.q[:, 1:]) for name, path in fits.items()},
                residuals={
                    name: _joined(position_difference(spec, path.q[:, 1:], logged.q[:, 1:]))
                    for name, path in fits.items()
                },
                tangent_names=list(spec.tangent_names), floor=floor,
            )
        )  # fmt: skip
    return runs


def run_errors(fits: list[RunFit]) -> list[RunErrors]:
    """Return the root mean square residuals of runs."""
    return [
        RunErrors(
            run=fit.run,
            seconds=len(fit.logged[0]) * fit.dt,
            q={name: _rms(torch.tensor(rows, dtype=torch.float64)) for name, rows in fit.residuals.items()},
            floor=_rms(torch.tensor(fit.floor, dtype=torch.float64)),
        )
        for fit in fits
    ]


def _longest(store: Store, episodes: np.ndarray, least: int) -> list[int]:
    """Return up to three of the longest episodes with at least `least` frames, in ascending order of index."""
    episodes = episodes[store.lengths[episodes] >= least]
    order = np.argsort(-store.lengths[episodes], kind="stable")[:_RUNS]
    return sorted(episodes[order].tolist())


def _joined(parts: Tensor) -> list[list[float]]:
    """Concatenate windows [W, T, n] in time; return n rows."""
    return parts.flatten(0, 1).T.tolist()


def _rms(values: Tensor) -> float:
    return float(values.square().mean().sqrt())
