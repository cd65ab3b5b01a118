# SPDX-License-Identifier: Apache-2.0
"""What becomes of a robot that is left alone on each ground: how deep it stands in it, and how much it jitters."""

import math

from neurodyn.core.seeds import generator
from neurodyn.evaluate.checks.records import CheckResult, Figures, Finding, finite, judged, or_infinite
from neurodyn.evaluate.checks.subject import Subject, more_substeps
from neurodyn.evaluate.records import Result
from neurodyn.evaluate.scenario import Scenario, passive, scenario
from neurodyn.robots import Robot

SECONDS, LAST = 3.0, 0.5
"""Time in which a robot settles, and over which it is then measured [s]."""

DEEP = (0.01, 0.05)
"""Depth of the deepest contact point in the ground that warns, and that fails [m]."""

JITTER = (0.1, 1.0)
"""Standard deviation of a velocity at rest that warns, and that fails [rad/s or m/s]."""


class Rest(Result, frozen=True):
    """A robot at rest on a ground, medians over worlds; None of what is not finite.

    Attributes:
        depth: Depth of the deepest contact point in the ground [m].
        jitter: Standard deviation over time of the velocity that jitters most [rad/s or m/s].
        coordinate: The name of that velocity.
        speed: Greatest mean velocity, as of a robot that creeps [rad/s or m/s].
    """

    depth: float | None
    jitter: float | None
    coordinate: str
    speed: float | None


class AtRest(Figures, frozen=True):
    """A robot at rest, by ground."""

    grounds: dict[str, Rest]


def check_rest(subject: Subject) -> CheckResult:
    """Let a floating robot settle on each of its grounds."""
    robot, layout = subject.robot, subject.layout
    if robot.fixed_base or layout is None:
        return CheckResult(findings=[Finding(what="rest on a ground: only of floating bases", verdict="ok")])
    found = {where.name or "": _settled(subject, where) for where in _grounds(subject)}
    if not found:
        return CheckResult(findings=[Finding(what="rest on a ground: none is declared", verdict="ok")])
    figures = AtRest(grounds=found)
    return CheckResult(findings=[_depth(found), _jitter(robot, found)], figures=figures)


def _grounds(subject: Subject) -> list[Scenario]:
    """Return the ground that was asked for, or all of the robot's, with something to stand on."""
    robot = subject.robot
    names = [subject.ground] if subject.ground is not None else list(robot.grounds)
    return [where for where in (scenario(robot, name) for name in names) if where.grounded]


def _settled(subject: Subject, where: Scenario) -> Rest:
    from neurodyn.sim.clearance import Clearance

    robot, layout = subject.robot, subject.layout
    frames, last = math.ceil(SECONDS / robot.dt), max(2, round(LAST / robot.dt))
    state, environment = where.begin(robot, subject.few, generator(subject.seed, "check", "rest", where.name or ""))
    path = subject.record(state, environment, passive(robot, subject.few, frames)).path
    assert environment.ground is not None
    assert layout is not None
    depth = Clearance(layout).depth(environment.ground, path.q[:, -1].contiguous())
    qd = path.qd[:, -last:]
    jitter, speed = qd.std(1).median(0).values, qd.mean(1).abs().median(0).values
    column = int(jitter.nan_to_num(nan=math.inf).argmax())
    return Rest(
        depth=finite(float(depth.median())), jitter=finite(float(jitter[column])),
        coordinate=robot.spec.qd_names[column], speed=finite(float(speed.max())),
    )  # fmt: skip


def _depth(found: dict[str, Rest]) -> Finding:
    name, worst = max(found.items(), key=lambda entry: or_infinite(entry[1].depth))
    advice = "raise material.stiffness, and material.damping with its square root; more substeps if it jitters then"
    return judged("depth in the ground at rest", worst.depth, DEEP, unit="m", note=name, advice=advice)


def _jitter(robot: Robot, found: dict[str, Rest]) -> Finding:
    name, worst = max(found.items(), key=lambda entry: or_infinite(entry[1].jitter))
    advice, spec = more_substeps(robot), robot.spec
    if robot.gains is not None:
        advice += ", or lower the stiffness in gains.hold"
    unit = spec.qd_units[spec.qd_names.index(worst.coordinate)]
    note = f"{worst.coordinate} on {name}"
    return judged("jitter at rest", worst.jitter, JITTER, unit=unit, note=note, advice=advice)
