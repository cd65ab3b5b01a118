# SPDX-License-Identifier: Apache-2.0
"""Open-loop forecasts of held-out windows by several models, and their errors by horizon.

The noise floor is the error of a perfect model under sensor noise: a model forecasts its own motion, measured with
that noise. Errors on a log above the floor come from the model, from torques that differ from the logged ones, or from
noise that is not white. Whole runs are forecast in pieces, one after the other.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import msgspec
import numpy as np
import torch
from torch import Tensor

from neurodyn.core.config import Record
from neurodyn.core.seeds import derive_seed
from neurodyn.data.split import episodes_in
from neurodyn.data.store import Store
from neurodyn.data.windows import Windows, select_windows
from neurodyn.dynamics.batch import RecordedEnvironments, State, Trajectory
from neurodyn.dynamics.hybrid.model import HybridDynamics
from neurodyn.dynamics.interface import Dynamics
from neurodyn.dynamics.measures import MOVING, displace, finite_worlds
from neurodyn.dynamics.rollout_errors import RolloutErrors
from neurodyn.dynamics.rollouts import context_of, roll_along, truth_of
from neurodyn.identify.readings import Noise
from neurodyn.identify.starts import Start, estimate_starts

Forecast = Callable[[Windows], Trajectory]
"""Maps windows, with their past, to the T + 1 states from their start on."""


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


def hybrid_forecast(
    dynamics: HybridDynamics, start: Start, context: int, noise: Noise, environments: RecordedEnvironments
) -> Forecast:
    """Return the forecast of a hybrid model from states as logged or estimated from `context` past frames."""

    @torch.no_grad()
    def forecast(windows: Windows) -> Trajectory:
        history = dynamics.spec.context
        begun = estimate_starts(dynamics, windows, context, start, noise, environments, history=history)
        return dynamics.rollout(context_of(begun), begun.control, environments.of(begun))

    return forecast


def model_forecast(model: Dynamics, environments: RecordedEnvironments) -> Forecast:
    """Return the forecast of another model, from the logged state and as much history as it uses."""

    @torch.no_grad()
    def forecast(windows: Windows) -> Trajectory:
        path = roll_along(model, windows.to(torch.float32), environments)
        return Trajectory(path.q.double(), path.qd.double())

    return forecast


def horizon_errors(errors: RolloutErrors, seconds: Sequence[float]) -> dict[str, HorizonErrors]:
    """Return mean errors at horizons [s] by name ("0.1"); those longer than the roll-outs are left out."""
    moving, dt = is_moving(errors.truth), errors.spec.dt
    return {
        f"{s:g}": HorizonErrors(
            errors=_means(errors, frame, errors.finite),
            moving=_means(errors, frame, errors.finite & moving),
            finite_fraction=errors.finite_fraction,
        )
        for s in seconds
        if 1 <= (frame := round(s / dt)) <= errors.frames
    }


def is_moving(truth: Trajectory) -> Tensor:
    """Return which windows have a mean joint speed above `dynamics.measures.MOVING`, bool, shape [W]."""
    return truth.qd.abs().mean((1, 2)) > MOVING


def _means(errors: RolloutErrors, frame: int, rows: Tensor) -> CoordinateErrors:
    if not bool(rows.any()):
        return CoordinateErrors()
    q = errors.errors[rows, frame - 1].mean(0)
    qd = errors.velocities[rows, frame - 1].abs().mean(0)
    return CoordinateErrors(
        q_mean=float(q.mean()), qd_mean=float(qd.mean()), q=dict(zip(errors.names, q.tolist(), strict=True)),
        qd=dict(zip(errors.spec.qd_names, qd.tolist(), strict=True)),
    )  # fmt: skip


@torch.no_grad()
def own_motion(
    dynamics: HybridDynamics, windows: Windows, noise: Noise, environments: RecordedEnvironments, seed: int
) -> Windows:
    """Return the model's own motion in windows as measured with white noise; non-finite roll-outs are left out."""
    generator = torch.Generator().manual_seed(derive_seed(seed, "noise floor"))
    path = dynamics.rollout(State(windows.q[:, 0], windows.qd[:, 0]), windows.control, environments.of(windows))
    kept = finite_worlds(path).nonzero()[:, 0]
    q, qd, windows = path.q[kept], path.qd[kept], windows.rows(kept)
    drawn = noise.joined * torch.randn((*qd.shape[:2], 2 * dynamics.spec.nv), generator=generator, dtype=torch.float64)
    offset, faster = drawn.chunk(2, -1)
    return replace(windows, q=displace(dynamics.spec, q, offset), qd=qd + faster)


def noise_floor(
    forecast: Forecast, dynamics: HybridDynamics, windows: Windows, past: int, noise: Noise,
    environments: RecordedEnvironments, *, seed: int,
) -> RolloutErrors:  # fmt: skip
    """Return the errors of a model's forecast of its own motion, measured with white noise.

    Args:
        forecast: The model's forecast.
        dynamics: The model.
        windows: Windows of `past` frames and the frames to forecast, with the initial states and torques of the log.
        past: Past frames of each window.
        noise: Sensor noise.
        environments: Environments of the windows.
        seed: Seed of the noise.
    """
    measured = own_motion(dynamics, windows, noise, environments, seed).after(past)
    return RolloutErrors(dynamics.spec, forecast(measured), truth_of(measured))


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
        floor: list[float] = []
        if perfect is not None:
            measured = perfect[1](run).after(past)
            errors = RolloutErrors(spec, perfect[0](measured), truth_of(measured))
            floor = errors.tangents.square().mean((0, 1)).sqrt().tolist()
        run = run.after(past)
        fits = {name: RolloutErrors(spec, forecast(run), truth_of(run)) for name, forecast in models.items()}
        runs.append(
            RunFit(
                run=store.run_name(episode), begin=past * dt, dt=dt, horizon=frames, names=list(spec.q_names),
                logged=_rows(run.q[:, 1:]), paths={name: _rows(fit.predicted.q[:, 1:]) for name, fit in fits.items()},
                residuals={name: _rows(fit.tangents) for name, fit in fits.items()},
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


def _rows(parts: Tensor) -> list[list[float]]:
    """Concatenate windows [W, T, n] in time; return n rows."""
    return parts.flatten(0, 1).T.tolist()


def _rms(values: Tensor) -> float:
    return float(values.square().mean().sqrt())
