# SPDX-License-Identifier: Apache-2.0
"""Contradictions between a declaration and its asset: omitted limits, torques beyond the drive's."""

from dataclasses import dataclass

from neurodyn.core.errors import InputError
from neurodyn.robots import Robot
from neurodyn.sim.simulators import SIMULATORS

_ROUNDING = 1e-3


@dataclass(frozen=True)
class Contradiction:
    """A declared quantity that contradicts the asset."""

    joint: str
    what: str  # the declared quantity
    value: float | None  # the declared value; None if not declared
    bound: float  # the asset's value
    unit: str  # of both
    advice: str  # recommended change of the declaration
    fatal: bool = True  # whether data of such a robot are refused


def contradictions(robot: Robot) -> list[Contradiction]:
    """Return the contradictions between a robot's declaration and its asset.

    A joint declared `continuous` has no limits, even if its asset has some.
    """
    limits, spec = SIMULATORS[robot.simulator.solver].limits(robot), robot.spec
    found = []
    for joint in robot.joints:
        if joint.name not in limits:
            continue
        given = limits[joint.name]
        unit = spec.q_units[spec.q_names.index(joint.name)]
        if joint.lower is None and not joint.continuous and given.position is not None:
            lower, upper = given.position
            turning = ", or continuous: true where it turns without end" if joint.kind == "revolute" else ""
            advice = f"declare lower: {lower:g}, upper: {upper:g} for {joint.name}{turning}"
            found.append(Contradiction(joint.name, "limits of the asset left out", None, upper, unit, advice))
        if given.effort is not None:
            found += _too_strong(robot, joint.name, given.effort, "N m" if unit == "rad" else "N")
    return found


def require_consistent(robot: Robot) -> None:
    """Raise InputError if a declaration contradicts its asset fatally."""
    found = [one for one in contradictions(robot) if one.fatal]
    if found:
        first, more = found[0], "" if len(found) == 1 else f" ({len(found) - 1} more: see `neurodyn check`)"
        raise InputError(f"robot {robot.name!r}: joint {first.joint!r}: {first.what}; {first.advice}{more}")


def _too_strong(robot: Robot, name: str, most: float, unit: str) -> list[Contradiction]:
    """Return contradictions of a joint's torque with the asset's effort."""
    if name not in robot.actuated or robot.command == "command":  # the ranges of actuators are the asset's
        return []
    effort = robot.actuated[name]
    if effort > most * (1 + _ROUNDING):
        advice = f"declare actuated: {{{name}: {most:g}}}, or mend the asset's effort"
        return [Contradiction(name, "torque beyond the actuator", effort, most, unit, advice)]
    drawn = max(map(abs, robot.sampling_interval("control", name)))
    if drawn > most * (1 + _ROUNDING):
        advice = f"keep sampling.control of {name} within {most:g} {unit}"
        return [Contradiction(name, "sampled torque beyond the actuator", drawn, most, unit, advice, fatal=False)]
    return []
