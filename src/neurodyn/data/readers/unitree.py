# SPDX-License-Identifier: Apache-2.0
"""Unitree's LowState and LowCmd: what the fields of motors mean, and the order of the motors of its robots.

`motor_state[i]` has the position `q` [rad], the velocity `dq` [rad/s] and the torque `tau_est` [N m] of motor i, and
`motor_cmd[i].q` its target. `imu_state` has gyroscope [rad/s], accelerometer [m/s^2] and a quaternion with the scalar
first. `foot_force` is in the unit of its converters. Motors are numbered by robot, not by name; more of them may be
listed than the robot has.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

_MOTOR = re.compile(r"(.*?motor_?(?:state|cmd))(?:\[(\d+)\]\.|[._](\d+)[._])(q|dq|tau_?est)", re.IGNORECASE)
_FIELDS: Mapping[str, Literal["position", "velocity", "effort"]] = {
    "q": "position", "dq": "velocity", "tau_est": "effort", "tauest": "effort",
}  # fmt: skip
_LEGS = ("FR", "FL", "RR", "RL")
_QUADRUPED = tuple(f"{leg}_{joint}" for leg in _LEGS for joint in ("hip", "thigh", "calf"))
_SIDES = ("left", "right")
_LEG = ("hip_pitch", "hip_roll", "hip_yaw", "knee", "ankle_pitch", "ankle_roll")
_ARM = ("shoulder_pitch", "shoulder_roll", "shoulder_yaw", "elbow")
_WRIST = ("wrist_roll", "wrist_pitch", "wrist_yaw")
_LEGGED = tuple(f"{side}_{joint}" for side in _SIDES for joint in _LEG)
_WAIST = ("waist_yaw", "waist_roll", "waist_pitch")


def _arms(joints: Sequence[str]) -> tuple[str, ...]:
    return tuple(f"{side}_{joint}" for side in _SIDES for joint in joints)


_ORDERS: tuple[tuple[str, ...], ...] = (_QUADRUPED, (*_LEGGED, *_WAIST, *_arms((*_ARM, *_WRIST))))
"""Motors in order: of Go1, Go2, A1, B1 and B2; of the G1, which leaves out numbers if it has fewer than 29 motors."""


def motor_field(column: str) -> tuple[str, int, Literal["position", "velocity", "effort"], bool] | None:
    """Return array, number and quantity of a motor's column, and whether it is a command; None for another column."""
    match = _MOTOR.fullmatch(column)
    if match is None:
        return None
    array, number = match[1], int(match[2] or match[3])
    command, what = array.lower().endswith("cmd"), _FIELDS[match[4].lower()]
    return None if command and what != "position" else (array, number, what, command)


def motor_order(joints: Iterable[str]) -> dict[int, str]:
    """Return the joint of each motor by its number, from the names of a robot's joints; empty for other robots."""
    plain = {_plain(joint): joint for joint in joints}
    for order in _ORDERS:
        if plain and plain.keys() <= set(order):
            return {number: plain[name] for number, name in enumerate(order) if name in plain}
    return {}


def feet(joints: Iterable[str]) -> tuple[str, ...]:
    """Return the joints that move the feet of a quadruped, in the order of `foot_force`; empty for other robots."""
    order = motor_order(joints)
    calves = [name for name in order.values() if _plain(name).endswith("calf")]
    return tuple(calves) if len(calves) == len(_LEGS) else ()


def _plain(name: str) -> str:
    name = re.sub(r"_?(joint|link)$", "", name)
    return f"{name[:2].upper()}{name[2:].lower()}" if name[:2].upper() in _LEGS else name.lower()
