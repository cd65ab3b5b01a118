# SPDX-License-Identifier: Apache-2.0
"""Motors that an identification gives to joints without declared drives, and their free quantities."""

from collections.abc import Collection, Mapping, Sequence
from fnmatch import fnmatchcase

import msgspec
from msgspec import UNSET

from neurodyn.core.description.drive import ACTUATOR, DRIVE_KINDS, Drive
from neurodyn.core.errors import InputError
from neurodyn.data.header import CONTROL, Delay, StoreHeader
from neurodyn.data.store import Store
from neurodyn.robots import Robot
from neurodyn.robots.data import as_logged

LONGEST_DELAY = 0.03
"""Longest delay that is searched if no longer one was measured [s]."""
_REACH, _MORE, _FARTHEST = 1.5, 0.005, 0.06
"""Longest delay that is searched: by so much, and so much more [s], beyond a measured one; at most the last [s]."""

_PASSIVE = ("armature", "damping", "friction")


def with_motors(robot: Robot, store: Store) -> Robot:
    """Return a robot with a drive on every driven joint, with a lag and room for a delay.

    For a log of targets they follow these. Errors: see `robots.data.as_logged`.
    """
    drives = with_supplies(as_logged(robot, store.header).drives, robot.actuated, store.header.parameters)
    return with_lag(
        msgspec.structs.replace(robot, drives=drives), longest=longest_delay(store.header.delays.get(CONTROL)),
        servos=robot.spec.floating,
    )  # fmt: skip


def with_supplies(drives: Mapping[str, Drive], joints: Collection[str], recorded: Collection[str]) -> dict[str, Drive]:
    """Return drives with a supply where a log gives it by run."""
    given = {name: f"{ACTUATOR}{name}.supply" in recorded for name in joints}
    return dict(drives) | {
        name: msgspec.structs.replace(drive, supply=1.0)
        for name in joints
        if given[name] and (drive := drives.get(name, Drive())).supply is UNSET
    }


def longest_delay(measured: Delay | None) -> float:
    """Return the longest delay that is searched, given the one that the import of the log measured [s]."""
    if measured is None or not measured.usable:
        return LONGEST_DELAY
    return max(LONGEST_DELAY, min(_REACH * (measured.seconds - measured.applied) + _MORE, _FARTHEST))


def stated_gains(robot: Robot, header: StoreHeader, given: Mapping[str, Drive]) -> dict[str, float]:
    """Return the gains of PD drives that the map of a log states, by name of the quantity; none if drives are `given`.

    They are numbers of a configuration, where those of a robot's file are often placeholders.
    """
    if header.spec.control_kind != "target" or not header.drives or given:
        return {}
    return {
        f"{ACTUATOR}{joint}.{what}": value
        for joint, drive in robot.drives.items()
        if drive.kind == "pd"
        for what, value in (("kp", drive.kp), ("kd", drive.kd))
        if value
    }


def with_named_motors(robot: Robot, asked: Sequence[str]) -> Robot:
    """Return a robot with a drive on each joint without one whose quantities are asked for ("actuator.elbow.gain")."""
    kinds = Drive(lag=0.0, longest_delay=LONGEST_DELAY).quantities()
    named = [
        joint
        for joint in robot.actuated
        if joint not in robot.drives
        and any(
            fnmatchcase(f"actuator.{joint}.{what}", text.partition("=")[0])
            for what in kinds
            for text in asked
            if text.startswith("actuator.")
        )
    ]
    return with_lag(robot, named) if named else robot


def with_lag(
    robot: Robot, joints: Collection[str] | None = None, longest: float = LONGEST_DELAY, *, servos: bool = False
) -> Robot:
    """Return a robot with a drive on some driven joints (None: on all), with a lag and room for a delay.

    `longest` is the longest delay [s] of drives that declare none. `servos` says whether those, too, get a lag.
    """
    drives: dict[str, Drive] = {}
    for name in robot.actuated:
        if joints is not None and name not in joints:
            drives |= {name: robot.drives[name]} if name in robot.drives else {}
            continue
        drive = robot.drives.get(name, Drive())
        if drive.constrains or drive.is_outside_force:
            drives[name] = drive
            continue
        lags = servos or DRIVE_KINDS[drive.kind].damping is None or drive.pushes
        drives[name] = msgspec.structs.replace(
            drive, lag=0.0 if drive.lag is None and lags else drive.lag,
            longest_delay=(
                max(longest, drive.longest_held_delay) if drive.longest_delay is None else drive.longest_delay
            ),
        )  # fmt: skip
    return msgspec.structs.replace(robot, drives=drives)


def with_drives(robot: Robot, kind: str) -> Robot:
    """Return a robot with a drive of the given kind on every driven joint that declares none.

    Raises:
        InputError: There is no such kind, or a PD drive has no gains to start from.
    """
    DRIVE_KINDS.require(kind)
    start = Drive(longest_delay=LONGEST_DELAY, kind=kind)
    missing = [name for name in DRIVE_KINDS[kind].needs if getattr(start, name) is None]
    starts = dict.fromkeys(robot.actuated, start)
    undriven = [name for name in robot.actuated if name not in robot.drives]
    if missing and undriven:
        held = robot.hold_gains()
        if held is None or missing != ["kp", "kd"]:
            raise InputError(
                f"robot {robot.name!r}: a drive of kind {kind!r} at {undriven[0]!r} needs {' and '.join(missing)} to "
                f"start from; valid: `drives: {{{undriven[0]}: {{kind: {kind}, ...}}}}` in the declaration, or `gains` "
                "with hold"
            )
        starts = {
            name: msgspec.structs.replace(start, kp=kp, kd=kd)
            for name, kp, kd in zip(robot.actuated, *held, strict=True)
        }
    return msgspec.structs.replace(robot, drives=starts | robot.drives)


def drive_parameters(robot: Robot) -> tuple[str, ...]:
    """Return the default free quantities of drives: their own numbers, and armature, damping and friction."""
    free = []
    for name, drive in robot.drives.items():
        quantities = drive.quantities()
        free += [f"actuator.{name}.{what}" for what in DRIVE_KINDS[drive.kind].free if what in quantities]
        free += [f"actuator.{name}.{what}" for what in ("effort_limit", "lag") if what in quantities]
        if not drive.elastic:
            free += [
                f"{joint}.{what}" for joint in (drive.joints if drive.acts_elsewhere else (name,)) for what in _PASSIVE
            ]
        else:
            free += [f"actuator.{name}.{what}" for what in ("stiffness", "rotor_inertia", "coulomb", "viscous")]
    return tuple(dict.fromkeys(free))
