# SPDX-License-Identifier: Apache-2.0
"""Accuracy of the simulator: against itself at smaller steps, and against the hybrid engine over one frame."""

import math
from dataclasses import replace

import msgspec
import torch
from torch import Tensor

from neurodyn.core.seeds import generator
from neurodyn.dynamics.batch import State, Trajectory
from neurodyn.dynamics.hybrid.model import HybridDynamics
from neurodyn.evaluate.checks.motion import inside, limited
from neurodyn.evaluate.checks.run import CheckResult, Figures, Finding, finite, judged
from neurodyn.evaluate.checks.subject import SimulatedMotion, Subject, more_substeps, rolled_out
from neurodyn.evaluate.metrics import METRICS, Compared
from neurodyn.evaluate.records import ErrorSummary, Result
from neurodyn.evaluate.scenario import driven_at_random, passive
from neurodyn.multibody.engine import EngineConfig
from neurodyn.robots import locate

HORIZONS = (10, 100, 500)
JUDGED = 10
"""Horizon of the verdict [frames]."""

WARNS, FAILS = 0.1, 0.3
"""Error at the declared step over the motion in the same frames; above it a model learns the error, not the robot."""

_STILL = 1e-3  # lower bound of the motion that errors are divided by, for a robot at rest [m or rad]
FREE = (0.05, 0.3)
"""Difference of the velocity changes relative to their size, away from limits: warning and failure."""
AT_LIMITS = 0.5
"""The same at joint limits: warning."""
_SPEED = 1.0  # speed of joints that run into limits [rad/s or m/s]


class StepErrors(Result, frozen=True):
    """Errors relative to a quarter of the step, and the motion of the robot, by horizon."""

    declared: dict[str, ErrorSummary]
    half: dict[str, ErrorSummary]
    motion: dict[str, ErrorSummary]


class StepConvergence(Figures, frozen=True):
    """Errors from random states under random control, and from resets in passive or held motion."""

    driven: StepErrors
    settling: StepErrors


def check_convergence(subject: Subject) -> CheckResult:
    """Compare the declared step with half and a quarter of it."""
    robot, frames = subject.robot, max(JUDGED, max((h for h in HORIZONS if h <= subject.frames), default=JUDGED))
    found: dict[str, StepErrors] = {}
    for name, starts in (("driven", "sampling"), ("settling", "reset")):
        rng = generator(subject.seed, "check", "convergence", name)
        state, environment = replace(subject.scenario, starts=starts).begin(robot, subject.few, rng)
        drive = driven_at_random(robot, subject.few, frames, rng) if name == "driven" else None
        recording = subject.record(state, environment, drive or passive(robot, subject.few, frames))
        found[name] = _errors(subject, recording, frames)
    words = {"driven": "step error of motion, random", "settling": "step error of motion, resets"}
    findings = [_row(subject, words[name], errors) for name, errors in found.items()]
    return CheckResult(findings=findings, figures=StepConvergence(**found))


def _errors(subject: Subject, recording: SimulatedMotion, frames: int) -> StepErrors:
    half, truth = (recording.replayed(subject.finer(factor)) for factor in (2, 4))
    still = Trajectory(truth.q[:, :1].expand_as(truth.q), truth.qd[:, :1].expand_as(truth.qd))
    marks = [mark for mark in HORIZONS if mark <= frames]
    declared, halved, moved = (
        Compared(subject.robot, path, truth).by_horizon(marks) for path in (recording.path, half, still)
    )
    return StepErrors(declared=declared, half=halved, motion=moved)


def _row(subject: Subject, what: str, errors: StepErrors) -> Finding:
    """Judge the metric with the largest error relative to the motion."""
    mark, worst, note, advice = str(JUDGED), 0.0, "", ""
    for name in errors.declared[mark].percentiles:
        unit = METRICS[name].unit
        error, half, motion = (table[mark].median(name) for table in (errors.declared, errors.half, errors.motion))
        if error is None or half is None or motion is None:
            note, advice = "not finite in any world", more_substeps(subject.robot)
            return Finding(what=what, verdict="fails", note=note, advice=advice)
        share = error / max(motion, _STILL)
        if share >= worst:
            worst, note = share, f"{METRICS[name].title.lower()} {error:.2g} {unit}, half step {half:.2g}"
            advice = f"{more_substeps(subject.robot)}: error falls from {error:.2g} to {half:.2g} {unit}"
            if half > 0.7 * error:
                advice = "the error does not fall with the step: mend joint limits, contact material or armature"
    return judged(what, worst, (WARNS, FAILS), unit="%", scale=100.0, note=note, advice=advice)


class EngineAgreement(Figures, frozen=True):
    """Relative differences over one frame, medians over worlds; None if not finite or not applicable.

    Attributes:
        free: Away from limits.
        at_limits: For joints that run into a limit.
    """

    free: float | None
    at_limits: float | None


def check_engine_agreement(subject: Subject) -> CheckResult:
    """Compare one frame of the hybrid engine with one of the simulator, in free space."""
    robot = subject.robot
    if robot.simulator.fluid is not None:
        return CheckResult(findings=[Finding(what="hybrid engine: it has no fluid, the simulator has", verdict="ok")])
    tree = msgspec.structs.replace(subject.mechanism, points=())  # in free space nothing touches
    config = EngineConfig(substeps=robot.simulator.substeps, contact=robot.simulated_contact)
    engine = HybridDynamics(robot.spec, tree, config, declaration=locate(robot))
    state = inside(robot, subject.draw("engine", subject.few))
    torque = _torques(subject)
    free, where = _difference(subject, engine, state, torque)
    advice = f"{more_substeps(robot)}: their integrators differ by the step"
    findings = [judged("hybrid engine, one free frame", free, FREE, unit="%", scale=100.0, note=where, advice=advice)]
    pressed, touching = _against_limits(subject, state), None
    if pressed is not None:
        touching, where = _difference(subject, engine, pressed, torch.zeros_like(torque))
        advice = "identify the limits before a hybrid model is used at them"
        what, bounds = "hybrid engine, one frame at limits", (AT_LIMITS, math.inf)
        findings.append(judged(what, touching, bounds, unit="%", scale=100.0, note=where, advice=advice))
    return CheckResult(findings=findings, figures=EngineAgreement(free=free, at_limits=touching))


def _torques(subject: Subject) -> Tensor:
    from neurodyn.sim.sampling import sample_torques

    return sample_torques(subject.robot, subject.few, 1, generator(subject.seed, "check", "engine torques"))


def _difference(subject: Subject, engine: HybridDynamics, state: State, torque: Tensor) -> tuple[float | None, str]:
    """Return the relative difference of the velocity changes, and the name of the velocity that differs most."""
    simulated = rolled_out(subject.free, state, torque).qd[:, 1].double()
    double = State(state.q.double(), state.qd.double())
    with torch.no_grad():
        computed = engine.rollout(double, torque.double()).qd[:, 1]
    change, error = simulated - double.qd, (computed - simulated).abs()
    share = error.norm(dim=1) / change.norm(dim=1).clamp_min(1e-9)
    column = int(error.median(0).values.nan_to_num(nan=math.inf).argmax())
    return finite(float(share.median())), subject.robot.spec.qd_names[column]


def _against_limits(subject: Subject, state: State) -> State | None:
    """Return states in which one joint runs into a limit; None for a robot without limits."""
    bounds = limited(subject.robot)
    if not bounds:
        return None
    spec, q, qd = subject.robot.spec, state.q.clone(), torch.zeros_like(state.qd)
    for world in range(len(q)):
        column, lower, upper = bounds[world // 2 % len(bounds)]
        side = 1.0 if world % 2 else -1.0
        q[world, column] = upper if world % 2 else lower
        qd[world, spec.qd_names.index(spec.q_names[column])] = side * _SPEED
    return State(q, qd)
