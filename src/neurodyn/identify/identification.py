# SPDX-License-Identifier: Apache-2.0
"""Identification of a robot from its logs, from quantities to results; an adaptation has other defaults.

Quantities, stages of least squares (or one search, or inverse dynamics), intervals, networks on top, errors on held-out
windows, a ladder of models judged on whole held-out episodes, and the motion to log next.
"""

import math
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
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
from neurodyn.core.memory import keeping_memory
from neurodyn.core.progress import Progress, present_work, showing, stage, tell
from neurodyn.core.provenance import package_versions
from neurodyn.core.workers import Beside, resolve_threads
from neurodyn.data.command_parts import part_count
from neurodyn.data.header import Split
from neurodyn.data.split import held_out_split
from neurodyn.data.windows import Windows, select_windows
from neurodyn.dynamics.artifact import load_simulator
from neurodyn.dynamics.batch import RecordedEnvironments
from neurodyn.dynamics.hybrid.artifact import HYBRID
from neurodyn.dynamics.hybrid.model import HybridDynamics
from neurodyn.identify.base_states import BaseEstimates, split_mounting, with_one_mass
from neurodyn.identify.confidence.certainty import (
    Certainty,
    certainty,
    coordinate_parameters,
    hold_undetermined,
    posterior_sample,
    values_by_log,
)
from neurodyn.identify.confidence.delays import delay_figures
from neurodyn.identify.confidence.joint_regions import joint_regions
from neurodyn.identify.confidence.parameter_search import Searched, search
from neurodyn.identify.confidence.refits import refit, write_refits
from neurodyn.identify.doubts.checks import doubts_about
from neurodyn.identify.doubts.evidence import Evidence, FitEvidence
from neurodyn.identify.doubts.log_doubts import explaining
from neurodyn.identify.doubts.run_influence import decided_by_one_run
from neurodyn.identify.fit.intervals import identifiability, require_blocks, require_seen, warning
from neurodyn.identify.fit.readings import noise_of
from neurodyn.identify.fit.residuals import Point, ResidualOptions, Residuals, require_finite
from neurodyn.identify.inverse_dynamics import search_torques, torque_errors, torque_samples
from neurodyn.identify.ladder.forecasts import beside_signals, forecasts_of, write_forecasts
from neurodyn.identify.ladder.held_out import HeldOut, run_errors
from neurodyn.identify.ladder.initial_states import Start, estimate_starts, frames_before, start_of
from neurodyn.identify.ladder.network_choice import keep_better_network
from neurodyn.identify.ladder.network_rung import with_networks
from neurodyn.identify.ladder.own_quantities import own_quantities, with_groups
from neurodyn.identify.ladder.references import TrainedReference, train_references
from neurodyn.identify.ladder.rungs import (
    DECLARED,
    FRAMES,
    IDENTIFIED,
    NETWORKS,
    NETWORKS_FROM,
    Ladder,
    beyond_noise,
)
from neurodyn.identify.ladder.structures import FitModel, structures
from neurodyn.identify.logs import check_log
from neurodyn.identify.motors import stated_gains
from neurodyn.identify.next_motion import can_be_moved, next_motion
from neurodyn.identify.result import (
    IdentificationFigures,
    IdentifiedParameter,
    Insensitive,
    LogCheck,
    RunFit,
    SensorErrors,
    TorqueErrors,
    TriedStructure,
    UnseenPayload,
)
from neurodyn.identify.sensors import LogSensors, behind_log, sensor_errors
from neurodyn.identify.settings import (
    AdaptationRecord,
    AdaptationSettings,
    IdentificationRecord,
    IdentificationSettings,
)
from neurodyn.identify.stages.agreement import LogComparison
from neurodyn.identify.stages.growing_windows import Fitting
from neurodyn.identify.stages.lasting_errors import LEARNABLE, LastingError
from neurodyn.identify.stages.problem import STATE, Identification, IdentificationProblem, SettledFit, last_step
from neurodyn.identify.stages.stage_windows import past_frames, tells_little
from neurodyn.identify.stages.staged_fit import fit_in_stages
from neurodyn.identify.unknowns.priors import Prior, UnitPrior, prior_of
from neurodyn.identify.unknowns.quantities import is_coupled
from neurodyn.identify.unknowns.search_space import CoordinateSpace
from neurodyn.learn.budget import TrainingBudget, counted_seconds
from neurodyn.learn.devices import threads as torch_threads
from neurodyn.learn.hybrid import NETWORK_STATE, NetworkLearner, NetworkWindows
from neurodyn.learn.loop import Callback, TrainingLoop, has_state, other_data
from neurodyn.learn.manifest import RunRecord
from neurodyn.learn.metrics import MetricsLog
from neurodyn.learn.neural.train import require_data
from neurodyn.learn.run_folder import check_run, checksum
from neurodyn.sim.draws import POSTERIOR

_DATA = "data"
_STRUCTURES_UNTIL, _NETWORKS_UNTIL = 0.3, 0.7
"""Shares of a budget of minutes after which an adaptation tries no more structures, and no networks on top."""
_HELD_OUT = 1000


def identify(
    problem: IdentificationProblem,
    out: Path,
    settings: IdentificationSettings,
    *,
    resume: bool = False,
    progress: Progress | None = None,
    callbacks: Sequence[Callback] = (),
) -> Identification:
    """Identify the parameters of a robot and train networks on top.

    Args:
        problem: Robot, logs and free quantities.
        out: Run directory: model, state, config.yaml, metrics.jsonl, identification.json or adaptation.json.
        settings: Settings.
        resume: Whether to continue a killed identification of the same run.
        progress: Progress display; None for that of the present work.
        callbacks: Called during the training of a blueprint's networks.

    Raises:
        InputError: The data belong to another robot, a quantity is unknown or its bounds exclude the nominal value, a
            parameter or a combination of parameters affects neither the data nor a prior, there are too few windows for
            a bootstrap, roll-outs are not finite, or the run exists or cannot be resumed.
    """
    # One torch thread keeps the order of sums the same on every machine; roll-outs use separate threads.
    shown = nullcontext() if progress is None else showing(progress)
    with exclusive(out), torch_threads(1), keeping_memory(), shown:
        return _Identification(problem, out, settings, callbacks).run(resume)


def finished_fit(
    problem: IdentificationProblem, run: Path, settings: IdentificationSettings
) -> tuple[Fitting, SettledFit]:
    """Return the fit by stages of a run, from its saved state.

    Raises:
        InputError: The run holds no finished fit by stages, or one of other data.
    """
    one = _Identification(problem, run, settings, ())
    if not settings.stages or not has_state(run, STATE):
        raise InputError(f"{run}: holds no finished fit by stages; valid: a run of neurodyn adapt")
    one._require_same_data()
    with torch_threads(1):
        fit = one._settle(*one._solve(None, None, going_on=True))
    assert one.fitting is not None
    return one.fitting, fit


def require_problem(problem: IdentificationProblem, settings: IdentificationSettings) -> None:
    """Check robot, data and quantities before any computation.

    Raises:
        InputError: A quantity or a sensor is unknown, or the data belong to another robot.
    """
    _Identification(problem, Path(), settings, ())


class _Identification:
    def __init__(
        self, problem: IdentificationProblem, out: Path, settings: IdentificationSettings, callbacks: Sequence[Callback]
    ) -> None:
        self.out, self.settings, self.callbacks = out, settings, callbacks
        self.started_at, self.cpu_start, self.cpu_elsewhere = time.perf_counter(), time.process_time(), 0.0
        self.inverse, self.threads = settings.method == "inverse-dynamics", resolve_threads(settings.threads)
        self.declared = problem.robot
        self.problem = problem = replace(problem, robot=behind_log(problem.robot, problem.store.header, settings))
        behind = problem.robot is not self.declared
        recorded = tuple(problem.store.header.parameters) if problem.store.header.of_robot else ()
        declared = FitModel.declared(problem.robot, problem.name, settings, recorded, part_count(problem.store.header))
        stated = stated_gains(problem.robot, problem.store.header, settings.drives)
        declared = replace(declared, stated={one: value for one, value in stated.items() if one in declared.nominal})
        quantities, asked, mounting = declared.nominal, problem.parameters, False
        sensors = {**problem.robot.sensors, **settings.sensors}
        if problem.store.header.base != "measured":
            asked, mounting = split_mounting(asked, problem.store.header, sensors)
        if settings.stages and (problem.store.header.base != "measured" or declared.walks(problem.store.header)):
            self.settings = settings = with_one_mass(settings, declared.mechanism, asked)
        coupled = bool(settings.quantities or recorded)
        coupled = coupled or is_coupled(problem.robot, declared.mechanism, quantities, asked)
        if tells_little(problem.store):
            self.settings = settings = msgspec.structs.replace(settings, structures=False, networks=False)
        self.sensing = LogSensors.of(
            problem.robot, problem.store, settings, quantities, () if coupled else asked, declared.mechanism.bounds()
        )
        if coupled:
            self.models = structures(declared, settings, asked)
        else:
            self.models = [replace(declared, free=self.sensing.model)]
        self.model = self.models[0]
        require_data(problem.robot, problem.store)
        self.specs = self.model.free if coupled else self.sensing.specs
        if problem.beside and behind:
            raise InputError("beside: other models take torques, and the data hold targets; valid: no --beside")
        self.start: Start = start_of(problem.store, settings.start)
        networks = (problem.blueprint or Blueprint()).augmentations
        if networks and settings.stages:
            raise InputError("identification: a blueprint is trained after one search; valid with it: no stages")
        if behind and any(name.startswith("control.") for one in networks for name in one.inputs):
            raise InputError(
                "identification: the data hold targets, not torques; valid: networks without control inputs"
            )
        acting = any(not drive.constrains for drive in self.declared.drives.values())
        remembers = acting or any(one.remembers for one in networks)
        self.context = settings.context if self.start == "past" else 0
        self.history = settings.history if remembers and not settings.stages else 0
        self.hybrid = self.dynamics(problem.blueprint) if networks else None
        self.beside = {name: load_simulator(name) for name in problem.beside}
        self.environments = RecordedEnvironments(problem.store, names=recorded)
        self.frames = max(1, round(settings.horizon / problem.robot.spec.dt))
        self.starts = settings.starts_of(spec.name for spec in self.specs)
        self.logged = problem.store
        self.estimates = None
        if self.logged.header.base != "measured":
            self._require_stages()
            self.estimates = BaseEstimates(self.logged, sensors, mounting=mounting)
        elif settings.sensors and settings.stages:
            raise InputError(
                "sensors are given, but a fit in stages compares states where the base is measured; valid: "
                "no sensors with stages"
            )
        self.warnings = [
            f"the data hold {name!r}, which no sensor names: it is not compared"
            for name in self.sensing.unused
            if self.estimates is None or name not in self.estimates.streams
        ]
        self.fitting: Fitting | None = None
        self.rigid: HybridDynamics | None = None
        self.tried: list[TriedStructure] = []
        self.lasting: list[LastingError] = []
        self.unseen: UnseenPayload | UnsetType = UNSET

    def _require_stages(self) -> None:
        if not self.settings.stages:
            raise InputError(
                f"data of {self.problem.robot.name!r}: the base is unmeasured, and `identify` compares states; valid: "
                "neurodyn adapt, or `stages` in the settings"
            )

    def dynamics(self, blueprint: Blueprint | None = None) -> HybridDynamics:
        """Return the declared model, behind the drives of a log of targets."""
        return self.model.dynamics(
            self.problem.store, self.threads, blueprint=blueprint, context=self.history, seed=self.settings.seed,
            device=self.problem.device,
        )  # fmt: skip

    def save(self, model: HybridDynamics) -> None:
        """Save a model, which takes the commands of the declared robot."""
        own = model if self.problem.robot is self.declared else model.with_drives(self.declared.drives)
        assert own is not None  # no network sees the log's targets
        own.sensors = {} if self.estimates is None else self.estimates.remounted
        HYBRID.save(self.out, own)

    def run(self, resume: bool) -> Identification:
        settings, store = self.settings, self.problem.store
        record = self._record()
        going_on = check_run(self.out, record, resume, _DATA)
        with stage(0.0, 0.05, "checking the logs"):
            log = check_log(self.problem.robot, store) if settings.ladder else None
        residuals = None if settings.stages else self._residuals(self.dynamics())
        if going_on:
            self._require_same_data()
        else:
            if residuals is not None and not self.inverse:
                require_finite(residuals, residuals.start(residuals.space.nominal[None]))
                self._check_start(residuals)
            artifacts.write_json(
                self.out / "state" / f"{_DATA}.json", {"crc": checksum(store), "warnings": self.warnings}
            )
        last = last_step(self.out) if going_on else 0
        with MetricsLog(self.out, last) as metrics, self._references(log) as references:
            metrics.start(record, self.problem.device)
            share = 0.25 if self.hybrid is not None else 0.5 if residuals is None else 0.9
            with explaining(store, self.problem.robot), stage(0.05, share):
                searched, known = self._solve(residuals, metrics, going_on)
            fit = self._settle(searched, known)
            if self.hybrid is not None:
                self._train_blueprint(fit, metrics, going_on)
            elif not settings.ladder:
                self.save(fit.dynamics)
            held_out = self._held_out(fit) if settings.rollouts else None
            if held_out is not None:
                write_forecasts(self.out, held_out.curves())
            runs = [] if held_out is None else held_out.whole_runs()
            figures, dynamics = self._figures(fit, held_out, runs, log, metrics, references)
            artifacts.write_json(self.out / figures.file, figures.plain())
            metrics.show_table("parameters", *figures.table())
            if figures.chosen is not UNSET:
                metrics.conclude(chosen=figures.chosen, verdict=figures.verdict, cpu_seconds=figures.cpu_seconds)
            else:
                metrics.conclude(
                    converged=figures.converged, reason=figures.reason, verdict=figures.verdict, seconds=figures.seconds
                )
        return Identification(figures, dynamics, runs)

    def _record(self) -> RunRecord[IdentificationSettings] | RunRecord[AdaptationSettings]:
        problem, settings, versions = self.problem, self.settings, package_versions("torch", "newton", "scipy")
        if isinstance(settings, AdaptationSettings):
            return AdaptationRecord(
                kind="hybrid", robot=problem.name, data=problem.data, settings=settings, versions=versions
            )
        return IdentificationRecord(
            kind="hybrid", robot=problem.name, data=problem.data, parameters=self.specs,
            blueprint=problem.blueprint or Blueprint(), settings=settings, versions=versions,
        )  # fmt: skip

    def _residuals(self, model: HybridDynamics) -> Residuals:
        settings, store = self.settings, self.problem.store
        past = self.history if model.memory else 0
        windows = select_windows(
            store, Split.TRAIN, past + self.frames, stride=self.frames, most=settings.windows, moving=settings.moving,
            seed=settings.seed,
        ).after(past)  # fmt: skip
        noise = noise_of(model.spec, settings.noise_q, settings.noise_qd, windows)
        options = ResidualOptions(
            settings.positions, settings.velocities, settings.huber, settings.initial == "free",
            settings.torque_offset, settings.per_log,
        )  # fmt: skip
        space, measured = self.model.space, self.sensing.measured(model, windows)
        prior = prior_of(self.specs, settings.prior) if space is None else UnitPrior()
        return Residuals(
            model, windows, noise, options, measured=measured, environments=self.environments, space=space, prior=prior
        )  # fmt: skip

    def _check_start(self, residuals: Residuals) -> None:
        if self.settings.bootstrap:
            require_blocks(residuals)
        analysis = identifiability(residuals, residuals.start(residuals.space.nominal[None]))
        require_seen(analysis, self.problem.robot.name)
        if (text := warning(analysis)) is not None:
            self.warnings.append(f"at the start, {text}")

    def _solve(
        self, residuals: Residuals | None, metrics: MetricsLog | None, going_on: bool
    ) -> tuple[Searched, Certainty]:
        settings = self.settings
        alone = 0.3 if settings.bootstrap or settings.profile else 1.0
        with stage(0.0, alone):
            if residuals is None:
                searched = self._fit_in_stages(metrics, going_on)
            elif self.inverse:
                samples = torque_samples(self.problem.store, Split.TRAIN, settings.smoothing)
                return search_torques(residuals, self.model.mechanism, samples, settings.inertial_prior)
            else:
                searched = self._search(residuals, metrics, going_on)
        with stage(alone, 1.0):
            return searched, certainty(searched, settings, self.out, going_on, self._report)

    def _fit_in_stages(self, metrics: MetricsLog | None, going_on: bool) -> Searched:
        """Fit the structures in stages, or read the finished fit of a resumed run."""
        settings, store, step = self.settings, self.problem.store, 0
        expected = len(self.models) * settings.screen_iterations + sum(one.iterations for one in settings.stages)

        def report(name: str, iteration: int, cost: float) -> None:
            nonlocal step
            step += 1
            if metrics is not None:
                metrics.write(step, stage=name, iteration=iteration, cost=cost)
            # Most stages end after half of their iterations, and structures that are tried add to them.
            tell(-math.expm1(-1.5 * step / expected), f"{name}, cost {cost:.4g}")

        done = fit_in_stages(
            self.models, store, settings, self.threads, self.out, report, resume=going_on, estimates=self.estimates,
            late=lambda: self._spent_more_than(_STRUCTURES_UNTIL),
        )  # fmt: skip
        self.problem = replace(self.problem, store=done.fitting.store)
        self.fitting, self.tried, self.unseen = done.fitting, done.tried, done.unseen or UNSET
        self.lasting = done.lasting
        self.rigid = None if done.rigid is None else self._at(*done.rigid)
        return done.searched

    def _at(self, model: FitModel, x: Tensor) -> HybridDynamics:
        """Return the dynamics of a structure at coordinates x."""
        assert model.space is not None
        dynamics = model.dynamics(self.problem.store, self.threads, device=self.problem.device)
        dynamics.physical.set_values(model.space.values(x).detach())
        return dynamics

    def _search(self, residuals: Residuals, metrics: MetricsLog | None, going_on: bool) -> Searched:
        """Search the parameters, or read the finished search of a resumed run."""
        if going_on and has_state(self.out, STATE):
            return Searched.restore(residuals, artifacts.read_tree(self.out / "state", STATE))
        step = 0

        def report(name: str, done: float, cost: float, worst: float) -> bool:
            nonlocal step
            step += 1
            if metrics is not None:
                metrics.write(step, stage=name, cost=cost, worst=worst)
            tell(done, f"{name}, cost {cost:.6g}")
            return self._out_of_time()

        searched = search(
            residuals, self.settings, self.starts, report, run=self.out, resume=going_on,
            executor=self.problem.executor,
        )  # fmt: skip
        artifacts.write_tree(self.out / "state", STATE, searched.state())
        return searched

    def _report(self, what: str, done: int, everything: int) -> bool:
        tell(done / everything, f"{what}, {done} of {everything}")
        return self._out_of_time()

    def _settle(self, searched: Searched, known: Certainty) -> SettledFit:
        """Set the models to the solution; coordinates that the logs do not determine keep their declared values."""
        residuals, space = searched.residuals, searched.residuals.space
        determined = torch.ones(len(space.names), dtype=torch.bool)
        if isinstance(space, CoordinateSpace):
            searched, analysis, determined = hold_undetermined(
                searched, known.analysis, self.settings, () if self.fitting is None else self.fitting.model.added
            )
            known = replace(known, analysis=analysis)
        values = residuals.space.values(searched.point.x)[0].detach()
        for model in filter(None, (residuals.dynamics, self.hybrid)):
            model.physical.set_values(values[: len(model.physical.specs)])
        model = self.model if self.fitting is None else self.fitting.model
        noise = residuals.noise if self.fitting is None else self.fitting.noise
        logs = LogComparison.of(self.problem.store, residuals, searched.point, known.analysis)
        if logs is not None:
            analysis = replace(known.analysis, deviations=logs.deviations(known.analysis.deviations))
            known = replace(known, analysis=analysis)
        return SettledFit(model, residuals.dynamics, searched, known, determined, values, noise, logs)

    def _held_out(self, fit: SettledFit) -> HeldOut:
        models = {"nominal": self.dynamics(), "identified": fit.dynamics}
        if self.hybrid is not None:
            models["hybrid"] = self.hybrid
        store, settings = self.problem.store, self.settings
        return HeldOut(store, settings, self.start, self.history, fit.noise, models, self.beside)

    def _train_blueprint(self, fit: SettledFit, metrics: MetricsLog, going_on: bool) -> None:
        assert self.hybrid is not None
        settings, residuals = self.settings, fit.searched.residuals
        windows = NetworkWindows(
            self._started_windows(fit, Split.TRAIN, settings.network.windows),
            self._started_windows(fit, Split.VALIDATION, _HELD_OUT), residuals.channel_scale, self.environments,
        )  # fmt: skip
        network, budget = settings.network, TrainingBudget(settings.network.steps)
        if settings.minutes is not None:
            left = settings.minutes - self._spent() / 60.0
            budget = TrainingBudget(minutes=max(0.05, left), clock=settings.clock)
        learner = NetworkLearner(self.hybrid, windows, network, seed=settings.seed, save=self.save)
        with stage(0.25, 1.0):
            loop = TrainingLoop(
                learner, budget, self.out, name=NETWORK_STATE, validations=network.validations,
                patience=network.patience, callbacks=self.callbacks, progress=present_work(),
            )  # fmt: skip
            if going_on and has_state(self.out, NETWORK_STATE):
                loop.resume()
            end = loop.run(metrics.after(NETWORKS_FROM))
        if end.skipped:
            self.warnings.append(f"{end.skipped} steps were left out because their gradient was not finite")

    def _started_windows(self, fit: SettledFit, split: Split, most: int) -> Windows:
        moving = self.settings.moving if self.settings.network.moving else None
        before = frames_before(self.context, self.history)
        windows = select_windows(self.problem.store, split, self.frames + before, most=most, moving=moving)
        windows = windows.after(before)
        begun = estimate_starts(
            fit.dynamics, windows, self.context, self.start, fit.noise, self.environments, history=self.history
        )
        return replace(begun, past=windows.past) if self.history else begun

    def _figures(
        self, fit: SettledFit, held_out: HeldOut | None, runs: list[RunFit], log: LogCheck | None, metrics: MetricsLog,
        references: Beside[list[TrainedReference]],
    ) -> tuple[IdentificationFigures, HybridDynamics]:  # fmt: skip
        searched, known = fit.searched, fit.known
        residuals, analysis = searched.residuals, known.analysis
        if self.fitting is None and (text := warning(analysis)) is not None:
            self.warnings.append(f"at the solution, {text}")
        parameters = [*self._identified(fit), *([] if self.estimates is None else self.estimates.quantities())]
        figures = IdentificationFigures(
            robot=self.problem.robot.name, kind=fit.dynamics.kind, parameters=parameters,
            converged=known.convergence.converged, reason=known.convergence.reason,
            intervals="torques" if self.inverse else "sandwich" if known.resamples is None else "bootstrap",
            blocks=known.blocks, resamples=UNSET if known.resamples is None else len(known.resamples.values),
            ends=searched.minima(self.starts, [spec.name for spec in self.specs]),
            profiles=UNSET if known.profiles is None else known.profiles, runs=run_errors(runs),
            singular_values=list(analysis.singular_values), condition=analysis.condition,
            insensitive=[Insensitive(direction=d.text, deviation=d.deviation) for d in analysis.insensitive],
            residual_deviation=analysis.variance**0.5,
            noise=dict(zip(residuals.channels, fit.noise.joined.tolist(), strict=False)),
            scale=dict(zip(residuals.channels, residuals.scale.tolist(), strict=True)),
            windows=residuals.windows.count, logs=len(residuals.windows.logs),
            horizon_s=residuals.windows.frames * self.problem.robot.spec.dt,
            weights=0 if self.hybrid is None else self.hybrid.weights.numel(),
            blueprint=to_dict(self.problem.blueprint or Blueprint()), warnings=self.warnings, seed=self.settings.seed,
            structure=fit.model.structure, carrier=_carrier(fit.model), tried=self.tried,
            unseen_payload=self.unseen, stage=searched.stage,
            costs=dict(searched.stages), stated=fit.model.held,
            differences=[] if fit.logs is None else fit.logs.differing(),
            together=joint_regions(residuals.space, searched.point.x[0], analysis)
            if isinstance(residuals.space, CoordinateSpace) else [],
            delay=delay_figures(
                residuals.space, searched.point.x[0], analysis, self.problem.robot, self.problem.store.header
            ) or UNSET, sensors=self._sensor_errors(residuals, searched.point),
            torque=self._torque_errors(fit.values),
            **({} if held_out is None else held_out.errors()),
        )  # fmt: skip
        dynamics = self.hybrid or fit.dynamics
        if log is not None:
            figures, dynamics = self._judge(figures, fit, log, metrics, references)
        else:
            figures = figures.judged(doubts_about(FitEvidence(figures, fit.model, self.problem.store)))
        return msgspec.structs.replace(
            figures, seconds=time.perf_counter() - self.started_at,
            cpu_seconds=time.process_time() - self.cpu_start + self.cpu_elsewhere,
        ), dynamics  # fmt: skip

    def _identified(self, fit: SettledFit) -> list[IdentifiedParameter]:
        residuals, known, point = fit.searched.residuals, fit.known, fit.searched.point
        by_log = values_by_log(residuals, point, known.analysis.variance)
        if isinstance(residuals.space, CoordinateSpace):
            parameters = coordinate_parameters(residuals.space, point.x[0], known.analysis, fit.determined)
            separate = {} if fit.logs is None else fit.logs.separate()
            by_log = {one.name: separate[one.name] for one in parameters if separate and one.determined} | by_log
        else:
            together = None if self.hybrid is None else self.hybrid.physical().detach()
            before = residuals.prior.by_name(self.specs) if isinstance(residuals.prior, Prior) else {}
            parameters = known.identified_parameters(self.specs, fit.values, before, together)
            self.warnings += known.warnings(parameters)
        return [
            msgspec.structs.replace(entry, by_log=by_log[entry.name]) if entry.name in by_log else entry
            for entry in parameters
        ]

    def _judge(
        self, figures: IdentificationFigures, fit: SettledFit, log: LogCheck, metrics: MetricsLog,
        references: Beside[list[TrainedReference]],
    ) -> tuple[IdentificationFigures, HybridDynamics]:  # fmt: skip
        """Climb the ladder: add what it tells to the results, and return the model of the highest rung kept."""
        settings, store, spec = self.settings, self.problem.store, self.problem.robot.spec
        by = "group" if self.fitting is not None and self.fitting.groups else "run"
        own = None if self.fitting is None else own_quantities(fit.searched.residuals, fit.searched.point, by)
        first = self.model.undelayed
        declared = (first if own is None else replace(first, free=())).dynamics(
            store, self.threads, device=self.problem.device
        )
        if own is not None:  # the declaration has one value for all
            store = with_groups(store, own)
        past = (
            past_frames(fit.dynamics, settings, store) if settings.stages else self.history * bool(fit.dynamics.memory)
        )
        rungs: dict[str, HybridDynamics] = {DECLARED: declared, IDENTIFIED: fit.dynamics}
        values = int(fit.determined.sum()) + (0 if own is None else len(own.names) * (len(own.groups) - 1))
        noise = fit.noise if self.start == "past" else None
        ladder = Ladder(store, past, settings, noise, values, self.problem.tracked)
        ladder = ladder.with_best_starts(fit.dynamics, fit.noise)
        begin = settings if ladder.context is None else msgspec.structs.replace(settings, context=ladder.context)
        remaining = ladder.unexplained(fit.dynamics, fit.noise)
        model = fit.model if fit.model.space is None else fit.model.trim(fit.searched.point.x[0])
        with stage(0.5, 0.6, "reference"):
            trained = references.result()
            if references.elsewhere:
                self.cpu_elsewhere = sum(one.cpu_seconds for one in trained)
        if self.hybrid is not None:
            rungs[NETWORKS] = self.hybrid
        elif (
            settings.networks
            and not self._spent_more_than(_NETWORKS_UNTIL)
            and (
                beyond_noise(remaining, spec, fit.noise, FRAMES * spec.dt, settings.networks_from)
                or any(one.times > LEARNABLE for one in self.lasting)
                or ladder.behind(fit.dynamics, trained)
            )
        ):
            with stage(0.6, 0.8, "networks"):
                rungs[NETWORKS] = with_networks(
                    model, fit.dynamics, store, past, begin, threads=self.threads, out=self.out,
                    metrics=metrics, noise=ladder.noise, start=ladder.estimated,
                )  # fmt: skip
        with stage(0.8, 0.82, "held-out episodes"):
            climb = ladder.climb(rungs, trained)
        entries = climb.rungs
        if settings.networks and NETWORKS not in rungs:
            entries[-1] = msgspec.structs.replace(
                entries[-1], reason=f"{entries[-1].reason}; the rest may be noise of the sensors: no networks"
            )
        chosen = next(rung.name for rung in reversed(entries) if rung.kept)
        dynamics = judged = rungs[chosen]
        if chosen == IDENTIFIED and model.space is not None:  # with no more past commands than the motors need
            dynamics = self._at(model, fit.searched.point.x[0])  # rolled out by no one here, as compiling takes seconds
        self.save(dynamics)
        with stage(0.82, 1.0, "what is unexplained, and the motion to log next"):
            after = remaining if chosen == IDENTIFIED else ladder.unexplained(judged, fit.noise)
            before = remaining if chosen == NETWORKS and self.rigid is None else []
            if self.rigid is not None and chosen != DECLARED:
                before = ladder.unexplained(self.rigid, fit.noise)
            curves = forecasts_of(climb.shown, chosen, ladder.split.name.lower())
            write_forecasts(self.out, curves, beside_signals(spec, *ladder.rest(judged), after))
            motion, influences = None, []
            if isinstance(fit.searched.residuals.space, CoordinateSpace):
                sample = posterior_sample(
                    fit.searched.residuals.space, fit.searched.point.x[0], fit.known.analysis, seed=settings.seed,
                    spread=None if fit.logs is None else fit.logs.spread(),
                )  # fmt: skip
                every, acting = fit.searched.residuals.space.quantities, fit.searched.residuals.space.acting
                held = {one.name for one in dynamics.physical.specs}  # the declared model may hold no delay
                artifacts.write_tensors(self.out / POSTERIOR, {name: sample[name] for name in acting if name in held})
                if settings.refits and chosen != DECLARED:
                    residuals, point = fit.searched.residuals, fit.searched.point
                    normal, gradient = residuals.chord(point.pick(torch.tensor([0])))
                    influences = decided_by_one_run(residuals, normal, fit.known.analysis)
                    values = refit(residuals, point, normal, gradient, fit.determined, settings.refits, settings.seed)
                    write_refits(self.out, acting, values[:, [every.index(name) for name in acting]])
            if self.fitting is not None and settings.proposals and can_be_moved(spec) and self.estimates is None:
                motion = next_motion(self.fitting, fit.searched.point.x[0], fit.known.analysis, self.out)
        figures = msgspec.structs.replace(
            figures, horizons=list(climb.seconds), rungs=entries, chosen=chosen, unexplained=after, start=ladder.start,
            context=UNSET if ladder.context is None else ladder.context,
            unexplained_before=before, log=log, next=UNSET if motion is None else motion, references=climb.references,
            own=UNSET if own is None else own,
        )  # fmt: skip
        findings = doubts_about(
            Evidence(
                figures, fit.model, store, climb, rungs[DECLARED], judged, past, fit.noise, influences, self.lasting
            )
        )  # fmt: skip
        if settings.kind == "any":
            figures = keep_better_network(self.out, figures, trained, climb)
        return figures.judged(findings), dynamics

    def _references(self, log: LogCheck | None) -> Beside[list[TrainedReference]]:
        """Train the models beside the ladder in another process; none without one, or on the estimate of a base."""
        problem, settings = self.problem, self.settings
        steps = 0 if log is None or self.estimates is not None else settings.reference_steps
        call = partial(train_references, self.declared, problem.name, problem.store, settings, self.out)
        return Beside(call if steps else list, self.threads if steps else 1)

    def _torque_errors(self, values: Tensor) -> TorqueErrors | UnsetType:
        if not self.inverse:
            return UNSET
        store, width = self.problem.store, self.settings.smoothing
        return torque_errors(self.model.mechanism, store, held_out_split(store), width, self.specs, values)

    def _sensor_errors(self, residuals: Residuals, point: Point) -> dict[str, SensorErrors]:
        if residuals.measured is None:
            return {}
        store, most = self.problem.store, self.settings.windows
        if self.estimates is not None:
            assert self.fitting is not None
            return sensor_errors(
                self.fitting.residuals(self.fitting.windows(Split.VALIDATION, self.fitting.stages[-1])), point
            )
        windows = select_windows(store, held_out_split(store), self.frames, stride=self.frames, most=most)
        try:
            return self.sensing.errors(residuals, point, windows)
        except InputError as error:
            self.warnings.append(f"held-out windows: {error}")
            return {}

    def _out_of_time(self) -> bool:
        return self._spent_more_than(1.0 if self.hybrid is None else self.settings.parameter_share)

    def _spent_more_than(self, share: float) -> bool:
        """Return whether more than a share of a budget of minutes is spent."""
        return self.settings.minutes is not None and self._spent() > 60.0 * share * self.settings.minutes

    def _spent(self) -> float:
        """Return the time so far that counts of a budget of minutes [s]."""
        wall, cpu = time.perf_counter() - self.started_at, time.process_time() - self.cpu_start
        return counted_seconds(self.settings.clock, wall, cpu)

    def _require_same_data(self) -> None:
        saved = artifacts.read_json(self.out / "state" / f"{_DATA}.json")
        if saved.get("crc") != checksum(self.logged):
            raise other_data(self.out)
        self.warnings = list(saved.get("warnings", []))


def _carrier(model: FitModel) -> str:
    """Return the joint of the link with the payload; empty without one."""
    return "" if model.space is None else model.space.carrier
