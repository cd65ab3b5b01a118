# SPDX-License-Identifier: Apache-2.0
"""Columns of a free or ball joint's pose and velocity, from their names.

Names tell few conventions. Where they leave some open, the map gets the likeliest, and `inspect` those that fit a log.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from neurodyn.core.description.spec import JointSpec
from neurodyn.data.readers.column_names import TOLD, words_of

Tree = dict[str, Any]
_ROLL = re.compile(r"roll|rpy(?=\[0])", re.IGNORECASE)
_HEADING = re.compile(r"(?<![A-Za-z])(yaw|heading|theta|psi)(?![A-Za-z])", re.IGNORECASE)
_PLACES = ("", "pos_", "position_", "p", "p_", "pos.", "position.")
_SCALAR = re.compile(r"(?P<stem>(?:.*[^A-Za-z])?)(?P<word>quaternion|quat|orientation|rotation|rot|q|)(?P<gap>[_.]?)w",
                     re.IGNORECASE)  # fmt: skip
_ARRAYS = {
    "quaternion": ("quaternion", "quat", "orientation", "rotation", "rot"),
    "position": ("position", "pos", "xyz", "translation", "trans"),
    "linear_velocity": ("linear_velocity", "lin_vel", "linvel", "velocity", "vel"),
    "angular_velocity": ("angular_velocity", "ang_vel", "angvel", "omega", "rate", "rates"),
}
"""Names of arrays, behind the name of the body or alone."""
_LINEAR = ("v", "v_", "vel_", "vel.", "lin_vel_", "linear_velocity_", "lin_vel.", "linear_velocity.", "velocity_")
_ANGULAR = ("w", "w_", "omega_", "ang_vel_", "angvel_", "angular_velocity_", "ang_vel.", "angular_velocity.")
"""What stands before x, y and z in the names of velocities."""
_OTHERS = {
    "ee", "eef", "tool", "tcp", "imu", "target", "desired", "des", "goal", "ref", "reference", "cmd", "command",
    "object", "foot", "hand", "camera",
}  # fmt: skip
"""Words in the names of poses that are not those of a base."""


def base_columns(joint: JointSpec, columns: Sequence[str], log_format: str) -> tuple[Tree | None, list[str]]:
    """Return the columns of a free or ball joint as a column map has them, and notes; None if there are none."""
    for form in _FORMS:
        tree, notes = form(joint, columns, log_format)
        if tree is None:
            continue
        used = [one for value in tree.values() if isinstance(value, list) for one in value if isinstance(one, str)]
        if not set(used) <= set(columns):
            break
        if joint.kind == "ball":
            tree = {key: value for key, value in tree.items() if not key.startswith(("position", "linear"))}
        return tree, [f"{joint.name}: {note}" for note in notes]
    return None, []


def numbered(array: str, first: int, count: int) -> list[str]:
    """Return the names of consecutive elements of an array."""
    return [f"{array}[{index}]" for index in range(first, first + count)]


_Form = tuple[Tree | None, list[str]]
_NONE: _Form = (None, [])
_DIFFERENTIATED = "velocities are differentiated from its poses"


def _of_mujoco(joint: JointSpec, columns: Sequence[str], log_format: str) -> _Form:
    if log_format != "mujoco" or joint.kind != "free":
        return _NONE
    return {
        "position": numbered("qpos", 0, 3), "quaternion": numbered("qpos", 3, 4), "order": "wxyz",
        "linear_velocity": numbered("qvel", 0, 3), "linear_of": "origin",
        "angular_velocity": numbered("qvel", 3, 3), "angular_axes": "body",
    }, []  # fmt: skip


def _of_isaac_lab(joint: JointSpec, columns: Sequence[str], log_format: str) -> _Form:
    root = min((c.rpartition("/root_pose[")[0] for c in columns if "/root_pose[" in c), default=None)
    if root is None:
        return _NONE
    return {
        "position": numbered(f"{root}/root_pose", 0, 3), "quaternion": numbered(f"{root}/root_pose", 3, 4),
        "order": "wxyz", "linear_velocity": numbered(f"{root}/root_velocity", 0, 3),
        "angular_velocity": numbered(f"{root}/root_velocity", 3, 3), "angular_axes": "world",
    }, []  # fmt: skip


def _of_own_topics(joint: JointSpec, columns: Sequence[str], log_format: str) -> _Form:
    pose, twist = f"/{joint.name}/pose.pose", f"/{joint.name}/twist.twist"
    there = f"{pose}.orientation.w" in columns
    return (_of_messages(pose, twist) | {"angular_axes": "world"}, []) if there else _NONE


def _of_odometry(joint: JointSpec, columns: Sequence[str], log_format: str) -> _Form:
    topic = next(_before(".pose.pose.orientation.w", columns), None)
    if topic is None or joint.kind != "free":
        return _NONE
    tree = _of_messages(f"{topic}.pose.pose", f"{topic}.twist.twist")
    return tree | {"angular_axes": "body", "linear_axes": "body", "linear_of": "origin"}, []


def _of_tracker(joint: JointSpec, columns: Sequence[str], log_format: str) -> _Form:
    topic = next(_before(".orientation.w", [c for c in columns if c.endswith(".pose.orientation.w")]), None)
    if topic is None:
        return _NONE
    tree = {key: value for key, value in _of_messages(topic, "").items() if not key.endswith("velocity")}
    return tree, [_DIFFERENTIATED]


def _of_angles(joint: JointSpec, columns: Sequence[str], log_format: str) -> _Form:
    """Take a rotation that is named roll, pitch and yaw, with a position beside it."""
    for column, match in ((column, match) for column in columns if (match := _ROLL.search(column))):
        stem, word, end = column[: match.start()], match[0], column[match.end() :]
        cased = str.upper if word.isupper() else str.title if word.istitle() else str.lower
        names = [f"{stem}{cased(angle)}{end}" for angle in ("roll", "pitch", "yaw")]
        names = numbered(stem + word, 0, 3) if end == "[0]" else names
        place, length = _position(joint, stem, columns)
        if place is None or not set(names) <= set(columns):
            continue
        note = (
            "roll, pitch and yaw are taken for angles about the world's axes in this order (`sequence`: xyz), and its "
            "velocities are differentiated from its poses"
        )
        units = {"angles_unit": TOLD["position"].get(" ".join(words_of(end)), ""), "position_unit": length}
        tree = {"position": place, "angles": names, "sequence": "xyz", **units}
        return {name: value for name, value in tree.items() if value}, [note]
    return _NONE


def _of_names(joint: JointSpec, columns: Sequence[str], log_format: str) -> _Form:
    """Take a quaternion of four named columns or of an array, and position and velocities with the same beginning."""
    found = [*_named_quaternions(columns), *_array_quaternions(columns)]
    bodies = [stem for stem, _, _ in found]
    for stem, quaternion, order in sorted(found, key=lambda one: _rank(joint, one[0])):
        if _OTHERS.intersection(words_of(stem)):
            continue
        place, length = _position(joint, stem, columns)
        if place is None:
            continue
        tree: Tree = {"position": place, "quaternion": quaternion, "order": order or "wxyz"}
        tree |= {"position_unit": length} if length else {}
        linear = _vector(stem, _LINEAR, "linear_velocity", columns, place)
        angular = _vector(stem, _ANGULAR, "angular_velocity", columns, place)
        notes = []
        if angular and (linear or joint.kind == "ball"):
            tree |= {"linear_velocity": linear, "linear_of": "origin"} if linear else {}
            tree |= {"angular_velocity": angular, "angular_axes": "world"}
            notes.append(f"axes of velocities{'' if order else ' and the order of the quaternion'} are to be checked")
        else:
            notes.append(_DIFFERENTIATED)
            notes += [] if order else ["the order of its quaternion is to be checked (wxyz, scalar first, or xyzw)"]
        others = [other for other in bodies if other != stem and not _OTHERS.intersection(words_of(other))]
        notes += [f"its columns begin with {stem!r}; there is a pose of {others[0]!r}, too"] if others else []
        return tree, notes
    return _NONE


def _of_plane(joint: JointSpec, columns: Sequence[str], log_format: str) -> _Form:
    """Take the heading of a robot on wheels, with x and y beside it; its height is a constant, 0 for now."""
    for column, match in ((column, match) for column in columns if (match := _HEADING.search(column))):
        stem, end = column[: match.start()], column[match.end() :]
        if joint.kind != "free" or _OTHERS.intersection(words_of(stem)):
            continue
        found = next((one for place in _PLACES if (one := _with_axes(stem + place, columns, axes="xy"))), None)
        if found is None:
            continue
        (place, length), angle = found, TOLD["position"].get(" ".join(words_of(end)), "")
        units = {"angles_unit": angle, "position_unit": length}
        tree = {"position": [*place, 0.0], "angles": [0.0, 0.0, column], "sequence": "xyz", **units}
        note = f"only x, y and the heading are logged: it is taken for upright, at a constant height; {_DIFFERENTIATED}"
        return {name: value for name, value in tree.items() if value}, [note]
    return _NONE


_FORMS: tuple[Callable[[JointSpec, Sequence[str], str], _Form], ...] = (
    _of_mujoco, _of_isaac_lab, _of_own_topics, _of_odometry, _of_tracker, _of_names, _of_angles, _of_plane,
)  # fmt: skip


def _before(ending: str, columns: Sequence[str]) -> Iterator[str]:
    return (column.removesuffix(ending) for column in columns if column.endswith(ending))


def _of_messages(pose: str, twist: str) -> Tree:
    return {
        "position": [f"{pose}.position.{axis}" for axis in "xyz"],
        "quaternion": [f"{pose}.orientation.{axis}" for axis in "xyzw"],
        "order": "xyzw",
        "linear_velocity": [f"{twist}.linear.{axis}" for axis in "xyz"],
        "angular_velocity": [f"{twist}.angular.{axis}" for axis in "xyz"],
    }


def _rank(joint: JointSpec, stem: str) -> tuple[bool, bool]:
    """Return what to sort poses by: first those of the joint, then those of a base."""
    words = words_of(stem)
    return not set(words_of(joint.name)) & set(words), not {"base", "root", "torso", "trunk", "pelvis"} & set(words)


def _named_quaternions(columns: Sequence[str]) -> Iterator[tuple[str, list[str], str]]:
    """Yield the beginning, the columns and the order of quaternions whose elements are named w, x, y and z."""
    for column in columns:
        match = _SCALAR.fullmatch(column)
        if match and (match["word"] or match["stem"].lower().endswith(("quaternion_", "quat_"))):
            names = [f"{column[:-1]}{axis if column[-1].islower() else axis.upper()}" for axis in "wxyz"]
            if set(names) <= set(columns):
                yield match["stem"], names, "wxyz"


def _array_quaternions(columns: Sequence[str]) -> Iterator[tuple[str, list[str], str]]:
    """Yield the same of arrays of four elements, and of seven with a position, whose order no name tells."""
    for array in (column.removesuffix("[3]") for column in columns if column.endswith("[3]")):
        width = sum(f"{array}[{k}]" in columns for k in range(8))
        stem, last = _split(array, _ARRAYS["quaternion"])
        if last and width == 4:
            yield stem, numbered(array, 0, 4), ""
        elif array.lower().endswith("pose") and width == 7:
            yield array, numbered(array, 3, 4), ""


def _split(array: str, words: Sequence[str]) -> tuple[str, str]:
    """Return what stands before the first of the words that ends an array's name, and that word; empty if none does."""
    for word in words:
        stem = array[: -len(word)] if array.lower().endswith(word) else None
        if stem is not None and (not stem or not stem[-1].isalnum()):
            return stem, word
    return array, ""


def _position(joint: JointSpec, stem: str, columns: Sequence[str]) -> tuple[list[str] | None, str]:
    """Return the columns of a position and their unit; none for a ball joint, and None where they are missing."""
    if joint.kind != "free":
        return [], ""
    if f"{stem}[6]" in columns:
        return numbered(stem, 0, 3), ""
    named = (_with_axes(stem + place, columns) for place in _PLACES)
    arrays = ((numbered(stem + word, 0, 3), "") for word in _ARRAYS["position"] if f"{stem}{word}[2]" in columns)
    return next((one for one in (*named, *arrays) if one is not None), (None, ""))


def _vector(
    stem: str, starts: Sequence[str], what: str, columns: Sequence[str], other: Sequence[str]
) -> list[str]:  # fmt: skip
    """Return the columns of a velocity; empty if there are none."""
    for start in starts:
        found = _with_axes(stem + start, columns, units=False)
        if found is not None and found[0] != other:
            return found[0]
    for word in _ARRAYS[what]:
        if f"{stem}{word}[2]" in columns and f"{stem}{word}[3]" not in columns:
            return numbered(stem + word, 0, 3)
    return []


def _with_axes(
    start: str, columns: Sequence[str], units: bool = True, axes: str = "xyz"
) -> tuple[list[str], str] | None:  # fmt: skip
    """Return the columns of some axes that begin with a text, and their unit, if their names tell one."""
    for column in columns:
        end = column.removeprefix(start + axes[0])
        unit = TOLD["position"].get(" ".join(words_of(end)), "")
        names = [f"{start}{axis}{end}" for axis in axes]
        if end != column and ((unit and units) or not end) and set(names) <= set(columns):
            return names, unit
    return None
