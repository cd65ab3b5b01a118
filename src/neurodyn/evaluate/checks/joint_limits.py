# SPDX-License-Identifier: Apache-2.0
"""Joint limits: each driven joint is pushed against each of its limits with full effort.

Joints start at rest at mid-range, without gravity and ground, so that they arrive with all the energy their drive can
supply. A floating base is free and reacts to the torque.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from neurodyn.dynamics.batch import Environment
from neurodyn.evaluate.checks.findings import CheckFinding, CheckResult, Figures, finite, no_fault, or_infinite, rate
from neurodyn.evaluate.checks.subject import Subject, more_substeps, roll_out_free, some
from neurodyn.evaluate.records import Result
from neurodyn.robots import Joint, Robot

SECONDS = 2.0
"""Duration of the push against a limit [s]."""

WARNS, FAILS = 0.2, 0.25
"""Overshoot relative to the joint's range. MuJoCo's default limits let the ant overshoot by 0.11."""

BAND = 0.02
"""Fraction of a joint's range within which it counts as settled."""

_LAST = 0.5  # final interval in which the swing is measured [s]


class LimitTest(Result, frozen=True):
    """One joint under full effort against one limit.

    Attributes:
        joint: Name of the joint.
        side: "lower" or "upper".
        effort: Torque or force [N m or N].
        range: Range of the joint [rad or m].
        overshoot: Largest distance beyond the limit [rad or m]; None if not finite.
        settled_s: Time from first contact with the limit until it stays within `BAND` [s]; None if it does not settle.
        swing: Peak-to-peak motion in the last half second [rad or m]; None if not finite.
        reached: Whether the joint reaches the limit.
    """

    joint: str
    side: str
    effort: float
    range: float
    overshoot: float | None
    settled_s: float | None
    swing: float | None
    reached: bool


class JointLimits(Figures, frozen=True):
    """Results for all limits of driven joints."""

    tests: list[LimitTest]


@dataclass(frozen=True)
class _Press:
    joint: Joint
    control: int
    column: int
    side: int
    effort: float
    limit: float
    width: float


def check_joint_limits(subject: Subject) -> CheckResult:
    """Push every driven joint against its limits."""
    if subject.robot.command == "command":
        return no_fault("joint limits: its servos choose their efforts")
    presses = _presses(subject.robot)
    if not presses:
        return no_fault("joint limits: no driven joint has any")
    tests = [
        test
        for first in range(0, len(presses), subject.few)
        for test in _press_against(subject, presses[first : first + subject.few])
    ]
    worst = max(tests, key=lambda test: or_infinite(test.overshoot) / test.range)
    slow = max(tests, key=lambda test: or_infinite(test.swing) / test.range)
    findings = [_overshoot(subject, worst), _settling(subject, slow)]
    return CheckResult(findings=findings, figures=JointLimits(tests=tests))


def _presses(robot: Robot) -> list[_Press]:
    joints, q_names = {joint.name: joint for joint in robot.joints}, robot.spec.q_names
    presses = []
    for control, (name, effort) in enumerate(robot.actuated.items()):
        joint = joints[name]
        if joint.lower is not None and joint.upper is not None:
            for side, limit in ((-1, joint.lower), (1, joint.upper)):
                width = joint.upper - joint.lower
                presses.append(_Press(joint, control, q_names.index(name), side, effort, limit, width))
    return presses


def _press_against(subject: Subject, presses: list[_Press]) -> list[LimitTest]:
    robot, worlds = subject.robot, subject.few
    frames = math.ceil(SECONDS / robot.dt)
    start, torque = subject.resting(worlds), torch.zeros(worlds, frames, robot.spec.nu)
    for world, press in enumerate(presses):
        start.q[world, press.column] = press.limit - press.side * 0.5 * press.width
        torque[world, :, press.control] = press.side * press.effort
    path = roll_out_free(subject.free, start, torque, Environment(gravity=torch.zeros(3)))
    return [_measure(press, path.q[world, :, press.column], robot.dt) for world, press in enumerate(presses)]


def _measure(press: _Press, q: Tensor, dt: float) -> LimitTest:
    beyond, last = press.side * (q.double() - press.limit), max(2, round(_LAST / dt))
    end = beyond[-last:]
    away = (beyond - end.mean()).abs() > BAND * press.width
    swing = float(end.max() - end.min())
    touched = int((beyond > 0).int().argmax()) if bool((beyond > 0).any()) else None
    settled = None
    if touched is not None and swing <= BAND * press.width:
        settled = dt * max(0, int(away.nonzero().max()) + 1 - touched if bool(away.any()) else 0)
    return LimitTest(
        joint=press.joint.name, side="upper" if press.side > 0 else "lower", effort=press.effort, range=press.width,
        overshoot=finite(max(0.0, float(beyond.max()))) if bool(beyond.isfinite().all()) else None, settled_s=settled,
        swing=finite(swing), reached=touched is not None,
    )  # fmt: skip


def _overshoot(subject: Subject, worst: LimitTest) -> CheckFinding:
    unit = _unit(subject.robot, worst.joint)
    share = None if worst.overshoot is None else worst.overshoot / worst.range
    return rate(
        "overshoot at a joint limit",
        share,
        (WARNS, FAILS),
        unit=unit,
        scale=worst.range,
        note=f"{worst.joint} {worst.side}, {worst.effort:g} {'N m' if unit == 'rad' else 'N'}",
        advice=_soft_advice(subject.robot) or _stiffness_advice(subject, worst.joint, or_infinite(share) / WARNS),
    )


def _settling(subject: Subject, slow: LimitTest) -> CheckFinding:
    return rate(
        f"swing at a limit after {SECONDS:g} s",
        None if slow.swing is None else slow.swing / slow.range,
        (BAND, math.inf),
        unit=_unit(subject.robot, slow.joint),
        scale=slow.range,
        note=f"{slow.joint} {slow.side}",
        advice=_soft_advice(subject.robot) or _damping_advice(subject, slow.joint),
    )


def _unit(robot: Robot, name: str) -> str:
    return robot.spec.q_units[robot.spec.q_names.index(name)]


def _soft_advice(robot: Robot) -> str | None:
    """Return advice on limit springs that MuJoCo scales with inertia; None if there are none."""
    springs = [joint.name for joint in robot.joints if joint.limit_ke is not None or joint.limit_kd is not None]
    if robot.simulator.solver == "featherstone" or not springs:
        return None
    return f"remove limit_ke and limit_kd of {some(springs)}: MuJoCo's own limits are stiff and damped"


def _stiffness_advice(subject: Subject, name: str, factor: float) -> str:
    """Return advice on stiffening a limit whose overshoot is `factor` times too large."""
    robot = subject.robot
    if robot.simulator.solver != "featherstone":
        return f"{more_substeps(robot)}, declare the armature of {name}, or lower its effort"
    stiffness = _spring(subject, name)[0]
    stiffer = f"raise limit_ke of {name} from {stiffness:.3g} to {stiffness * factor**2:.3g}"
    return f"{stiffer}, and {_damping_advice(subject, name)}"


def _damping_advice(subject: Subject, name: str) -> str:
    """Return advice on damping a joint that bounces off its limit."""
    robot = subject.robot
    if robot.simulator.solver != "featherstone":
        return f"{more_substeps(robot)}, or declare the armature of {name}"
    stiffness, damping, inertia = _spring(subject, name)
    critical = 2.0 * math.sqrt(stiffness * inertia)
    return f"raise limit_kd of {name} from {damping:.3g} to about {critical:.3g} (critical damping)"


def _spring(subject: Subject, name: str) -> tuple[float, float, float]:
    """Return stiffness and damping of a joint's limits, and the inertia the joint moves."""
    from neurodyn.sim.energies import EnergyMeter

    link = next(link for link in subject.mechanism.links if link.joint.name == name)
    inverse = torch.linalg.inv(EnergyMeter(subject.built).mass_matrix(subject.resting(1).q)[0])
    dof = subject.robot.spec.qd_names.index(name)
    return link.limit_stiffness, link.limit_damping, 1.0 / float(inverse[dof, dof])
