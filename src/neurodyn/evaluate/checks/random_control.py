# SPDX-License-Identifier: Apache-2.0
"""Plausibility of the simulator under random control in many worlds."""

import math
from dataclasses import dataclass

from torch import Tensor

from neurodyn.core.description.spec import StateSpec
from neurodyn.dynamics.measures import finite_worlds
from neurodyn.evaluate.checks.run import CheckResult, Figures, Finding, finite, judged
from neurodyn.evaluate.checks.subject import Subject, more_substeps, some
from neurodyn.robots.plausible import PlausibleBounds


class RandomControl(Figures, frozen=True):
    """Result of random control.

    Attributes:
        worlds: Number of worlds.
        beyond: Worlds that leave the plausible bounds.
        not_finite: Worlds with a non-finite state.
        departures: Descriptions of the coordinates that leave the bounds.
        greatest_speeds: Largest speed by kind of coordinate; None if not finite.
    """

    worlds: int
    beyond: int
    not_finite: int
    departures: list[str]
    greatest_speeds: dict[str, float | None]


def check_random_control(subject: Subject) -> CheckResult:
    """Drive many worlds with random controls and count those that leave the plausible bounds."""
    from neurodyn.sim.early_ends import MOST_CUT, MOST_IMPLAUSIBLE, Departure, EarlyEndCount, early_ends

    robot, path, bounds = subject.robot, subject.driven.path, subject.bounds
    tally = EarlyEndCount(robot, bounds, subject.worlds)
    tally.add(early_ends(robot.name, bounds, path.q, path.qd), subject.worlds)
    speeds = greatest_speeds(robot.spec, bounds, path.qd)
    whole = finite_worlds(path)

    def row(what: str, bounds: tuple[float, float], found: list[Departure], advice: str) -> Finding:
        share = sum(departure.trajectories for departure in found) / subject.worlds
        note = found[0].words if found else ""
        return judged(what, share, bounds, unit="%", scale=100.0, note=note, advice=advice)

    physical = [departure for departure in tally.departures if not departure.declared]
    declared = [departure for departure in tally.departures if departure.declared]
    findings = [row("worlds beyond plausible bounds", (0.0, MOST_IMPLAUSIBLE), physical, _advice(subject))]
    cut = "widen `range`, or narrow the gains and `sampling`"
    if declared:
        findings.append(row("worlds beyond the declared range", (0.5 * MOST_CUT, MOST_CUT), declared, cut))
    for kind, speed in speeds.items():
        what, bounds = f"greatest {kind} speed", (speed.bound, math.inf)
        change = _advice(subject) if physical else cut
        findings.append(judged(what, speed.value, bounds, unit=speed.unit, note=speed.name, advice=change))
    figures = RandomControl(
        worlds=subject.worlds,
        beyond=sum(departure.trajectories for departure in tally.departures),
        not_finite=int((~whole).sum()),
        departures=[departure.words for departure in tally.departures],
        greatest_speeds={kind: finite(speed.value) for kind, speed in speeds.items()},
    )
    return CheckResult(findings=findings, figures=figures)


@dataclass(frozen=True)
class Speed:
    """Largest speed of one kind of coordinate, its plausible bound, and the name of the coordinate."""

    value: float
    bound: float
    unit: str
    name: str


def greatest_speeds(spec: StateSpec, bounds: PlausibleBounds, qd: Tensor) -> dict[str, Speed]:
    """Return the largest speeds of joints, slides and a floating base from velocities [..., nv]."""
    fastest = qd.abs().nan_to_num(nan=math.inf).flatten(0, -2).amax(0).tolist()
    names = [name for joint in spec.joints for name in [joint.name] * joint.nv]
    found: dict[str, Speed] = {}
    for dof, (joint, unit, value) in enumerate(zip(names, spec.qd_units, fastest, strict=True)):
        base = spec.floating and joint == spec.joints[0].name
        kind = ("base" if base else "joint") if unit == "rad/s" else ("base linear" if base else "slide")
        kind = "base angular" if kind == "base" else kind
        speed = Speed(value, bounds.qd[dof][1], unit, spec.qd_names[dof])
        if kind not in found or speed.value > found[kind].value:
            found[kind] = speed
    return found


def _advice(subject: Subject) -> str:
    """Return what to change if worlds explode."""
    robot = subject.robot
    springs = [joint.name for joint in robot.joints if joint.limit_ke is not None or joint.limit_kd is not None]
    if springs and robot.simulator.solver != "featherstone":
        return f"remove limit_ke and limit_kd of {some(springs)}"
    light = [joint.name for joint in robot.joints if joint.scalar and not joint.armature]
    if light:
        return f"{more_substeps(robot)}, or declare the armature of {some(light)}"
    return f"{more_substeps(robot)}, or lower efforts and gains"
