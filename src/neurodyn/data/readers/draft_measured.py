# SPDX-License-Identifier: Apache-2.0
"""Sensors in a drafted column map: streams whose columns are named as those of inertial units, wrenches and poses."""

import re
from collections.abc import Sequence
from typing import Any, NamedTuple


class _Pattern(NamedTuple):
    """Columns of one kind of sensor: prefix, then this, then x, y, z (and w) or a number in brackets."""

    kind: str
    columns: dict[str, str]


_AXES = {"position": "xyz", "quaternion": "xyzw"}
_PATTERNS = (
    _Pattern("imu", {"angular_velocity": ".angular_velocity.", "specific_force": ".linear_acceleration."}),
    _Pattern("wrench", {"force": ".wrench.force.", "torque": ".wrench.torque."}),
    _Pattern("odometry", {"linear_velocity": ".twist.twist.linear.", "angular_velocity": ".twist.twist.angular."}),
    _Pattern("pose", {"position": ".pose.pose.position.", "quaternion": ".pose.pose.orientation."}),
    _Pattern("pose", {"position": ".pose.position.", "quaternion": ".pose.orientation."}),
    _Pattern("pose", {"position": "eef_pos[", "quaternion": "eef_quat["}),
)
_HINTS = {
    "imu": "`specific_force` is that of an accelerometer: upwards at rest",
    "wrench": "`sign: {force: -1, torque: -1}` where it is that of the tool on the robot",
    "odometry": "its velocity is that of the child frame, along its axes",
    "pose": "in the frame that the robot stands in",
}


def draft_measured(columns: Sequence[str], used: Sequence[str]) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """Return the columns of sensors by a name for each, and what has to be looked at.

    Args:
        columns: All columns of the log.
        used: Those that have a meaning already.
    """
    there, taken = list(dict.fromkeys(columns)), set(used)
    found: dict[str, dict[str, Any]] = {}
    doubts: list[str] = []
    for pattern in _PATTERNS:
        first = next(iter(pattern.columns.values()))
        ending = f"{first}{'0]' if first.endswith('[') else 'x'}"
        for prefix in [column.removesuffix(ending) for column in there if column.endswith(ending)]:
            tree = {name: _listed(prefix + text, _AXES.get(name, "xyz")) for name, text in pattern.columns.items()}
            names = {column for part in tree.values() for column in part}
            if not names <= set(there) or names & taken:
                continue
            taken |= names
            name = _name(prefix, pattern.kind, found)
            found[name] = {"kind": pattern.kind, "columns": tree}
            doubts.append(f"{name}: {_HINTS[pattern.kind]}; `sensors` says where it sits")
    return found, doubts


def _listed(text: str, axes: str) -> list[str]:
    return [f"{text}{index}]" if text.endswith("[") else f"{text}{axis}" for index, axis in enumerate(axes)]


def _name(prefix: str, kind: str, known: dict[str, Any]) -> str:
    """Return a name for a sensor, of its topic or array; with its kind, where that is taken."""
    words = "_".join(word for word in re.split(r"[^A-Za-z0-9]+", prefix) if word) or kind
    return words if words not in known else f"{words}_{kind}"
