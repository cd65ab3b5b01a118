# SPDX-License-Identifier: Apache-2.0
"""Forecasts of held-out windows by several models, and their errors by horizon.

The noise floor is the error of a perfect model under sensor noise: a model forecasts its own motion, measured with
that noise. Errors on a log above the floor come from the model, from torques that differ from the logged ones, or from
noise that is not white. Whole runs are forecast in pieces, one after the other.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from neurodyn.core.artifacts import read_json, resolve_run
from neurodyn.core.config import read_config
from neurodyn.core.seeds import derive_seed
from neurodyn.data.split import episodes_in, held_out_split
from neurodyn.data.store import Store
from neurodyn.data.windows import Windows, select_windows
from neurodyn.dynamics.batch import Environment, RecordedEnvironments, State, Trajectory, Window
from neurodyn.dynamics.hybrid.artifact import HYBRID
from neurodyn.dynamics.hybrid.model import HybridDynamics
from neurodyn.dynamics.interface import Dynamics
from neurodyn.dynamics.kinds import KindOperation
from neurodyn.dynamics.measures import BASELINES, MOVING, displace, finite_worlds
from neurodyn.dynamics.rollout_errors import RolloutErrors
from neurodyn.dynamics.rollouts import context_of, roll_along, truth_of
from neurodyn.identify.fit.readings import Noise
from neurodyn.identify.ladder.forecasts import Forecasts, forecasts_of
from neurodyn.identify.ladder.initial_states import Start, estimate_starts, frames_before
from neurodyn.identify.result import (
    ADAPTATION,
    MECHANISM,
    CoordinateErrors,
    HeldOutWindows,
    HorizonErrors,
    RunErrors,
    RunFit,
)
from neurodyn.identify.settings import AdaptationRecord, IdentificationRecord, IdentificationSettings


class FromPast:
    """A hybrid model whose roll-outs start from states that are estimated from past frames; else it is the model.

    Attributes:
        spec: State of the model, with the number of past frames as context.
        start: Whether they are estimated from positions alone ("past"), or also from velocities ("filtered").
    """

    def __init__(self, dynamics: HybridDynamics, context: int, noise: Noise, start: Start = "past") -> None:
        """Wrap a model; initial states are fitted to `context` past frames, weighted by the sensor noise."""
        self.dynamics, self.context, self.noise = dynamics, context, noise
        self.start: Start = start
        self.spec = dynamics.spec.with_context(frames_before(context, dynamics.spec.context))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.dynamics, name)

    @torch.no_grad()
    def rollout(self, context: State | Window, controls: Tensor, environment: Environment | None = None) -> Trajectory:
        """Roll out under controls from a window of `spec.context` past frames; a single state is used unchanged."""
        if isinstance(context, Window) and context.torque.shape[1]:
            frames = context.torque.shape[1]
            q, qd, control = (x.double() for x in (context.q, context.qd, context.torque))
            ground = None if environment is None or environment.ground is None else environment.ground.pose
            own = None if environment is None or environment.parameters is None else environment.parameters.numbers
            past = Windows(
                q, qd, control, ground=None if ground is None else ground.double(),
                parameters=None if own is None else own.double().expand(len(q), -1),
                parts=None if context.parts is None else context.parts.double(),
            ).after(frames)  # fmt: skip
            where = None if environment is None else RecordedEnvironments.like(environment)
            begin = estimate_starts(
                self.dynamics, past, min(self.context, frames), self.start, self.noise, where, history=frames
            )
            context = context_of(begin)
        return self.dynamics.rollout(context, controls, environment)


def as_identified(run: str | Path, device: str = "cpu") -> FromPast | None:
    """Load an identified hybrid model with the initial-state estimation that its identification used.

    None if the run was not identified or adapted, or if its forecasts started from logged states.
    """
    folder = resolve_run(run)
    if folder.name == MECHANISM:
        folder = folder.parent
    path = next((p for p in (folder / "identification.json", folder / ADAPTATION) if p.is_file()), None)
    figures = {} if path is None else read_json(path)
    start = (figures.get("held_out") or {}).get("start") or figures.get("start", "logged")
    if start == "logged":
        return None
    record = AdaptationRecord if path is not None and path.name == ADAPTATION else IdentificationRecord
    usual = read_config(folder / "config.yaml", record).settings.context
    context = int(figures.get("context", usual))
    sizes = torch.tensor(list(figures["noise"].values()), dtype=torch.float64)
    model = HYBRID.load(run)
    model.compute_device = device
    return FromPast(model, context, Noise(*sizes.chunk(2)), start)


ALONG_LOG: KindOperation[Callable[[str | Path, str], FromPast | None]] = KindOperation(
    "model along a log", hybrid=as_identified
)
"""From a run and a device to its model for roll-outs along a log that start from estimated states, by kind.

None if they start from logged ones.
"""


Forecast = Callable[[Windows], Trajectory]
"""Maps windows, with their past, to the T + 1 states from their start on."""


def hybrid_forecast(
    dynamics: HybridDynamics, start: Start, context: int, noise: Noise, environments: RecordedEnvironments
) -> Forecast:
    """Return the forecast of a hybrid model from states as logged or estimated from `context` past frames."""

    @torch.no_grad()
    def forecast(windows: Windows) -> Trajectory:
        history = dynamics.spec.context
        begun = estimate_starts(dynamics, windows, context, start, noise, environments, history=history)
        return dynamics.rollout(context_of(begun), begun.commands, environments.of(begun))

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
    path = dynamics.rollout(State(windows.q[:, 0], windows.qd[:, 0]), windows.commands, environments.of(windows))
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


@dataclass(frozen=True)
class HeldOut:
    """Forecasts of held-out windows of a log by the models of an identification, and by others.

    Attributes:
        store: The log.
        settings: Settings of the identification.
        start: How forecasts start.
        history: Past frames that initialise memories of drives and networks.
        noise: Sensor noise.
        models: Hybrid models by name, the last one the best: "nominal", "identified", and "hybrid" with networks.
        beside: Other models by name.
    """

    store: Store
    settings: IdentificationSettings
    start: Start
    history: int
    noise: Noise
    models: Mapping[str, HybridDynamics]
    beside: Mapping[str, Dynamics]

    @property
    def context(self) -> int:
        """Past frames to which initial states are fitted."""
        return self.settings.context if self.start == "past" else 0

    @property
    def past(self) -> int:
        """Frames before a forecast: the most that any model uses."""
        return max(frames_before(self.context, self.history), *(m.spec.context for m in self.beside.values()), 0)

    @cached_property
    def environments(self) -> RecordedEnvironments:
        """Environments of the windows, with the quantities of the robot that the log gives by run."""
        own = list(self.models.values())[-1].own_quantities if self.store.header.of_robot else ()
        return RecordedEnvironments(self.store, names=own)

    @property
    def frames(self) -> int:
        """Frames of the roll-outs of the fit."""
        return max(1, round(self.settings.horizon / self.store.header.spec.dt))

    @property
    def forecasts(self) -> dict[str, Forecast]:
        """The forecasts by name."""
        forecasts = {
            name: hybrid_forecast(model, self.start, self.context, self.noise, self.environments)
            for name, model in self.models.items()
        }
        around = RecordedEnvironments(self.store)
        return forecasts | {name: model_forecast(model, around) for name, model in self.beside.items()}

    @cached_property
    def rollouts(self) -> tuple[Windows, dict[str, RolloutErrors]]:
        """Held-out windows with their past, and the roll-outs by model along them."""
        store, spec, past = self.store, self.store.header.spec, self.past
        split, forecasts = held_out_split(store), self.forecasts
        longest = int(store.lengths[store.episodes(split)].max()) if len(store.episodes(split)) else 0
        marks = [frame for s in self.settings.seconds if past + (frame := round(s / spec.dt)) <= longest]
        whole = select_windows(store, split, past + max(marks, default=self.frames), most=self.settings.rollouts)
        windows = whole.after(past)
        return whole, {name: RolloutErrors(spec, run(windows), truth_of(windows)) for name, run in forecasts.items()}

    def errors(self) -> dict[str, Any]:
        """Return errors by model, the noise floor, and a description of the windows, as fields of the results."""
        (whole, models), seconds, past = self.rollouts, self.settings.seconds, self.past
        nominal, best = models["nominal"], list(self.models)[-1]
        errors = models | {name.replace("_", "-"): nominal.baseline(name) for name in BASELINES}
        by_model = {name: horizon_errors(one, seconds) for name, one in errors.items()}
        floor = noise_floor(
            self.forecasts[best], self.models[best], whole, past, self.noise, self.environments,
            seed=self.settings.seed,
        )  # fmt: skip
        held_out = HeldOutWindows(
            starts=whole.count, moving_starts=int(is_moving(nominal.truth).sum()), moving_above=MOVING,
            seconds=[float(mark) for mark in by_model["nominal"]], split=held_out_split(self.store).name.lower(),
            start=self.start, context_frames=past,
        )  # fmt: skip
        return {"errors": by_model, "noise_floor": horizon_errors(floor, seconds), "held_out": held_out}

    def curves(self) -> Forecasts:
        """Return the curves of a typical and the worst window, and how errors grow."""
        return forecasts_of(self.rollouts[1], list(self.models)[-1], held_out_split(self.store).name.lower())

    def whole_runs(self) -> list[RunFit]:
        """Return the fits of whole held-out runs."""
        best, forecasts = list(self.models)[-1], self.forecasts
        measured = partial(
            own_motion, self.models[best], noise=self.noise, environments=self.environments, seed=self.settings.seed
        )
        return whole_runs(
            {name: forecasts[name] for name in self.models}, self.store, held_out_split(self.store),
            frames=self.frames, past=self.past, perfect=(forecasts[best], measured),
        )  # fmt: skip
