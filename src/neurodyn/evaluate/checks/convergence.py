# SPDX-License-Identifier: Apache-2.0
"""Whether the step is short enough: the simulator beside itself at half and at a quarter of the step.

All three replay the same torques from the same states. The quarter step is taken as the truth. For an integrator of
first order the errors of the whole and the half step are then 3 to 1. What counts is the median world over the first 10
frames: where contacts come and go, two runs of any simulator part sooner or later, so that errors at later horizons say
how predictable the robot is, not whether the step is right.
"""

from dataclasses import replace

from neurodyn.core.seeds import generator
from neurodyn.dynamics.interface import Trajectory
from neurodyn.evaluate.checks.records import CheckResult, Figures, Finding, judged
from neurodyn.evaluate.checks.subject import Recording, Subject, more_substeps
from neurodyn.evaluate.metrics import METRICS, Compared
from neurodyn.evaluate.records import Result, Summary
from neurodyn.evaluate.scenario import driven_at_random, passive

HORIZONS = (10, 100, 500)
JUDGED = 10
"""Horizon of the verdict [frames]."""

WARNS, FAILS = 0.1, 0.3
"""Error of the declared step over the motion in the same frames: a model learns the error instead of the robot."""

_STILL = 1e-3  # motion that errors are at least compared with, as those of a robot that stands [m or rad]


class Errors(Result, frozen=True):
    """Errors beside a quarter of the step, and how far the robot moves, by horizon."""

    declared: dict[str, Summary]
    half: dict[str, Summary]
    motion: dict[str, Summary]


class Convergence(Figures, frozen=True):
    """Errors from random states under random control, and from resets, passive or held."""

    driven: Errors
    settling: Errors


def check_convergence(subject: Subject) -> CheckResult:
    """Compare the declared step with half and a quarter of it."""
    robot, frames = subject.robot, max(JUDGED, max((h for h in HORIZONS if h <= subject.frames), default=JUDGED))
    found: dict[str, Errors] = {}
    for name, starts in (("driven", "sampling"), ("settling", "reset")):
        rng = generator(subject.seed, "check", "convergence", name)
        state, environment = replace(subject.scenario, starts=starts).begin(robot, subject.few, rng)
        drive = driven_at_random(robot, subject.few, frames, rng) if name == "driven" else None
        recording = subject.record(state, environment, drive or passive(robot, subject.few, frames))
        found[name] = _errors(subject, recording, frames)
    words = {"driven": "step error of motion, random", "settling": "step error of motion, resets"}
    findings = [_row(subject, words[name], errors) for name, errors in found.items()]
    return CheckResult(findings=findings, figures=Convergence(**found))


def _errors(subject: Subject, recording: Recording, frames: int) -> Errors:
    half, truth = (recording.replayed(subject.finer(factor)) for factor in (2, 4))
    still = Trajectory(truth.q[:, :1].expand_as(truth.q), truth.qd[:, :1].expand_as(truth.qd))
    marks = [mark for mark in HORIZONS if mark <= frames]
    declared, halved, moved = (
        Compared(subject.robot, path, truth).by_horizon(marks) for path in (recording.path, half, still)
    )
    return Errors(declared=declared, half=halved, motion=moved)


def _row(subject: Subject, what: str, errors: Errors) -> Finding:
    """Judge the metric whose error is the largest share of the motion."""
    mark, worst, note, advice = str(JUDGED), 0.0, "", ""
    for name in errors.declared[mark].percentiles:
        unit = METRICS[name].unit
        error, half, motion = (table[mark].median(name) for table in (errors.declared, errors.half, errors.motion))
        if error is None or half is None or motion is None:
            return Finding(
                what=what,
                verdict="fails",
                note="not finite in any world",
                advice=more_substeps(subject.robot),
            )
        share = error / max(motion, _STILL)
        if share >= worst:
            worst, note = share, f"{METRICS[name].title.lower()} {error:.2g} {unit}, half step {half:.2g}"
            advice = f"{more_substeps(subject.robot)}: error falls from {error:.2g} to {half:.2g} {unit}"
            if half > 0.7 * error:
                advice = "the error does not fall with the step: mend joint limits, contact material or armature"
    return judged(what, worst, (WARNS, FAILS), unit="%", scale=100.0, note=note, advice=advice)
