# SPDX-License-Identifier: Apache-2.0
"""Default set of an adaptation: quantities in which a robot may differ from its declaration."""

import fnmatch
import math
from collections.abc import Mapping, Sequence

import msgspec
from msgspec import UNSET

from neurodyn.core.description.drive import DRIVE_KINDS, Drive
from neurodyn.core.description.mechanism import Link, Mechanism
from neurodyn.core.errors import InputError, nearest
from neurodyn.data.store import Store
from neurodyn.identify.coordinates import MASS_SCALE, PAYLOAD, Coordinate, CoordinateSpace
from neurodyn.identify.run import LONGEST_DELAY
from neurodyn.robots import Robot
from neurodyn.robots.data import as_logged

_DRY, _VISCOUS, _ROTOR = 0.01, 0.01, 0.1
"""Sizes below which friction, damping and armature do not matter: shares of the largest torque, of that torque at the
typical speed, and of the inertia that the joint moves."""
_SPEED = 5.0
"""Typical speed of a joint [rad/s or m/s]."""
_LAG, _BIAS = 0.005, 0.02
_SPRING = 1.5
_SCALE, _GAIN, _GRIP, _SOFT = 0.05, 0.3, 0.5, 0.7
_STOP = 0.03
"""Prior deviation of a joint limit, as a share of the joint's range."""
LIMITS = (".lower", ".upper")
"""Suffixes of the names of joint limits."""


def with_motors(robot: Robot, store: Store) -> Robot:
    """Return a robot with a drive on every driven joint, with a lag and room for a delay.

    For a log of targets they follow these. Errors: see `robots.data.as_logged`.
    """
    return with_lag(msgspec.structs.replace(robot, drives=as_logged(robot, store.header).drives))


def with_lag(robot: Robot) -> Robot:
    """Return a robot with a drive on every driven joint, with a lag and room for a delay."""
    drives: dict[str, Drive] = {}
    for name in robot.actuated:
        drive = robot.drives.get(name, Drive())
        if drive.prescribes_motion:
            drives[name] = drive
            continue
        law = DRIVE_KINDS[drive.kind]
        if law.damping is not None:  # a lag would make its damping explicit
            drives[name] = msgspec.structs.replace(
                drive, longest_delay=drive.longest_delay or max(LONGEST_DELAY, drive.longest_held_delay)
            )
            continue
        drives[name] = msgspec.structs.replace(
            drive, lag=0.0 if drive.lag is None else drive.lag,
            longest_delay=(
                max(LONGEST_DELAY, drive.longest_held_delay) if drive.longest_delay is None else drive.longest_delay
            ),
        )  # fmt: skip
    return msgspec.structs.replace(robot, drives=drives)


def limbs_of(mechanism: Mechanism) -> dict[str, tuple[str, ...]]:
    """Return the links of each limb: the subtree of each joint on a floating base, or each link of a bolted robot."""
    links = mechanism.links
    if not mechanism.floating:
        return {link.joint.name: (link.joint.name,) for link in links}
    root: list[int] = []
    for index, link in enumerate(links):
        parent = link.joint.parent
        root.append(index if parent < 0 or links[parent].joint.parent < 0 else root[parent])
    limbs: dict[str, list[str]] = {}
    for index, link in enumerate(links):
        limbs.setdefault(links[root[index]].joint.name, []).append(link.joint.name)
    return {name: tuple(members) for name, members in limbs.items()}


def default_coordinates(
    robot: Robot, mechanism: Mechanism, declared: Mapping[str, float], patterns: Sequence[str] = ("*",)
) -> CoordinateSpace:
    """Return the default set for a robot with drives (see `with_motors`), as far as the mechanism has these quantities.

    Masses by limb; a payload of a floating base; friction, damping, armature and limits of each joint; gain, lag and
    encoder offset of each motor, and stiffness and damping of its controller; one delay; friction and softness of the
    floor. Static friction of motors in excess of the dry one is excluded: a fit finds some even if there is none (3 N m
    in the worn ant), and it reduces no held-out error, neither of that ant at 60 Hz nor of a Go2 at 200 Hz.

    Args:
        robot: The robot.
        mechanism: Its mechanism.
        declared: Declared values of all quantities of the engine.
        patterns: Names or patterns of the free quantities in the set.

    Raises:
        InputError: A pattern matches none of them.
    """
    limbs = limbs_of(mechanism)
    coordinates = [Coordinate(f"{limb}.{MASS_SCALE}", 1.0, _SCALE) for limb in limbs]
    if mechanism.floating:
        coordinates += _payload_coordinates(mechanism)
    hidden = mechanism.names[len(mechanism.names) - (mechanism.hidden or 0) :]
    for index, link in enumerate(mechanism.links):
        if link.joint.scalar and link.joint.name not in hidden:
            coordinates += _joint_coordinates(mechanism, index, declared, robot)
    for name in hidden:
        for what, unit in (("stiffness", "N m/rad"), ("damping", "N m s/rad")):
            quantity = f"{name}.{what}"
            coordinates.append(Coordinate(quantity, declared[quantity], _SPRING, quantities=(quantity,), unit=unit))
    coordinates += _drive_coordinates(robot, declared)
    for name, width, unit in (("contact.friction", _GRIP, "1"), ("contact.solref.timeconst", _SOFT, "s")):
        if declared.get(name, 0.0) > 0.0:
            coordinates.append(Coordinate(name, declared[name], width, quantities=(name,), unit=unit))
    return CoordinateSpace(mechanism, _chosen(robot, coordinates, patterns), limbs, declared)


def _chosen(robot: Robot, coordinates: Sequence[Coordinate], patterns: Sequence[str]) -> list[Coordinate]:
    names = [one.name for one in coordinates]
    kept: set[str] = set()
    for pattern in patterns:
        fitting = fnmatch.filter(names, pattern)
        if not fitting:
            raise InputError(
                f"quantities: nothing of {robot.name!r} that an adaptation fits is called {pattern!r}; valid: a "
                f"pattern, {nearest(pattern, names)}"
            )
        kept |= set(fitting)
    if kept & set(PAYLOAD):  # a payload is one body
        kept |= set(PAYLOAD)
    return [one for one in coordinates if one.name in kept]


def _payload_coordinates(mechanism: Mechanism) -> list[Coordinate]:
    base, total = mechanism.links[0], sum(link.mass for link in mechanism.links)
    radius = math.sqrt(max(sum(base.inertia[:3]) / 2.0 / base.mass, 1e-8))
    position = [
        Coordinate(f"payload.{axis}", base.com[k], radius, signed=True, unit="m") for k, axis in enumerate("xyz")
    ]
    return [
        Coordinate("payload.mass", 0.02 * total, 1.0, 0.05 * total, unit="kg", declared=0.0), *position,
        Coordinate("payload.radius", 0.5 * radius, 0.5, unit="m"),
    ]  # fmt: skip


def _joint_coordinates(
    mechanism: Mechanism, index: int, declared: Mapping[str, float], robot: Robot
) -> list[Coordinate]:
    link = mechanism.links[index]
    name = link.joint.name
    torque = effort(robot, mechanism, index)
    sizes = {"friction": _DRY * torque, "damping": _VISCOUS * torque / _SPEED, "armature": _ROTOR * carried(link)}
    units = {"friction": "N m", "damping": "N m s/rad", "armature": "kg m^2"}
    coordinates = [
        Coordinate(f"{name}.{what}", declared[f"{name}.{what}"], 1.0, size, quantities=(f"{name}.{what}",),
                   unit=units[what])
        for what, size in sizes.items()
        if f"{name}.{what}" in declared
    ]  # fmt: skip
    if link.lower is not None and link.upper is not None and 0.0 < link.upper - link.lower < math.inf:
        width, unit = _STOP * (link.upper - link.lower), "m" if link.joint.kind == "prismatic" else "rad"
        coordinates += [
            Coordinate(f"{name}{end}", declared[f"{name}{end}"], width, signed=True, quantities=(f"{name}{end}",),
                       unit=unit)
            for end in LIMITS
            if f"{name}{end}" in declared
        ]  # fmt: skip
    return coordinates


def carried(link: Link) -> float:
    """Return the inertia of a link about its joint [kg m^2 or kg]."""
    axis, com = link.joint.axis, link.com
    if link.joint.kind == "prismatic":
        return link.mass
    frame = link.joint.child_frame[:3]
    arm = [c - f for c, f in zip(com, frame, strict=True)]
    along = sum(a * b for a, b in zip(arm, axis, strict=True))
    square = max(sum(a * a for a in arm) - along * along, 0.0)
    return link.mass * square + sum(link.inertia[:3]) / 3.0


def effort(robot: Robot, mechanism: Mechanism, index: int) -> float:
    """Return the scale of the torques at a joint [N m or N]: its limit, or what holds the link up."""
    name = mechanism.links[index].joint.name
    drive = robot.drives.get(name)
    limits = [robot.actuated.get(name), None if drive is None else drive.effort_limit]
    limits_given = [limit for limit in limits if limit is not None and 0.0 < limit < math.inf]
    return min(limits_given) if limits_given else max(9.81 * mechanism.links[index].mass * 0.1, 1e-3)


def _drive_coordinates(robot: Robot, declared: Mapping[str, float]) -> list[Coordinate]:
    coordinates, delayed, spare = [], [], {}
    for name in robot.actuated:
        begin = f"actuator.{name}"
        # Stiffness and gain of a controller are one number to any log; an affine law has others that scale with both.
        affine = name in robot.drives and robot.drives[name].per_command is not UNSET
        spare[name] = "kp" if affine else "gain" if f"{begin}.kp" in declared else ""
        for what, width, size, unit in (
            ("gain", _GAIN, 0.0, "1"), ("kp", _GAIN, 0.0, "N m/rad"), ("kd", _SOFT, 0.0, "N m s/rad"),
            ("lag", 1.0, _LAG, "s"),
        ):  # fmt: skip
            quantity = f"{begin}.{what}"
            if quantity in declared and what != spare[name] and declared[quantity] + size > 0.0:
                coordinates.append(
                    Coordinate(quantity, declared[quantity], width, size, quantities=(quantity,), unit=unit)
                )
        if f"{begin}.bias" in declared:
            coordinates.append(
                Coordinate(f"{begin}.bias", declared[f"{begin}.bias"], _BIAS, signed=True,
                           quantities=(f"{begin}.bias",), unit="rad")
            )  # fmt: skip
        if f"{begin}.delay" in declared:
            delayed.append(f"{begin}.delay")
    if delayed:
        reach = min(robot.drives[name.split(".")[1]].longest_held_delay for name in delayed)
        coordinates.append(
            Coordinate("motors.delay", declared[delayed[0]], 1.0, _LAG, quantities=tuple(delayed), most=reach, unit="s")
        )
    return coordinates
