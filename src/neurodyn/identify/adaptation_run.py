# SPDX-License-Identifier: Apache-2.0
"""From logs to a model of the robot in one call: check, identify, add networks, propose the next motion to log."""

import time
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import numpy as np
import torch
from msgspec import UNSET, UnsetType
from scipy.special import stdtrit
from torch import Tensor

from neurodyn.core import artifacts
from neurodyn.core.config import read_config
from neurodyn.core.errors import InputError
from neurodyn.core.locks import exclusive
from neurodyn.core.progress import stage, tell
from neurodyn.core.provenance import package_versions
from neurodyn.core.requests import accepts_request, names_of
from neurodyn.core.verdict import Verdict
from neurodyn.core.workers import resolve_threads
from neurodyn.data.header import Split
from neurodyn.data.split import episodes_of
from neurodyn.data.store import Store
from neurodyn.data.windows import Windows, select_windows
from neurodyn.dynamics.coordinates import wrap_angle
from neurodyn.dynamics.hybrid.artifact import HYBRID
from neurodyn.dynamics.hybrid.model import HybridDynamics
from neurodyn.identify.adaptation_result import (
    CONFIDENCE,
    FIGURES,
    AdaptationFigures,
    AdaptedQuantity,
    JointLog,
    LogCheck,
    NextMotion,
    Rung,
    UnexplainedCoordinate,
)
from neurodyn.identify.adaptation_settings import AdaptationSettings
from neurodyn.identify.certainty import posterior_sample
from neurodyn.identify.default_quantities import with_motors
from neurodyn.identify.ladder import (
    HeldOutErrors,
    beyond_noise,
    held_out_errors,
    held_out_windows,
    judged,
    unexplained,
)
from neurodyn.identify.networks import with_networks
from neurodyn.identify.next_motion import next_motion
from neurodyn.identify.readings import Noise, estimate_noise
from neurodyn.identify.requests import AdaptRequest
from neurodyn.identify.run import open_logs
from neurodyn.identify.stages import (
    AdaptedFit,
    FitModel,
    Fitting,
    best_structure,
    past_frames,
    structures,
    trimmed,
)
from neurodyn.learn.devices import threads as torch_threads
from neurodyn.learn.loop import other_data
from neurodyn.learn.manifest import RunRecord
from neurodyn.learn.metrics import MetricsLog
from neurodyn.learn.neural.train import require_data
from neurodyn.learn.reproduction import TrainingAgain
from neurodyn.learn.run_folder import check_run, checksum
from neurodyn.learn.tracking import require_tracker, tracking
from neurodyn.robots import Robot, load, locate
from neurodyn.sim.draws import POSTERIOR

AdaptationRecord = RunRecord[AdaptationSettings]
"""Record of an adaptation."""

DECLARED, IDENTIFIED, NETWORKS = "declared", "identified", "networks"
_STATE = "adaptation"
_FRAMES = 3
_LEAST = 0.5
"""Error of an identified model, relative to the declared one's, above which the page calls it poor."""


@dataclass(frozen=True)
class Adaptation:
    """Result of an adaptation.

    Attributes:
        figures: All results; `plain()` gives adaptation.json.
        dynamics: The model, of the highest kept rung.
    """

    figures: AdaptationFigures
    dynamics: HybridDynamics


@accepts_request(AdaptRequest)
def adapt(request: AdaptRequest) -> Adaptation:
    """Adapt the model of a robot to its logs.

    Motors, mechanism and floor are identified from a default set of quantities (`default_quantities`), then
    networks are tried on top; each rung is kept only if it is better on whole held-out episodes. The run directory gets
    model, config.yaml, metrics.jsonl, adaptation.json and the next motion to log.

    Raises:
        InputError: An argument is missing or malformed, the logs are of another robot or hold no motion, or the run
            exists or cannot be resumed.
    """
    require_tracker(request.logger, request.out)
    declared = request.robot if isinstance(request.robot, Robot) else load(request.robot)
    settings = _settings(request)
    store = open_logs(declared, request.data)
    names = () if isinstance(request.data, Store) else names_of(request.data)
    robot = with_motors(declared, store)
    require_data(robot, store)
    record = AdaptationRecord(
        kind="hybrid", robot=locate(request.robot), data=tuple(str(name) for name in names), settings=settings,
        versions=package_versions("torch", "newton", "scipy"),
    )  # fmt: skip
    out = Path(request.out)
    with exclusive(out), torch_threads(1), tracking(request.logger, out):
        going_on = check_run(out, record, request.resume, _STATE)
        with MetricsLog(out) as metrics:
            metrics.start(record, "cpu")
            work = _Adaptation(robot, locate(request.robot), store, settings, out, resolve_threads(request.threads))
            return work.run(metrics, resume=going_on)


def adapt_again(again: TrainingAgain) -> None:
    """Repeat the adaptation of a run."""
    adapt(again.robot, again.data, again.out, settings=again.read(AdaptationRecord).settings)


def _settings(request: AdaptRequest) -> AdaptationSettings:
    given = request.settings
    if given is None:
        given = AdaptationSettings()
    if not isinstance(given, AdaptationSettings):
        given = read_config(Path(given), AdaptationSettings)
    seed = given.seed if request.seed is None else request.seed
    return msgspec.structs.replace(given, seed=seed, networks=given.networks and not request.mechanism)


@dataclass
class _Adaptation:
    robot: Robot
    name: str
    store: Store
    settings: AdaptationSettings
    out: Path
    threads: int
    cpu_start: float = field(default_factory=time.process_time)

    def run(self, metrics: MetricsLog, *, resume: bool) -> Adaptation:
        settings, networks = self.settings, self.settings.networks
        with stage(0.0, 0.05, "looking at the logs"):
            log = check_log(self.robot, self.store)
        models = structures(self.robot, self.name, settings.quantities)
        with stage(0.05, 0.6 if networks else 0.85):
            fitting, fit, rigid = self._fit(models, metrics, resume)
        model = trimmed(fit.model, fit.x)
        rungs = {DECLARED: models[0].dynamics(self.store, self.threads), IDENTIFIED: fit.dynamics}
        past = past_frames(fit.dynamics, settings)
        remaining = self._unexplained(fit.dynamics, past, fitting.noise)
        if networks and beyond_noise(
            remaining, self.robot.spec, fitting.noise, _FRAMES * self.robot.spec.dt, settings.networks_from
        ):
            with stage(0.6, 0.85, "networks"):
                rungs[NETWORKS] = with_networks(
                    model, fit.dynamics, self.store, past, settings, threads=self.threads, out=self.out,
                    metrics=metrics,
                )  # fmt: skip
        with stage(0.85, 0.95, "held-out episodes"):
            ladder, seconds = self._ladder(rungs, past)
        if networks and NETWORKS not in rungs:
            ladder[-1] = msgspec.structs.replace(
                ladder[-1], reason=f"{ladder[-1].reason}; the rest may be noise of the sensors: no networks"
            )
        chosen = next(rung.name for rung in reversed(ladder) if rung.kept)
        dynamics = rungs[chosen]
        if chosen == IDENTIFIED:  # the same values, with no more past commands than they need
            dynamics = self._settled(model, model.space.values(fit.x).detach())
        HYBRID.save(self.out, dynamics)
        sample = posterior_sample(fit.model.space, fit.x.detach(), fit.analysis, seed=self.settings.seed)
        artifacts.write_tensors(self.out / POSTERIOR, sample)
        with stage(0.95, 1.0, "what is unexplained, and the motion to log next"):
            after = remaining if chosen == IDENTIFIED else self._unexplained(dynamics, past, fitting.noise)
            below = rigid if chosen != DECLARED else None
            before = [] if below is None else self._unexplained(below, past, fitting.noise)
            if chosen == NETWORKS and rigid is None:
                before = remaining
            motion = next_motion(fitting, fit, self.out)
        figures = self._figures(fit, ladder, seconds, chosen, (after, before), log, motion)
        artifacts.write_json(self.out / FIGURES, figures.plain())
        metrics.conclude(chosen=chosen, verdict=figures.verdict, cpu_seconds=figures.cpu_seconds)
        return Adaptation(figures, dynamics)

    def _settled(self, model: FitModel, values: Tensor) -> HybridDynamics:
        dynamics = model.dynamics(self.store, self.threads)
        dynamics.physical.set_values(values)
        return dynamics

    def _fit(
        self, models: list[FitModel], metrics: MetricsLog, resume: bool
    ) -> tuple[Fitting, AdaptedFit, HybridDynamics | None]:
        """Return the fit, possibly read from a run stopped after it; for a fit with springs, also the rigid model."""
        settings, step = self.settings, 0
        tree = artifacts.read_tree(self.out / "state", _STATE) if resume else None
        if tree is not None and int(tree["crc"]) != checksum(self.store):
            raise other_data(self.out)
        expected = len(models) * settings.screen_iterations + sum(one.iterations for one in settings.stages)

        def report(name: str, iteration: int, cost: float) -> None:
            nonlocal step
            step += 1
            metrics.write(step, stage=name, iteration=iteration, cost=cost)
            tell(min(step / expected, 1.0), f"{name}, cost {cost:.4g}")

        if tree is not None:
            model = models[int(tree["structure"])]
            fitting = Fitting(model, self.store, settings, self.threads, report)
            stages = [str(name) for name in artifacts.read_json(self.out / "state" / "stages.json")["stages"]]
            rigid = None
            if "rigid" in tree:
                model = models[int(tree["rigid_structure"])]
                rigid = self._settled(model, model.space.values(tree["rigid"]))
            return fitting, fitting.restored(tree, stages), rigid
        fitting, other = best_structure(models, self.store, settings, self.threads, report)
        fit = fitting.run()
        number = _index_of(models, fit.model)
        artifacts.write_json(self.out / "state" / "stages.json", {"stages": list(fit.costs)})
        saved = {
            "x": fit.x, "scale": fitting.scale, "structure": number, "crc": checksum(self.store),
            "costs": torch.tensor(list(fit.costs.values()), dtype=torch.float64),
        }  # fmt: skip
        rigid = None
        if other is not None:
            rigid = self._settled(other.model, other.model.space.values(other.x).detach())
            saved |= {"rigid": other.x, "rigid_structure": _index_of(models, other.model)}
        artifacts.write_tree(self.out / "state", _STATE, saved)
        return fitting, fit, rigid

    def _ladder(self, rungs: dict[str, HybridDynamics], past: int) -> tuple[list[Rung], tuple[float, ...]]:
        """Judge the rungs, from the declaration up, on validation episodes; also report test episodes."""
        settings, store, spec = self.settings, self.store, self.robot.spec
        windows, seconds = held_out_windows(store, Split.VALIDATION, past, settings.horizons, settings.starts)
        tests = held_out_windows(store, Split.TEST, past, seconds, settings.starts) if _has_tests(store) else None
        ladder, best = [], None
        for number, (name, dynamics) in enumerate(rungs.items()):
            tell(number / len(rungs), f"held-out episodes, {name}")
            errors = held_out_errors(dynamics, store, windows, seconds)
            test = {} if tests is None else held_out_errors(dynamics, store, *tests).groups(spec)
            if best is None:
                ladder.append(Rung(name, True, "as declared", errors.groups(spec), test))
                best = errors
                continue
            judgement = judged(best, errors)
            ladder.append(Rung(name, judgement.kept, judgement.reason, errors.groups(spec), test, judgement.share))
            best = errors if judgement.kept else best
        assert isinstance(best, HeldOutErrors)
        return ladder, best.seconds

    def _unexplained(self, dynamics: HybridDynamics, past: int, noise: Noise) -> list[UnexplainedCoordinate]:
        windows, _ = held_out_windows(
            self.store, Split.VALIDATION, past, (_FRAMES * self.robot.spec.dt,), 4 * self.settings.starts
        )
        return unexplained(dynamics, self.store, windows, noise)

    def _figures(
        self, fit: AdaptedFit, ladder: list[Rung], seconds: tuple[float, ...], chosen: str,
        remaining: tuple[list[UnexplainedCoordinate], list[UnexplainedCoordinate]], log: LogCheck,
        motion: NextMotion | None,
    ) -> AdaptationFigures:  # fmt: skip
        following: NextMotion | UnsetType = UNSET if motion is None else motion
        return AdaptationFigures(
            robot=self.robot.name, structure=fit.model.structure, stage=fit.stage, costs=fit.costs,
            quantities=adapted_quantities(fit), horizons=list(seconds), rungs=ladder,
            chosen=chosen, unexplained=remaining[0], unexplained_before=remaining[1], log=log,
            cpu_seconds=time.process_time() - self.cpu_start, verdict=str(verdict_of(ladder, chosen)), next=following,
        )  # fmt: skip


def adapted_quantities(fit: AdaptedFit) -> list[AdaptedQuantity]:
    """Return the quantities with their 90 % intervals; those that the logs do not determine get the prior's."""
    quantities, reach = [], float(stdtrit(max(1, fit.analysis.degrees), 0.5 + 0.5 * CONFIDENCE))
    for k, coordinate in enumerate(fit.model.space.coordinates):
        x, deviation, bound = fit.x[k], fit.analysis.deviations[k], bool(fit.analysis.bound[k])
        determined = bool(fit.determined[k])
        deviation = deviation.clamp(max=1.0) if determined else 1.0
        low, high = (x + sign * reach * deviation for sign in (-1.0, 1.0))
        least, most = coordinate.range
        ends = tuple(float(coordinate.value(end.clamp(least, most))) for end in (low, high))
        declared = coordinate.declared_value
        quantities.append(
            AdaptedQuantity(
                name=coordinate.name, nominal=declared, value=float(coordinate.value(x)) if determined else declared,
                interval=(ends[0], ends[1]), determined=determined, bound=bound, unit=coordinate.unit,
            )
        )  # fmt: skip
    return quantities


def verdict_of(ladder: list[Rung], chosen: str) -> Verdict:
    """Return whether the model is reliable."""
    if chosen == DECLARED:
        return Verdict(
            "warning", "nothing that was tried is better than the declaration on held-out episodes",
            "log motion that the policy will need (the page proposes one), or declare what differs",
        )  # fmt: skip
    share = 1.0
    for rung in ladder:
        share *= rung.share if rung.kept and rung.share is not UNSET else 1.0
    if share > _LEAST:
        return Verdict(
            "warning", f"held-out errors are still {share:.2f} of the declaration's",
            "see what is unexplained: a part that the declaration does not have may be missing",
        )  # fmt: skip
    return Verdict()


def _index_of(models: list[FitModel], model: FitModel) -> int:
    return next(k for k, one in enumerate(models) if one is model)


def _has_tests(store: Store) -> bool:
    return len(store.episodes(Split.TEST)) > 0


_WINDOW, _MOST = 20, 500
_SATURATED, _REPEATED, _STILL, _LARGEST = 0.3, 0.05, 2.0, 0.98
"""Thresholds of warnings: shares of saturated and of repeated frames, motion of a joint in units of its noise; and the
share of the largest command that counts as saturated."""
_SLOPES = (0.8, 1.25)
_SHORT = 0.25
"""Length below which a log is called short [min]."""


def check_log(robot: Robot, store: Store) -> LogCheck:
    """Check rates, noise, saturation, and joints that move too little.

    Raises:
        InputError: Nothing moves, or no episode is as long as a window.
    """
    spec = store.header.spec
    windows = select_windows(store, Split.TRAIN, min(_WINDOW, int(store.lengths.max())), most=_MOST)
    noise = estimate_noise(spec, windows)
    counts = tuple(
        len(episodes_of(store, split)) if split is not Split.TEST else len(store.episodes(split))
        for split in (Split.TRAIN, Split.VALIDATION, Split.TEST)
    )
    joints = [
        _joint(robot, windows, joint.name, float(noise.q[spec.tangent_names.index(joint.name)]))
        for joint in spec.joints
        if joint.scalar
    ]
    still = ((windows.q[:, 1:] == windows.q[:, :-1]).all(-1)).double().mean()
    minutes = float(store.lengths.sum()) * spec.dt / 60.0
    check = LogCheck(
        rate=1.0 / spec.dt, minutes=minutes, episodes=(counts[0], counts[1], counts[2]), control=spec.control_kind,
        repeated=float(still), joints=joints, warnings=[],
    )  # fmt: skip
    if joints and all(joint.motion < _STILL * joint.noise for joint in joints):
        raise InputError(
            f"log of {spec.robot!r}: no joint moves by more than its noise; valid: a log in which the robot moves"
        )
    check.warnings.extend(_warnings(check))
    return check


def _joint(robot: Robot, windows: Windows, name: str, noise: float) -> JointLog:
    spec = robot.spec
    row, dof = spec.q_names.index(name), spec.qd_names.index(name)
    q, qd = windows.q[..., row], windows.qd[..., dof]
    change = q[:, 1:] - q[:, :-1]
    change = wrap_angle(change) if spec.continuous[row] else change
    middle, rate = 0.5 * (qd[:, 1:] + qd[:, :-1]), change / spec.dt
    power = float(middle.square().sum())
    slope = float((rate * middle).sum()) / power if power > 0 else None
    saturated = 0.0
    if name in spec.controls:
        command = windows.control[..., spec.controls.index(name)].abs()
        most = float(command.max())
        saturated = float((command >= _LARGEST * most).double().mean()) if most > 0 else 0.0
    span = float(np.ptp(q.numpy()))
    motion = float((q - q.mean(1, keepdim=True)).square().mean().sqrt())
    return JointLog(name, span, motion, float(qd.square().mean().sqrt()), noise, saturated, slope)


def _warnings(log: LogCheck) -> list[str]:
    warnings = []
    if log.minutes < _SHORT:
        warnings.append(f"only {60 * log.minutes:.0f} s long: intervals will be wide")
    if log.repeated > _REPEATED:
        warnings.append(f"{log.repeated:.0%} of the frames repeat the one before: readings are slower than the rate")
    for joint in log.joints:
        if joint.motion < _STILL * joint.noise:
            warnings.append(f"{joint.name} hardly moves ({joint.motion:.2g}): nothing can be said of it")
        if joint.saturated > _SATURATED:
            warnings.append(f"{joint.name} has its largest command in {joint.saturated:.0%} of the frames")
        if joint.slope is not None and joint.speed > 0 and not _SLOPES[0] < joint.slope < _SLOPES[1]:
            warnings.append(
                f"{joint.name}: positions change {joint.slope:.2f} times as fast as the logged velocity says "
                "(units, or a filter?)"
            )
    return warnings
