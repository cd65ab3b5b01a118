# SPDX-License-Identifier: Apache-2.0
"""Identify a robot from its logs: parameters first, then the networks of a blueprint together with the parameters."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import msgspec
import torch
from msgspec import UNSET, UnsetType
from torch import Tensor

from neurodyn.core import artifacts
from neurodyn.core.config import to_dict
from neurodyn.core.description.blueprint import Blueprint
from neurodyn.core.errors import InputError
from neurodyn.core.locks import exclusive
from neurodyn.core.progress import Progress
from neurodyn.core.provenance import package_versions
from neurodyn.core.workers import Executor, resolve_threads
from neurodyn.data.header import Split
from neurodyn.data.split import held_out_split
from neurodyn.data.store import Store
from neurodyn.data.training_range import training_range
from neurodyn.data.windows import Windows, select_windows
from neurodyn.dynamics.artifact import load_simulator
from neurodyn.dynamics.batch import RecordedEnvironments
from neurodyn.dynamics.hybrid.artifact import HYBRID
from neurodyn.dynamics.hybrid.declared import declared_mechanism
from neurodyn.dynamics.hybrid.model import HybridDynamics
from neurodyn.identify.certainty import Certainty, certainty, values_by_log
from neurodyn.identify.held_out import (
    Forecast,
    HorizonErrors,
    RunFit,
    baselines,
    forecast_errors,
    hybrid_forecast,
    model_forecast,
    noise_floor,
    own_motion,
    run_errors,
    whole_runs,
)
from neurodyn.identify.intervals import identifiability, require_blocks, require_seen, warning
from neurodyn.identify.inverse_dynamics import searched_torques, torque_errors, torque_samples
from neurodyn.identify.parameter_search import Searched, SearchEnd, search
from neurodyn.identify.population_search import rounds_done
from neurodyn.identify.priors import Prior, prior_of
from neurodyn.identify.readings import Noise, given_noise
from neurodyn.identify.residuals import Point, ResidualOptions, Residuals, require_finite
from neurodyn.identify.result import (
    HeldOutWindows,
    IdentificationFigures,
    IdentifiedParameter,
    Insensitive,
    Sample,
    SearchMinima,
    SensorErrors,
    TorqueErrors,
)
from neurodyn.identify.sensors import LogSensors, behind_log
from neurodyn.identify.settings import IdentificationRecord, IdentificationSettings
from neurodyn.identify.starts import Start, frames_before, start_of, started
from neurodyn.learn.devices import threads as torch_threads
from neurodyn.learn.hybrid import NETWORK_STATE, NetworkLearner, NetworkWindows
from neurodyn.learn.loop import Callback, TrainingLoop, has_state, other_data
from neurodyn.learn.metrics import MetricsLog
from neurodyn.learn.neural.train import require_data
from neurodyn.learn.plan import TrainingBudget, TrainState
from neurodyn.learn.run_folder import check_run, checksum
from neurodyn.multibody.engine import nominal
from neurodyn.robots import Robot

_DATA = "data"
_STATE = "parameters"
_HELD_OUT = 1000
_SHOWN = ("nominal", "identified", "hybrid")
_NETWORKS_FROM = 100_000
"""Step number at which the network stage starts in the metrics."""


@dataclass(frozen=True)
class Identification:
    """Result of an identification.

    Attributes:
        figures: Parameters with intervals, held-out errors and settings; `plain()` gives identification.json.
        sample: Forecasts of one held-out window.
        runs: Fits of whole held-out runs.
    """

    figures: IdentificationFigures
    sample: Sample
    runs: list[RunFit]


@dataclass(frozen=True)
class IdentificationProblem:
    """Robot, logs and free quantities of an identification.

    Attributes:
        robot: The robot.
        name: Name or path from which the robot is loaded again.
        data: Origin of the trajectories.
        store: The trajectories.
        parameters: Free parameters in the user's notation; see `core.description.parameter.select_parameters`.
        blueprint: Networks of the second stage; None for parameters alone.
        beside: Other runs, evaluated on the same held-out windows.
        device: Torch device of the roll-outs.
        executor: Distributes the search from many starts over workers; None for this process alone.
    """

    robot: Robot
    name: str
    data: str | tuple[str, ...]
    store: Store
    parameters: Sequence[str]
    blueprint: Blueprint | None = None
    beside: Sequence[str] = ()
    device: str = "cpu"
    executor: Executor | None = None


def identify(
    problem: IdentificationProblem,
    out: Path,
    settings: IdentificationSettings,
    *,
    resume: bool = False,
    progress: Progress | None = None,
    callbacks: Sequence[Callback] = (),
) -> Identification:
    """Identify the parameters of a robot and train the networks of a blueprint.

    Args:
        problem: Robot, logs and free quantities.
        out: Run directory: model, state, config.yaml, metrics.jsonl, identification.json.
        settings: Settings.
        resume: Whether to continue a killed identification of the same run.
        progress: Progress display.
        callbacks: Called during the training of the networks.

    Raises:
        InputError: The data belong to another robot, a quantity is unknown or its bounds exclude the nominal value, a
            parameter or a combination of parameters affects neither the data nor a prior, there are too few windows for
            a bootstrap, roll-outs are not finite, or the run exists or cannot be resumed.
    """
    # One torch thread keeps the order of sums the same on every machine; roll-outs use separate threads.
    with exclusive(out), torch_threads(1):
        return _Identification(problem, out, settings, progress, callbacks).run(resume)


def require_problem(problem: IdentificationProblem, settings: IdentificationSettings) -> None:
    """Check robot, data and quantities before any computation.

    Raises:
        InputError: A quantity or a sensor is unknown, or the data belong to another robot.
    """
    _Identification(problem, Path(), settings, None, ())


class _Identification:
    def __init__(
        self,
        problem: IdentificationProblem,
        out: Path,
        settings: IdentificationSettings,
        progress: Progress | None,
        callbacks: Sequence[Callback],
    ) -> None:
        self.out, self.settings, self.progress, self.callbacks = out, settings, progress, callbacks
        self.inverse = settings.method == "inverse-dynamics"
        self.declared = problem.robot
        self.problem = problem = replace(problem, robot=behind_log(problem.robot, problem.store.header, settings))
        behind = problem.robot is not self.declared
        self.engine = settings.engine(problem.robot)
        self.mechanism, self.fingerprint, self.scene = declared_mechanism(problem.robot, self.engine.contact)
        quantities = nominal(self.mechanism, self.engine.contact)
        self.sensing = LogSensors.of(
            problem.robot, problem.store, settings, quantities, problem.parameters, self.mechanism.bounds()
        )
        require_data(problem.robot, problem.store)
        self.specs = self.sensing.specs
        if problem.beside and behind:
            raise InputError("beside: other models take torques, and the data hold targets; valid: no --beside")
        self.start: Start = start_of(problem.store, settings.start)
        networks = (problem.blueprint or Blueprint()).augmentations
        if behind and any(name.startswith("control.") for one in networks for name in one.inputs):
            raise InputError(
                "identification: the data hold targets, not torques; valid: networks without control inputs"
            )
        acting = any(not drive.prescribes_motion for drive in self.declared.drives.values())
        remembers = acting or any(one.remembers for one in networks)
        self.context = settings.context if self.start == "past" else 0
        self.history = settings.history if remembers else 0
        self.hybrid = self.model(problem.blueprint) if problem.blueprint and problem.blueprint.augmentations else None
        self.beside = {name: load_simulator(name) for name in problem.beside}
        self.environments = RecordedEnvironments(problem.store)
        self.frames = max(1, round(settings.horizon / problem.robot.spec.dt))
        self.starts = settings.starts_of(spec.name for spec in self.specs)
        self.warnings = [
            f"the data hold {name!r}, which no sensor names: it is not compared" for name in self.sensing.unused
        ]
        self.started_at, self.spent_before = time.perf_counter(), self._clock()

    def model(self, blueprint: Blueprint | None = None) -> HybridDynamics:
        """Return a model with nominal parameters, behind the drives of a log of targets."""
        settings = self.settings
        config = msgspec.structs.replace(self.engine, blueprint=blueprint or Blueprint(), context=self.history)
        model = HybridDynamics(
            self.problem.robot.spec, self.mechanism, config, self.sensing.model, self.fingerprint, self.scene,
            declaration=self.problem.name, threads=resolve_threads(settings.threads), seed=settings.seed,
        )  # fmt: skip
        model.training_range = training_range(self.problem.store)
        model.compute_device = self.problem.device
        return model

    def save(self, model: HybridDynamics) -> None:
        """Save a model, which takes the commands of the declared robot."""
        own = model if self.problem.robot is self.declared else model.with_drives(self.declared.drives)
        assert own is not None  # no network sees the log's targets
        HYBRID.save(self.out, own)

    def run(self, resume: bool) -> Identification:
        record = IdentificationRecord(
            kind="hybrid", robot=self.problem.name, data=self.problem.data, parameters=self.specs,
            blueprint=self.problem.blueprint or Blueprint(), settings=self.settings,
            versions=package_versions("torch", "newton", "scipy"),
        )  # fmt: skip
        going_on = check_run(self.out, record, resume, _DATA)
        identified = self.model()
        residuals = self._residuals(identified)
        if going_on:
            self._require_same_data()
        else:
            if not self.inverse:
                require_finite(residuals, residuals.start(residuals.space.nominal[None]))
                self._check_start(residuals)
            crc = checksum(self.problem.store)
            artifacts.write_json(self.out / "state" / f"{_DATA}.json", {"crc": crc, "warnings": self.warnings})
        with MetricsLog(self.out, _metrics_step(self.out) if going_on else 0) as metrics:
            metrics.start(record, self.problem.device)
            searched, known = self._solved(residuals, metrics, going_on)
            residuals = searched.residuals
            values = residuals.space.values(searched.point.x)[0].detach()
            for model in filter(None, (identified, self.hybrid)):
                model.physical.set_values(values[: len(model.physical.specs)])
            if self.hybrid is None:
                self.save(identified)
            else:
                self._networks(identified, residuals, metrics, going_on)
            runs = self._whole_runs(identified, residuals.noise)
            result = self._result(identified, searched, known, values, runs)
            artifacts.write_json(self.out / "identification.json", result.plain())
            metrics.show_table("parameters", *_table(result.parameters))
            metrics.conclude(converged=result.converged, reason=result.reason, seconds=result.seconds)
        return Identification(result, self._sample(identified, residuals.noise), runs)

    def _residuals(self, model: HybridDynamics) -> Residuals:
        settings, store = self.settings, self.problem.store
        past = self.history if model.memory else 0
        windows = select_windows(
            store, Split.TRAIN, past + self.frames, stride=self.frames, most=settings.windows, moving=settings.moving,
            seed=settings.seed,
        ).after(past)  # fmt: skip
        noise = given_noise(model.spec, settings.noise_q, settings.noise_qd, windows)
        options = ResidualOptions(
            settings.positions, settings.velocities, settings.huber, settings.initial == "free",
            settings.torque_offset, settings.per_log,
        )  # fmt: skip
        prior, measured = prior_of(self.specs, settings.prior), self.sensing.measured(model, windows)
        return Residuals(
            model, windows, noise, options, measured=measured, environments=self.environments, prior=prior
        )  # fmt: skip

    def _check_start(self, residuals: Residuals) -> None:
        if self.settings.bootstrap:
            require_blocks(residuals)
        analysis = identifiability(residuals, residuals.start(residuals.space.nominal[None]))
        require_seen(analysis, self.problem.robot.name)
        text = warning(analysis)
        if text is not None:
            self.warnings.append(f"at the start, {text}")

    def _solved(self, residuals: Residuals, metrics: MetricsLog, going_on: bool) -> tuple[Searched, Certainty]:
        """Return the solution of the parameter search and its uncertainty."""
        settings = self.settings
        if self.inverse:
            samples = torque_samples(self.problem.store, Split.TRAIN, settings.smoothing)
            return searched_torques(residuals, self.mechanism, samples, settings.inertial_prior)
        searched = self._parameters(residuals, metrics, going_on)
        return searched, certainty(searched, settings, self.out, going_on, self._report)

    def _parameters(self, residuals: Residuals, metrics: MetricsLog, going_on: bool) -> Searched:
        """Search the parameters, or read the finished search of a resumed run."""
        saved = artifacts.read_tree(self.out / "state", _STATE) if going_on and has_state(self.out, _STATE) else {}
        if saved:
            residuals = residuals.with_scale(saved["scale"], Noise(*saved["noise"].chunk(2)))
            point = Point(saved["x"], saved["local"], saved["initial"])
            flags = [bool(flag) for flag in saved["flags"]]
            end = SearchEnd(flags[0], flags[1], int(saved["iterations"]), flags[2], flags[3])
            return Searched(residuals, point, end, saved["ends"], saved["costs"])
        step = 0

        def report(stage: str, _: int, cost: float, worst: float) -> bool:
            nonlocal step
            step += 1
            metrics.write(step, stage=stage, cost=cost, worst=worst)
            most = self.settings.iterations + (step if self.starts else 0)  # unknown with several starts
            self._show(self._searching * min(step / most, 1.0), f"{stage}, cost {cost:.6g}")
            return self._out_of_time()

        found = search(
            residuals, self.settings, self.starts, report, run=self.out, resume=going_on,
            executor=self.problem.executor,
        )  # fmt: skip
        point, end = found.point, found.end
        flags = torch.tensor([end.settled, end.moved, end.out_of_time, end.derivatives], dtype=torch.uint8)
        tree = {
            "x": point.x, "local": point.local, "initial": point.initial, "scale": found.residuals.scale,
            "noise": found.residuals.noise.joined, "ends": found.ends, "costs": found.costs, "flags": flags,
            "iterations": end.iterations,
        }  # fmt: skip
        artifacts.write_tree(self.out / "state", _STATE, tree)
        return found

    def _report(self, what: str, done: int, everything: int) -> bool:
        share = self._searching + (1.0 - self._searching) * done / everything
        self._show(share, f"{what}, {done} of {everything}")
        return self._out_of_time()

    def _networks(self, identified: HybridDynamics, residuals: Residuals, metrics: MetricsLog, going_on: bool) -> None:
        assert self.hybrid is not None
        settings, model = self.settings, self.hybrid
        windows = NetworkWindows(
            train=self._started_windows(identified, Split.TRAIN, settings.network.windows, residuals.noise),
            held_out=self._started_windows(identified, Split.VALIDATION, _HELD_OUT, residuals.noise),
            scale=residuals.channel_scale,
            environments=self.environments,
        )
        network, budget = settings.network, TrainingBudget(settings.network.steps)
        if settings.minutes is not None:
            used = (self._clock() - self.spent_before) / 60.0
            budget = TrainingBudget(minutes=max(0.05, settings.minutes - used), clock=settings.clock)
        learner = NetworkLearner(model, windows, network, seed=settings.seed, save=self.save)
        loop = TrainingLoop(
            learner, budget, self.out, name=NETWORK_STATE, validations=network.validations, patience=network.patience,
            callbacks=self.callbacks, progress=self.progress,
        )  # fmt: skip
        if going_on and has_state(self.out, NETWORK_STATE):
            loop.resume()
        end = loop.run(metrics.after(_NETWORKS_FROM))
        if end.skipped:
            self.warnings.append(f"{end.skipped} steps were left out because their gradient was not finite")

    def _started_windows(self, model: HybridDynamics, split: Split, most: int, noise: Noise) -> Windows:
        moving = self.settings.moving if self.settings.network.moving else None
        before = frames_before(self.context, self.history)
        windows = select_windows(self.problem.store, split, self.frames + before, most=most, moving=moving)
        begun = started(model, windows, self.context, self.start, noise, self.environments, history=self.history)
        return begun if begun.past is not None or not self.history else replace(begun, past=windows.cut(0, before))

    def _result(
        self, identified: HybridDynamics, searched: Searched, known: Certainty, values: Tensor, runs: list[RunFit]
    ) -> IdentificationFigures:
        residuals, analysis = searched.residuals, known.analysis
        text = warning(analysis)
        if text is not None:
            self.warnings.append(f"at the solution, {text}")
        together = None if self.hybrid is None else self.hybrid.physical().detach()
        prior = residuals.prior
        before = prior.by_name(self.specs) if isinstance(prior, Prior) else {}
        parameters = known.identified_parameters(self.specs, values, before, together)
        self.warnings += known.warnings(parameters)
        by_log = values_by_log(residuals, searched.point, analysis.variance)
        parameters = [
            msgspec.structs.replace(entry, by_log=by_log[entry.name]) if entry.name in by_log else entry
            for entry in parameters
        ]
        errors, floor, windows = self._errors(identified, residuals.noise)
        return IdentificationFigures(
            robot=self.problem.robot.name,
            kind=identified.kind,
            parameters=parameters,
            converged=known.convergence.converged,
            reason=known.convergence.reason,
            intervals="torques" if self.inverse else "sandwich" if known.resamples is None else "bootstrap",
            blocks=known.blocks,
            resamples=UNSET if known.resamples is None else len(known.resamples.values),
            ends=self._minima(searched),
            profiles=UNSET if known.profiles is None else known.profiles,
            runs=run_errors(runs),
            errors=errors,
            noise_floor=floor,
            held_out=windows,
            singular_values=list(analysis.singular_values),
            condition=analysis.condition,
            insensitive=[Insensitive(direction=d.text, deviation=d.deviation) for d in analysis.insensitive],
            residual_deviation=analysis.variance**0.5,
            noise=dict(zip(residuals.channels, residuals.noise.joined.tolist(), strict=False)),
            scale=dict(zip(residuals.channels, residuals.scale.tolist(), strict=True)),
            windows=residuals.windows.count,
            logs=len(residuals.windows.logs),
            horizon_s=self.frames * self.problem.robot.spec.dt,
            weights=0 if self.hybrid is None else self.hybrid.weights.numel(),
            blueprint=to_dict(self.problem.blueprint or Blueprint()),
            warnings=self.warnings,
            seconds=time.perf_counter() - self.started_at,
            seed=self.settings.seed,
            sensors=self._sensor_errors(residuals, searched.point),
            torque=self._torque_errors(values),
        )

    def _torque_errors(self, values: Tensor) -> TorqueErrors | UnsetType:
        if not self.inverse:
            return UNSET
        store = self.problem.store
        return torque_errors(self.mechanism, store, held_out_split(store), self.settings.smoothing, self.specs, values)

    def _sensor_errors(self, residuals: Residuals, point: Point) -> dict[str, SensorErrors]:
        """Return the errors of sensors on held-out windows, with roll-outs from the logged states."""
        if residuals.measured is None:
            return {}
        store, fitted_noise = self.problem.store, residuals.scale[-len(residuals.measured.channels) :]
        windows = select_windows(
            store, held_out_split(store), self.frames, stride=self.frames, most=self.settings.windows
        )
        try:
            measured = self.sensing.measured(residuals.dynamics, windows)
        except InputError as error:
            self.warnings.append(f"held-out windows: {error}")
            return {}
        assert measured is not None
        held_out = residuals.with_windows(windows, measured)
        both = torch.stack([residuals.space.nominal, point.x[0]])
        errors = held_out.errors(held_out.start(both))[..., -len(measured.channels) :]
        nominal, found = measured.deviations(errors).tolist()
        return {
            name: SensorErrors(nominal=before, identified=after, noise=float(noise))
            for name, before, after, noise in zip(measured.channels, nominal, found, fitted_noise, strict=True)
        }

    def _minima(self, searched: Searched) -> SearchMinima | UnsetType:
        if not len(searched.ends):
            return UNSET
        values = {spec.name: searched.ends[:, k].tolist() for k, spec in enumerate(self.specs)}
        return SearchMinima(starts=self.starts, costs=searched.costs.tolist(), values=values)

    def _whole_runs(self, identified: HybridDynamics, noise: Noise) -> list[RunFit]:
        split = held_out_split(self.problem.store)
        forecasts = self._forecasts(identified, noise)
        best, model = ("hybrid", self.hybrid) if self.hybrid is not None else ("identified", identified)
        measured = partial(own_motion, model, noise=noise, environments=self.environments, seed=self.settings.seed)
        return whole_runs(
            {name: forecasts[name] for name in _SHOWN if name in forecasts}, self.problem.store, split,
            frames=self.frames, past=self._past(), perfect=(forecasts[best], measured),
        )  # fmt: skip

    def _forecasts(self, identified: HybridDynamics, noise: Noise) -> dict[str, Forecast]:
        hybrids = {"nominal": self.model(), "identified": identified}
        if self.hybrid is not None:
            hybrids["hybrid"] = self.hybrid
        return {
            **{n: hybrid_forecast(m, self.start, self.context, noise, self.environments) for n, m in hybrids.items()},
            **{name: model_forecast(m, self.environments) for name, m in self.beside.items()},
            **baselines(self.problem.robot.spec),
        }

    def _errors(
        self, identified: HybridDynamics, noise: Noise
    ) -> tuple[dict[str, dict[str, HorizonErrors]], dict[str, HorizonErrors], HeldOutWindows]:
        """Return errors on held-out windows by model, the noise floor, and a description of the windows."""
        store, dt, seconds = self.problem.store, self.problem.robot.spec.dt, self.settings.seconds
        split = held_out_split(store)
        past = self._past()
        longest = int(store.lengths[store.episodes(split)].max()) if len(store.episodes(split)) else 0
        frames = max([round(s / dt) for s in seconds if past + round(s / dt) <= longest] or [self.frames])
        windows = select_windows(store, split, past + frames, most=self.settings.rollouts)
        errors = forecast_errors(self._forecasts(identified, noise), self.problem.robot.spec, windows, past, seconds)
        floor = noise_floor(
            self.hybrid or identified, windows, past, noise, self.environments, start=self.start,
            context=self.context, seconds=seconds, seed=self.settings.seed,
        )  # fmt: skip
        held_out = HeldOutWindows(
            starts=errors.starts, moving_starts=errors.moving_starts, moving_above=errors.moving_above,
            seconds=errors.seconds, split=split.name.lower(), start=self.start, context_frames=past,
        )  # fmt: skip
        return errors.by_model, floor, held_out

    def _past(self) -> int:
        """Return the number of frames before a held-out forecast: the most that any model uses."""
        return max([frames_before(self.context, self.history), *(model.spec.context for model in self.beside.values())])

    def _sample(self, identified: HybridDynamics, noise: Noise) -> Sample:
        """Return one held-out window with motion, and the forecast of each model for it."""
        store, spec, past = self.problem.store, self.problem.robot.spec, self._past()
        windows = select_windows(store, held_out_split(store), past + self.frames, most=200)
        speed = windows.qd.abs().mean((1, 2))
        row = windows.rows(speed.argsort()[[-1 - len(speed) // 4]])
        paths = {name: f(row, past) for name, f in self._forecasts(identified, noise).items() if name in _SHOWN}
        return Sample(
            dt=spec.dt,
            names=list(spec.q_names),
            logged=row.cut(past).q[0].T.tolist(),
            paths={name: path.q[0].detach().T.tolist() for name, path in paths.items()},
        )

    @property
    def _searching(self) -> float:
        """Return the estimated share of the work for the parameter search."""
        more = self.hybrid is not None or self.settings.bootstrap or self.settings.profile
        return 0.2 if more else 1.0

    def _out_of_time(self) -> bool:
        minutes = self.settings.minutes
        if minutes is None:
            return False
        share = 1.0 if self.hybrid is None else self.settings.parameter_share
        return self._clock() - self.spent_before > 60.0 * minutes * share

    def _clock(self) -> float:
        """Return the time that counts towards the budget [s]."""
        return time.process_time() if self.settings.clock == "cpu" else time.perf_counter()

    def _show(self, done: float, text: str) -> None:
        if self.progress is not None:
            self.progress.update(min(done, 0.99), text)

    def _require_same_data(self) -> None:
        saved = artifacts.read_json(self.out / "state" / f"{_DATA}.json")
        if saved.get("crc") != checksum(self.problem.store):
            raise other_data(self.out)
        self.warnings = list(saved.get("warnings", []))


def _metrics_step(out: Path) -> int:
    """Return the last step in the metrics of a killed run."""
    if has_state(out, NETWORK_STATE):
        saved = artifacts.read_tree(out / "state", NETWORK_STATE)
        return _NETWORKS_FROM + TrainState.read(saved["position"]).step
    if has_state(out, _STATE):
        return _NETWORKS_FROM - 1
    return rounds_done(out)


def _table(parameters: Sequence[IdentifiedParameter]) -> tuple[list[str], list[list[str]]]:
    """Return header and rows of a table of identified quantities."""
    rows = []
    for parameter in parameters:
        interval = ["", ""] if parameter.interval is None else [f"{bound:.6g}" for bound in parameter.interval]
        rows.append([parameter.name, f"{parameter.value:.6g}", *interval, f"{parameter.nominal:.6g}"])
    return ["name", "value", "from", "to", "declared"], rows
