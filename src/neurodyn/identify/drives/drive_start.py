# SPDX-License-Identifier: Apache-2.0
"""Where the identification of drives starts: a plain drive for joints that declare none, and what is free of it."""

import msgspec

from neurodyn.core.description.drive import DRIVE_LAWS, Drive
from neurodyn.core.errors import InputError
from neurodyn.robots import Robot

LONGEST_DELAY = 0.03
"""Delays up to this are searched [s]."""

_FREE = {"torque": ("gain", "delay"), "pd": ("kp", "kd", "delay", "bias")}
_PASSIVE = ("armature", "damping", "friction")


def with_drives(robot: Robot, kind: str) -> Robot:
    """Return a robot whose driven joints all have a drive: of one kind where they declare none.

    Raises:
        InputError: There is no such kind, or a PD drive has no gains to start from.
    """
    DRIVE_LAWS.require(kind)
    start = Drive(longest_delay=LONGEST_DELAY, kind=kind)
    missing = [name for name in DRIVE_LAWS[kind].needs if getattr(start, name) is None]
    bare = [name for name in robot.actuated if name not in robot.drives]
    if missing and bare:
        if robot.gains is None or missing != ["kp", "kd"]:
            raise InputError(
                f"robot {robot.name!r}: a drive of kind {kind!r} at {bare[0]!r} needs {' and '.join(missing)} to start "
                f"from; valid: `drives: {{{bare[0]}: {{kind: {kind}, ...}}}}` in the declaration, or `gains` with hold"
            )
        start = msgspec.structs.replace(start, kp=robot.gains.hold[0], kd=robot.gains.hold[1])
    return msgspec.structs.replace(robot, drives={**dict.fromkeys(bare, start), **robot.drives})


def drive_parameters(robot: Robot) -> tuple[str, ...]:
    """Return what is free of drives where nobody says: their own numbers, and armature, damping and friction."""
    free = []
    for name, drive in robot.drives.items():
        own = drive.quantities()
        free += [f"actuator.{name}.{what}" for what in _FREE.get(drive.kind, ()) if what in own]
        free += [f"actuator.{name}.{what}" for what in ("effort_limit", "lag") if what in own]
        if not drive.elastic:
            free += [f"{name}.{what}" for what in _PASSIVE]
        else:
            free += [f"actuator.{name}.{what}" for what in ("stiffness", "rotor_inertia", "coulomb", "viscous")]
    return tuple(free)
