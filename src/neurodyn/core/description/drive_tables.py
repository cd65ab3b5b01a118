# SPDX-License-Identifier: Apache-2.0
"""Drives as files give them: tables of gains, servos by name, and the controllers of older files.

Numbers of a servo (`drives: {JOINT: {servo: NAME}}`) are on the output side of the gear, at the nominal supply. Rotor
inertias belong to the joint (`armature` of the asset).
"""

import csv
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from neurodyn.core.config import to_dict
from neurodyn.core.description.drive import Drive
from neurodyn.core.errors import InputError
from neurodyn.core.registry import Registry


@dataclass(frozen=True)
class ServoType:
    """A type of servo.

    Attributes:
        drive: Its drive, at the firmware's gain that the source names.
        armature: Inertia of rotor and gear at the output [kg m^2].
        source: Where the numbers come from.
    """

    drive: Drive
    armature: float
    source: str


SERVOS: Registry[ServoType] = Registry(
    "servo",
    **{
        "xl330-m288": ServoType(
            Drive(
                kind="dc_servo", kp=1.25, kd=0.047, saturation_effort=0.77, delay=0.011, longest_delay=0.03,
                coulomb=0.008, viscous=0.005, load_motor=0.38, load_external=0.11,
            ),
            0.0019,
            "Dynamixel XL330-M288-T at 7.4 V with firmware gain P = 400 (`gain` is P / 400). Stall torque and no-load "
            "speed: data sheet, .52 N m and 103 rpm at 5 V. The rest: fitted to Rhoban/bam's logs of a .49 kg pendulum "
            "(bam/data.bak at af22604, Apache-2.0) at gains 100, 200 and 800; 16 mrad and 40 mrad .1 and 1 s ahead on "
            "other motions.",
        ),
        "sts3215-7.4v": ServoType(
            Drive(kind="dc_servo", kp=17.8, kd=0.39, saturation_effort=1.9, coulomb=0.052, viscous=0.6),
            0.028,
            "Feetech STS3215 at 7.4 V with firmware gain P = 32 (`gain` is P / 32). Stall torque 19 kg cm and no-load "
            "speed 45 rpm: data sheet. Stiffness: Rhoban/bam. Friction and rotor: mujoco_menagerie's "
            "robotstudio_so101.",
        ),
        "robstride-60nm": ServoType(
            Drive(kind="pd", kp=150.0, kd=8.0, effort_limit=60.0, coulomb=0.52),
            0.086,
            "Robstride actuator with a limit of 60 N m, as in a K-Bot's hip pitch and knee; gains and limit are those "
            "of the log (set `kp` and `kd` to your firmware's). Friction (.33 to .76 N m) and rotor inertia (.056 to "
            ".129 kg m^2, beside a guessed mass of the leg; ktune says .04): fitted to the knee's chirp in "
            "kscalelabs/ktune (rs_prelim at 3b7f728, MIT); 1.0 and 1.4 mrad .17 and .5 s ahead at higher frequencies.",
        ),
    },
)  # fmt: skip
"""Servos by name."""


def drives_of_controller(controller: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the drives, by joint or pattern, that a `controller` of an older file or settings stands for.

    Its keys are `kind` ("pd", or "velocity" for velocity targets), `kp`, `kd` and `limit` (a number, or one by joint),
    and `updates`, of which 1 was the default whether or not it was meant.
    """
    if controller is None:
        return {}
    if not isinstance(controller, Mapping):
        raise InputError(f"controller is {controller!r}; valid: a table of kind, kp, kd, limit and updates")
    kind = controller.get("kind", "pd")
    if unknown := set(controller) - {"kind", "kp", "kd", "limit", "updates"}:
        raise InputError(f"controller: unknown {sorted(unknown)[0]!r}; valid: kind, kp, kd, limit, updates")
    if kind not in ("pd", "velocity"):
        raise InputError(f"controller: unknown kind {kind!r}; valid: pd, velocity")
    given = {name: controller.get(name) for name in ("kp", "kd", "limit")}
    joints = list(dict.fromkeys(joint for part in given.values() if isinstance(part, Mapping) for joint in part))
    shared: dict[str, Any] = {"kind": "velocity_servo" if kind == "velocity" else kind}
    if controller.get("updates", 1) != 1:
        shared["updates"] = controller["updates"]
    drives: dict[str, Any] = {}
    for joint in joints or ["*"]:
        drives[joint] = dict(shared)
        for name, part in given.items():
            value = part.get(joint) if isinstance(part, Mapping) else part
            if value is None and isinstance(part, Mapping):
                raise InputError(f"controller: {name} has no {joint!r}; valid: one for each of {', '.join(joints)}")
            if name != "limit":
                drives[joint][name] = 0.0 if value is None else value
            elif value not in (None, math.inf):
                drives[joint]["effort_limit"] = value
        if kind == "velocity" and drives[joint].pop("kp"):
            raise InputError("controller: kp is given, but 'velocity' has kd alone")
    return drives


def read_drive_table(path: Path) -> dict[str, dict[str, str]]:
    """Read drives by joint from a CSV file.

    Its column `joint` has names or patterns of joints, every other one a number of `Drive`, such as kp, kd and
    effort_limit; empty cells keep the default. Without a column `kind` or `servo`, drives are of kind "pd".

    Raises:
        InputError: The file cannot be read, has no column `joint`, or names a joint twice.
    """
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = list(csv.DictReader(file, skipinitialspace=True))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path}: cannot be read as a table of drives ({error})") from None
    drives: dict[str, dict[str, str]] = {}
    for row in rows:
        joint = row.pop("joint", None)
        if not joint or None in row:
            raise InputError(f"{path}: a row names no joint or is too long; valid: columns joint, kp, kd, ...")
        if joint in drives:
            raise InputError(f"{path}: has {joint!r} twice; valid: a row for each joint")
        usual = {} if row.get("servo") else {"kind": "pd"}
        drives[joint] = usual | {name: value for name, value in row.items() if value}
    return drives


def read_drives(given: Any, folder: Path) -> Any:
    """Return the plain data of drives by joint: a table that a name gives, and servos by name with what is overridden.

    Other errors are left to the checks of drives.

    Raises:
        InputError: The table cannot be read, or a servo is unknown.
    """
    drives = read_drive_table(folder / given) if isinstance(given, str) else given
    if not isinstance(drives, Mapping):
        return drives
    return {joint: _servo(one) if isinstance(one, Mapping) and "servo" in one else one for joint, one in drives.items()}


def _servo(drive: Mapping[str, Any]) -> dict[str, Any]:
    usual = Drive()
    known = SERVOS[str(drive["servo"])].drive
    own = {name: value for name, value in to_dict(known).items() if getattr(known, name) != getattr(usual, name)}
    return own | {name: value for name, value in drive.items() if name != "servo"}
