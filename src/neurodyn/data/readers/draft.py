# SPDX-License-Identifier: Apache-2.0
"""Draft column maps: the likely meaning of a log's columns, from their names and the robot's joints."""

import re
import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Literal

import yaml

from neurodyn.core.config import from_dict
from neurodyn.core.description.scene import Vector3
from neurodyn.core.description.spec import JointSpec, StateSpec
from neurodyn.core.errors import InputError
from neurodyn.data.readers.column_map import ColumnMap
from neurodyn.data.readers.floating import UNMEASURED
from neurodyn.data.readers.patterns import pattern_of
from neurodyn.data.readers.source import Source, Topic, split_reference
from neurodyn.data.readers.unitree import feet, motor_field, motor_order

_AXES = {"position": "xyz", "quaternion": "xyzw"}
_ENDS = (".", "[", "_")
_INERTIAL = (
    ("angular_velocity", "linear_acceleration"), ("angular_velocity", "specific_force"), ("gyroscope", "accelerometer"),
    ("gyro", "acc"), ("gyro", "accel"),
)  # fmt: skip
_PATTERNS = (
    *(
        ("imu", {"angular_velocity": f"{gyroscope}{end}", "specific_force": f"{accelerometer}{end}"})
        for gyroscope, accelerometer in _INERTIAL
        for end in _ENDS
    ),
    ("wrench", {"force": ".wrench.force.", "torque": ".wrench.torque."}),
    ("odometry", {"linear_velocity": ".twist.twist.linear.", "angular_velocity": ".twist.twist.angular."}),
    ("pose", {"position": ".pose.pose.position.", "quaternion": ".pose.pose.orientation."}),
    ("pose", {"position": ".pose.position.", "quaternion": ".pose.orientation."}),
    ("pose", {"position": "eef_pos[", "quaternion": "eef_quat["}),
)
"""Sensor kinds and their columns: prefix, then the text here, then x, y, z (and w) or an index in brackets."""
_ATTITUDE = tuple(
    ("orientation", {"quaternion": f"{name}{end}"}) for name in ("orientation", "quaternion", "quat") for end in _ENDS
)
"""The same of attitudes from an IMU, which are of use where no pose is measured."""
_FEET = ("foot_force", "footForce")

_HINTS = {
    "imu": "`specific_force` is that of an accelerometer: upwards at rest",
    "wrench": "`sign: {force: -1, torque: -1}` where it is that of the tool on the robot",
    "odometry": "its velocity is that of the child frame, along its axes",
    "pose": "in the frame that the robot stands in",
    "orientation": "its heading may drift; `order` says where the quaternion has its scalar",
    "foot_switch": "`threshold` is the reading from which on a foot is in contact",
}


def draft_measured(
    columns: Sequence[str], used: Sequence[str], patterns: Sequence[tuple[str, Mapping[str, str]]] = _PATTERNS,
    named: Iterable[str] = (),
) -> tuple[dict[str, dict[str, Any]], list[str]]:  # fmt: skip
    """Return the columns of each sensor, except `used` ones, and notes on what the user must check.

    Names in `named` are taken.
    """
    there, taken = list(dict.fromkeys(columns)), set(used)
    sensors: dict[str, dict[str, Any]] = {}
    doubts: list[str] = []
    for kind, parts in patterns:
        first = next(iter(parts.values()))
        ending = f"{first}{'0]' if first.endswith('[') else 'x'}"
        for prefix in [column.removesuffix(ending) for column in there if column.endswith(ending)]:
            tree = {name: _element_names(prefix + text, _AXES.get(name, "xyz")) for name, text in parts.items()}
            names = {column for part in tree.values() for column in part}
            if not names <= set(there) or names & taken:
                continue
            taken |= names
            name = _name(prefix, kind, {*sensors, *named})
            sensors[name] = {"kind": kind, "columns": tree}
            doubts.append(f"{name}: {_HINTS[kind]}; `sensors` says where it sits")
    return sensors, doubts


def _element_names(text: str, axes: str) -> list[str]:
    return [f"{text}{index}]" if text.endswith("[") else f"{text}{axis}" for index, axis in enumerate(axes)]


def _name(prefix: str, kind: str, known: Collection[str]) -> str:
    """Return a sensor name from its topic or array, with the kind appended if the name is taken."""
    words = "_".join(word for word in re.split(r"[^A-Za-z0-9]+", prefix) if word) or kind
    return words if words not in known else f"{words}_{kind}"


Quantity = Literal["position", "velocity", "effort", "command"]

_WORDS: dict[Quantity, tuple[str, ...]] = {
    "command": (
        "action", "actions", "cmd", "command", "commanded", "commands", "ctrl", "des", "desired", "goal", "target",
        "setpoint", "u",
    ),
    "velocity": (
        "velocity", "velocities", "vel", "qvel", "qd", "dq", "qdot", "dot", "dtheta", "speed", "omega", "rpm",
    ),
    "effort": ("effort", "torque", "torques", "tau", "moment", "force", "current", "eff"),
    "position": ("position", "positions", "pos", "qpos", "q", "angle", "angles", "theta", "joint", "state"),
}  # fmt: skip
"""Words in column names, by quantity; the first match wins."""
_NUMBERED = re.compile(f"({'|'.join({*sum(_WORDS.values(), ())} - {'joint', 'state'})})(\\d+)(dot)?")
"""Such a word with the number of a joint, such as q1 or q1dot; `joint1` is a name."""
_NUMBER = re.compile(r"(?:axis|id|j|joint|motor|servo)?_?(\d+)")
"""Names by numbers, where no joint has them."""
_MEASURED = {"actual", "applied", "feedback", "joints", "measured", "meas", "observed", "present", "states"}
"""Words beside a joint's name that say what every reading is."""

_NO_JOINT = (
    "orientation", "linear", "angular", "root", "eef", "ee", "object", "time", "timestamp", "covariance", "force",
    "ft", "gripper_pos", "quat", "cube", "covariances", "initial", "quaternion", "imu", "gyroscope", "gyro", "acc",
    "accel", "accelerometer", "foot", "footforce", "temperature",
)  # fmt: skip
_ROS_STATE = re.compile(r"(.+)\.(?:.*\.)?(position|velocity|effort|positions|velocities)\[([^\]]+)\]")


_TOLD: dict[Quantity, dict[str, str]] = {
    "position": {
        "deg": "deg", "degree": "deg", "degrees": "deg", "rad": "rad", "mrad": "mrad", "rev": "rev", "m": "m",
        "mm": "mm", "cm": "cm",
    },
    "velocity": {
        "deg s": "deg/s", "degs": "deg/s", "dps": "deg/s", "rad s": "rad/s", "rads": "rad/s", "rpm": "rpm",
        "rev s": "rev/s", "m s": "m/s", "mm s": "mm/s", "cm s": "cm/s",
    },
    "effort": {"nm": "N m", "n m": "N m", "mnm": "mN m", "mn m": "mN m", "ncm": "N cm", "n cm": "N cm"},
}  # fmt: skip
"""Units at the end of columns' names, in lower case, by what they measure."""
_UNIT_WORDS = {word for units in _TOLD.values() for unit in units for word in unit.split()} | {"ma"}
_SYMBOLS = re.compile(r"(?<![A-Za-z])(m?N ?c?m|mA)(?![A-Za-z])")
"""Symbols of units, which are no two words."""
_BARE = {"joint", "joints", "state"}
"""Words beside a joint's name that tell nothing of a command."""
_CURRENTS = {"current", "currents", "ma", "amps", "amperes", "iq"}


def told_unit(column: str) -> str | None:
    """Return the unit that a joint's column has at the end of its name, as "elbow_pos_deg" has; None for none."""
    own, found = meaning(column), _unit_at_end(column)
    if own is None or found is None or own.array != column:  # the name of a joint in an array
        return None
    return found[1] if own.quantity in {found[0], "command"} else None


def _unit_at_end(column: str) -> tuple[Quantity, str] | None:
    """Return the unit at the end of a name, and what it measures."""
    words = _words(column)
    for end in (" ".join(words[-count:]) for count in (2, 1) if len(words) > count):
        for quantity, units in _TOLD.items():
            if end in units:
                return quantity, units[end]
    return None


def _commanded(column: str) -> Quantity | None:
    """Return what a command commands, from the unit or another word in its name; None if it tells neither."""
    if (found := _unit_at_end(column)) is not None:
        return found[0]
    words = [part for word in _words(column) for part in _parts(word)]
    kinds: tuple[Quantity, ...] = ("velocity", "effort", "position")
    return next((kind for kind in kinds if any(word in _WORDS[kind] for word in words if word not in _BARE)), None)


@dataclass(frozen=True)
class ColumnMeaning:
    """Meaning of a column's name.

    `key` is the joint's name or number, and `array` the array, topic or field that contains the column. It is `ordered`
    if the key is a number in an order that the log does not explain.
    """

    quantity: Quantity
    key: str
    array: str
    ordered: bool


@dataclass
class ColumnMapDraft:
    """Draft column map: its keys, notes on what the user must check, and coordinates without a column.

    `torques` holds the notes on commands that are taken for torques though no name says so.
    """

    tree: dict[str, Any]
    doubts: list[str] = field(default_factory=list)
    absent: list[str] = field(default_factory=list)
    torques: list[str] = field(default_factory=list)

    def take_for_targets(self) -> None:
        """Take commands for position targets, because their values are like the positions."""
        self.tree["control_kind"] = "target"
        self.doubts = [line for line in self.doubts if line not in self.torques]
        self.doubts.append(f"commands are position targets, as they are like the positions; {_FOLLOWED}")


def meaning(column: str) -> ColumnMeaning | None:
    """Return the meaning of a column's name; None if it does not concern a joint."""
    motor = motor_field(column)
    if motor is not None:
        array, number, what, command = motor
        return ColumnMeaning("command" if command else what, str(number), f"{array}.{what}", True)
    match = _ROS_STATE.fullmatch(column)
    if match:
        topic, name, key = match.groups()
        command = not set(_words(topic)).isdisjoint(_WORDS["command"]) or ".points[" in column
        quantity: Quantity = (
            "position" if name.startswith("pos") else "velocity" if name.startswith("vel") else "effort"
        )
        return ColumnMeaning("command" if command else quantity, key, f"{topic}.{name}", key.isdecimal())
    array, key = split_reference(column)
    if key is not None and _UNIT_WORDS.issuperset(_words(key)):  # "elbow position [deg]"
        array, key = column, None
    if key is not None and not key.isdecimal():
        stem, _, suffix = key.rpartition(".")
        inner = _quantity(suffix) if stem else None
        outer = _quantity(array)
        quantity_ = "command" if outer == "command" else inner or outer
        return None if quantity_ is None else ColumnMeaning(quantity_, stem if inner else key, array, False)
    words = [part for word in _words(array) for part in _parts(word)]
    if any(word in _NO_JOINT for word in words):
        return None
    quantity_ = _quantity(" ".join(words))
    found = _unit_at_end(array)
    if quantity_ is None and found is not None and found[1] != "m":  # "elbow_deg"; many things are in metres
        quantity_ = found[0]
    if quantity_ is None:
        return None
    if key is not None:
        return ColumnMeaning(quantity_, key, array, True)
    rest = [word for word in words if not any(word in known for known in _WORDS.values())]
    rest = [word for word in rest if word not in _UNIT_WORDS | _MEASURED]
    return ColumnMeaning(quantity_, "_".join(rest), array, False) if rest else None


def draft_map(
    source: Source, name: str, topics: Sequence[Topic], spec: StateSpec | None,
    centers: Mapping[str, Vector3] = MappingProxyType({}),
) -> ColumnMapDraft:  # fmt: skip
    """Draft a column map for a log of format `name`; without a robot, joints are named as in the log.

    `centers` are centres of mass of free joints' bodies in their frames [m], by joint.
    """
    columns = [column for topic in topics for column in topic.columns]
    known = {column: own for column in columns if (own := meaning(column)) is not None}
    draft = ColumnMapDraft({"format": name})
    stamp = source.stamp()
    if stamp is not None:
        draft.tree["time"] = stamp
    draft.tree |= source.runs()
    joints = [joint.name for joint in spec.joints if joint.scalar] if spec is not None else None
    floating = [joint for joint in spec.joints if not joint.scalar] if spec is not None else []
    for joint in floating:
        _add_floating(draft, joint, columns, name)
        _add_center(draft, joint.name, centers.get(joint.name))
    if joints is not None:
        known = _by_motor(known, joints)
    skip = sum(joint.nq for joint in floating) if name == "mujoco" else 0, sum(j.nv for j in floating)
    q = _coordinates(draft, known, "position", joints, skip[0])
    draft.tree["q"] = q
    _note_absent(draft, "position", joints or [], q)
    qd = _coordinates(draft, known, "velocity", list(q), skip[1] if name == "mujoco" else 0)
    posed = draft.tree.get("floating", {})
    moving = [tree for tree in posed.values() if "angular_velocity" in tree]
    if q.keys() == qd.keys() and len(moving) == len(posed) and (qd or moving):
        draft.tree["qd"] = qd
    elif not moving:
        draft.tree |= {"qd": "differentiate", "velocity": "past"}
        lacking = ", ".join([*(name for name in q if name not in qd), *posed])
        which = f" of {lacking}, so that those of others are left out" if qd else ""
        draft.doubts.append(f"there are no velocities{which}: positions are differentiated, without looking ahead")
    _add_controls(draft, known, spec, list(q))
    for what in ("q", "qd", "control"):
        for entry in draft.tree[what].values() if isinstance(draft.tree.get(what), dict) else ():
            if (unit := told_unit(entry["column"])) not in {None, "rad", "rad/s", "m", "m/s", "N m"}:
                entry["unit"] = unit
    used = [c for tree in posed.values() for part in tree.values() for c in part]
    measured, doubts = draft_measured(columns, used)
    if spec is not None and spec.floating:
        doubts += _leave_unmeasured(draft, spec, columns, measured)
    if measured:
        draft.tree["measured"] = measured
        draft.doubts += doubts
    if not draft.tree["q"]:
        del draft.tree["q"]
    return draft


def _by_motor(known: Mapping[str, ColumnMeaning], joints: Sequence[str]) -> dict[str, ColumnMeaning]:
    """Return the meanings of columns, in which numbered motors have the names of a robot's joints, if it is known."""
    order, named = motor_order(joints), dict[str, ColumnMeaning]()
    for column, own in known.items():
        if order and motor_field(column) is not None:
            if int(own.key) not in order:  # of a motor that the robot does not have
                continue
            own = replace(own, key=order[int(own.key)], ordered=False)
        named[column] = own
    return named


def _leave_unmeasured(
    draft: ColumnMapDraft, spec: StateSpec, columns: Sequence[str], measured: dict[str, dict[str, Any]]
) -> list[str]:
    """Declare a base without a pose as unmeasured if there is an IMU, add what else tells of it, and return notes."""
    base, inertial = spec.joints[0].name, [one for one in measured.values() if one["kind"] == "imu"]
    if base in draft.tree.get("floating", {}) or not inertial:
        return []
    draft.tree["floating"] = {base: UNMEASURED} | draft.tree.get("floating", {})
    draft.absent.remove(_pose_of(base))
    for one in inertial:
        one["averaged"] = ["specific_force"]
    used = [c for one in measured.values() for part in one["columns"].values() for c in part]
    more, doubts = draft_measured(columns, used, _ATTITUDE, measured)
    for one in more.values():
        one["order"] = "xyzw" if one["columns"]["quaternion"][0].endswith("x") else "wxyz"
    measured |= more
    calves = feet(joint.name for joint in spec.joints if joint.scalar)
    for forces in (c.removesuffix("[0]") for c in columns if calves and c.endswith(tuple(f"{f}[0]" for f in _FEET))):
        tree = {"contact": _by_number(forces, 0, len(calves))}
        measured["feet"] = {"kind": "foot_switch", "columns": tree, "joints": list(calves), "threshold": 20}
        doubts.append(f"feet: {_HINTS['foot_switch']}")
    return [f"{base}: no pose is logged; `neurodyn adapt` estimates it from the other sensors", *doubts]


def infer_map(source: Source, name: str, spec: StateSpec) -> ColumnMap:
    """Return the column map of a log whose columns are named after the robot's joints, or raise an InputError."""
    draft = draft_map(source, name, source.topics(), spec)
    if draft.absent:
        raise InputError(
            f"{source.path}: has no column that is named as {draft.absent[0]} of {spec.robot!r}; write a column map: "
            f"`neurodyn inspect {shlex.quote(str(source.path))} --robot {spec.robot}` drafts one for --reader"
        )
    return from_dict(draft.tree, ColumnMap, f"{source.path} (drafted column map)")


def _add_controls(
    draft: ColumnMapDraft, known: Mapping[str, ColumnMeaning], spec: StateSpec | None, joints: list[str]
) -> None:
    controls = list(spec.controls) if spec is not None else joints
    target = spec is not None and spec.control_kind in ("target", "command")
    if spec is not None and spec.control_kind == "velocity":
        draft.tree |= {"control": "differentiate", "control_kind": "velocity"}
        return
    wanted: Quantity = "position" if target else "effort"
    commands = {column: m for column, m in known.items() if m.quantity == "command"}
    ros = {column: m for column, m in commands.items() if m.array.rpartition(".")[2].startswith(("pos", "vel", "eff"))}
    fitting = {column: m for column, m in ros.items() if m.array.rpartition(".")[2].startswith(wanted[:3])}
    kinds = {column: _commanded(column) for column in commands if column not in ros}

    def of_kind(kind: Quantity | None) -> dict[str, ColumnMeaning]:
        return {column: commands[column] for column, own in kinds.items() if own == kind}

    efforts = {column: m for column, m in known.items() if m.quantity == "effort"}
    currents = {column: m for column, m in efforts.items() if _CURRENTS.intersection(_words(column))}
    choices = [_coordinates(draft, fitting, "command", controls, 0)]
    if not target:
        torques = {column: m for column, m in efforts.items() if column not in currents}
        choices.append(_coordinates(draft, torques, "effort", controls, 0))
    choices.append(_coordinates(draft, of_kind(wanted), "command", controls, 0))
    actions = _coordinates(draft, of_kind(None), "command", controls, 0)
    targets = {} if target else _coordinates(draft, of_kind("position"), "command", controls, 0)
    amperes = {} if target else _coordinates(draft, currents, "effort", controls, 0)
    best = max([*choices, actions, targets, amperes], key=len)
    draft.tree["control"] = best
    if spec is not None:
        _note_absent(draft, "control", controls, best)
    if best and best is targets:
        draft.tree["control_kind"] = "target"
        draft.doubts.append(f"{next(iter(best.values()))['column']}: {_TARGETS}")
    elif best and best is amperes:
        names = ", ".join(own["column"] for own in best.values())
        draft.doubts.append(f"{names}: a current is no torque; give its `scale` [N m per unit of it]")
    elif best and best is actions:
        what = "torques [N m]" if not target else "position targets"
        what = "commands of its actuators" if spec is not None and spec.control_kind == "command" else what
        draft.doubts.append(f"actions are taken for {what}; give `scale` and `offset` where they are not")
        if not target:
            draft.doubts.append(f"actions that are position targets need `control_kind: target` and {_DRIVES}")
            draft.torques = draft.doubts[-2:]


_DRIVES = '`drives: {"*": {kind: pd, kp: ..., kd: ...}}`'
_FOLLOWED = f"what follows them is to be given, such as {_DRIVES}"
_TARGETS = f"commands are position targets, by their names; {_FOLLOWED}"


def _coordinates(
    draft: ColumnMapDraft, known: Mapping[str, ColumnMeaning], quantity: Quantity, joints: list[str] | None, skip: int
) -> dict[str, dict[str, str]]:
    """Return the column of each joint: by name, or by number (in an array, or of columns) if the counts agree."""
    arrays: dict[str, dict[str, str]] = {}
    ordered: set[str] = set()
    for column, own in known.items():
        if own.quantity == quantity:
            arrays.setdefault(own.array if own.ordered else quantity, {}).setdefault(own.key, column)
            ordered |= {own.array} if own.ordered else set()
    named = arrays.pop(quantity, {}) if quantity not in ordered else {}
    if joints is None:
        if named:
            return {key: {"column": column} for key, column in named.items()}
        first = next(iter(arrays.values()), {})
        return {f"joint{key}": {"column": column} for key, column in first.items()}
    lower = {_plain(key): column for key, column in named.items()}
    by_name = {joint: {"column": lower[_plain(joint)]} for joint in joints if _plain(joint) in lower}
    if len(by_name) == len(joints) and by_name:
        taken = {_plain(joint): entry["column"] for joint, entry in by_name.items()}
        rivals = [(taken[_plain(own.key)], column) for column, own in known.items()
                  if own.quantity == quantity and not own.ordered and _plain(own.key) in taken]  # fmt: skip
        _doubt_rivals(draft, quantity, *next(((one, other) for one, other in rivals if one != other), ("", "")))
        return by_name
    if numbers := {int(found[1]): c for key, c in named.items() if (found := _NUMBER.fullmatch(key))}:
        own = dict(sorted(numbers.items()))
        arrays[", ".join(own.values())] = {str(number): column for number, column in own.items()}
    fitting = [array for array, numbered in arrays.items() if len(numbered) - skip == len(joints) > 0]
    if fitting:
        line = f"{fitting[0]}: columns are taken in the order of the robot's joints; check it"
        if line not in draft.doubts:
            draft.doubts.append(line)
        _doubt_rivals(draft, quantity, fitting[0], fitting[1] if len(fitting) > 1 else "")
        columns = list(arrays[fitting[0]].values())[skip:]
        return {joint: {"column": column} for joint, column in zip(joints, columns, strict=True)}
    return by_name


def _doubt_rivals(draft: ColumnMapDraft, quantity: Quantity, taken: str, other: str) -> None:
    """Note that another column has the same meaning as one that is taken; neither is empty if so."""
    line = f"{other}: has a name of the same meaning as {taken}, which is taken; check which {quantity} is right"
    if other and line not in draft.doubts:
        draft.doubts.append(line)


def _note_absent(draft: ColumnMapDraft, what: str, joints: Iterable[str], present: Mapping[str, Any]) -> None:
    draft.absent += [f"the {what} of {joint!r}" for joint in joints if joint not in present]


def _add_floating(draft: ColumnMapDraft, joint: JointSpec, columns: Sequence[str], name: str) -> None:
    """Add the columns of a free or ball joint, from its own topics, odometry, or a simulator."""
    there = set(columns)
    tree: dict[str, Any] | None = None
    if name == "mujoco" and joint.kind == "free":
        tree = {
            "position": _by_number("qpos", 0, 3), "quaternion": _by_number("qpos", 3, 4), "order": "wxyz",
            "linear_velocity": _by_number("qvel", 0, 3), "linear_of": "origin",
            "angular_velocity": _by_number("qvel", 3, 3), "angular_axes": "body",
        }  # fmt: skip
    for root in sorted({c.rpartition("/root_pose[")[0] for c in columns if "/root_pose[" in c}):
        tree = tree or {
            "position": _by_number(f"{root}/root_pose", 0, 3), "quaternion": _by_number(f"{root}/root_pose", 3, 4),
            "order": "wxyz", "linear_velocity": _by_number(f"{root}/root_velocity", 0, 3),
            "angular_velocity": _by_number(f"{root}/root_velocity", 3, 3), "angular_axes": "world",
        }  # fmt: skip
    pose, twist = f"/{joint.name}/pose.pose", f"/{joint.name}/twist.twist"
    if tree is None and f"{pose}.orientation.w" in there:
        tree = _of_messages(pose, twist) | {"angular_axes": "world"}
    odometry = next(
        (c.removesuffix(".pose.pose.orientation.w") for c in columns if c.endswith(".pose.pose.orientation.w")), ""
    )
    if tree is None and odometry and joint.kind == "free":
        tree = _of_messages(f"{odometry}.pose.pose", f"{odometry}.twist.twist")
        tree |= {"angular_axes": "body", "linear_axes": "body", "linear_of": "origin"}
    tracked = next((c.removesuffix(".orientation.w") for c in columns if c.endswith(".pose.orientation.w")), "")
    if tree is None and tracked:
        tree = {key: value for key, value in _of_messages(tracked, "").items() if not key.endswith("velocity")}
        draft.doubts.append(f"{joint.name}: velocities are differentiated from its poses")
    if tree is None:
        tree = _of_angles(draft, joint, columns)
    used = [c for key, value in (tree or {}).items() if isinstance(value, list) for c in value]
    if tree is None or not set(used) <= there:
        draft.absent.append(_pose_of(joint.name))
        return
    if joint.kind == "ball":
        tree = {k: v for k, v in tree.items() if not k.startswith(("position", "linear"))}
    draft.tree.setdefault("floating", {})[joint.name] = tree


_ROLL = re.compile(r"roll|rpy(?=\[0])", re.IGNORECASE)
_PLACES = ("", "pos_", "position_", "p", "pos.", "position.")


def _of_angles(draft: ColumnMapDraft, joint: JointSpec, columns: Sequence[str]) -> dict[str, Any] | None:
    """Return a pose whose rotation is named roll, pitch and yaw; None if there is none, or no position beside it."""
    for column, match in ((column, match) for column in columns if (match := _ROLL.search(column))):
        stem, word, end = column[: match.start()], match[0], column[match.end() :]
        cased = str.upper if word.isupper() else str.title if word.istitle() else str.lower
        names = [f"{stem}{cased(angle)}{end}" for angle in ("roll", "pitch", "yaw")]
        names = _by_number(stem + word, 0, 3) if end == "[0]" else names
        places = [_position_columns(stem + place, columns) for place in _PLACES] if joint.kind == "free" else [([], "")]
        place, length = next((one for one in places if one is not None), (None, ""))
        if place is None or not set(names) <= set(columns):
            continue
        draft.doubts.append(
            f"{joint.name}: roll, pitch and yaw are taken for angles about the world's axes in this order (`sequence`: "
            "xyz), and its velocities are differentiated from its poses"
        )
        units = {"angles_unit": _TOLD["position"].get(" ".join(_words(end)), ""), "position_unit": length}
        tree = {"position": place, "angles": names, "sequence": "xyz", **units}
        return {name: value for name, value in tree.items() if value}
    return None


def _position_columns(start: str, columns: Sequence[str]) -> tuple[list[str], str] | None:
    """Return the columns of x, y and z that begin with a text, and their unit, if their names tell one."""
    for column in columns:
        end = column.removeprefix(start + "x")
        unit = _TOLD["position"].get(" ".join(_words(end)), "")
        names = [f"{start}{axis}{end}" for axis in "xyz"]
        if end != column and (unit or not end) and set(names) <= set(columns):
            return names, unit
    return None


def _pose_of(joint: str) -> str:
    return f"the pose and velocity of {joint!r}"


def _add_center(draft: ColumnMapDraft, joint: str, center: Vector3 | None) -> None:
    """Add the centre of mass of a free joint's body, where velocities are those of another point."""
    tree = draft.tree.get("floating", {}).get(joint)
    if (
        tree is None
        or tree == UNMEASURED
        or "position" not in tree
        or ("linear_velocity" in tree and tree.get("linear_of") != "origin")
    ):
        return
    if center is None:
        draft.doubts.append(f"{joint}: give `center_of_mass` [m], because its velocity is that of the origin")
    else:
        tree["center_of_mass"] = [round(value, 9) for value in center]


def _of_messages(pose: str, twist: str) -> dict[str, Any]:
    return {
        "position": [f"{pose}.position.{axis}" for axis in "xyz"],
        "quaternion": [f"{pose}.orientation.{axis}" for axis in "xyzw"],
        "order": "xyzw",
        "linear_velocity": [f"{twist}.linear.{axis}" for axis in "xyz"],
        "angular_velocity": [f"{twist}.angular.{axis}" for axis in "xyz"],
    }


def _by_number(array: str, first: int, count: int) -> list[str]:
    return [f"{array}[{index}]" for index in range(first, first + count)]


def draft_text(
    draft: ColumnMapDraft, log: str, remarks: Mapping[str, str], robot: str | None, there: Sequence[str] = ()
) -> str:
    """Return a column map as YAML with comments.

    Args:
        draft: The draft.
        log: The log's path.
        remarks: Each column's observed range and unit.
        robot: The robot; None for none.
        there: All columns of the log: where a pattern stands for those of all joints of a robot, it is taken.
    """
    lines = [f"# Column map drafted by `neurodyn inspect {shlex.quote(str(log))}`. Check every line, units above all."]
    lines += [f"# - {doubt}" for doubt in draft.doubts]
    lines += [f"# - no column was found for {absent}" for absent in draft.absent]
    lines.append(
        f"robot: {robot}" if robot else "# robot: robot.yaml    # a declared robot, by name or by path beside this file"
    )
    for key, value in draft.tree.items():
        if key in {"q", "qd", "control"} and isinstance(value, dict):
            lines += _table(key, value, remarks, there if robot else ())
        elif key in {"floating", "measured"}:
            lines.append(f"{key}:")
            for joint, tree in value.items():
                if isinstance(tree, str):
                    lines.append(f"  {_flow(joint)}: {tree}")
                    continue
                lines.append(f"  {_flow(joint)}:")
                lines += [f"    {name}: {_flow(entry)}" for name, entry in tree.items()]
        else:
            lines.append(f"{key}: {_flow(value)}")
    lines.append("alignment: auto          # 0; a clock of commands that is known to differ, by how much [s]")
    lines.append("max_gap: 0.1             # s; a longer pause begins a new episode")
    lines.append("missing: gap             # a value that is not a number begins one too; `error` refuses it")
    return "\n".join(lines) + "\n"


def _table(
    key: str, table: Mapping[str, dict[str, str]], remarks: Mapping[str, str], there: Sequence[str]
) -> list[str]:
    """Return the lines of the columns of joints: with a pattern for them, which columns it stands for."""
    told = {joint: remarks.get(column["column"], "") for joint, column in table.items()}
    rest = [{name: one for name, one in column.items() if name != "column"} for column in table.values()]
    pattern = None
    if there and all(one == rest[0] for one in rest):
        pattern = pattern_of({joint: column["column"] for joint, column in table.items()}, there)
    if pattern is not None:
        entry: Any = {"*": {"column": pattern, **rest[0]}} if rest[0] else pattern
        stands = [f"  # {joint}: {column['column']}    {told[joint]}".rstrip() for joint, column in table.items()]
        return [f"{key}: {_flow(entry)}", *stands]
    lines = [f"{key}:" if table else f"{key}: {{}}"]
    for joint, column in table.items():
        lines.append(f"  {_flow(joint)}: {_flow(column)}" + (f"    # {told[joint]}" if told[joint] else ""))
    return lines


def _flow(value: Any) -> str:
    text = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=10_000, allow_unicode=True)
    return text.removesuffix("...\n").strip()


def _quantity(text: str) -> Quantity | None:
    words = _words(text)
    return next((quantity for quantity, known in _WORDS.items() if any(word in known for word in words)), None)


def _words(text: str) -> list[str]:
    text = _SYMBOLS.sub(lambda found: found[0].lower(), text.replace("°", " deg "))
    spaced = re.sub(r"([a-z])([A-Z])", r"\1 \2", text)
    return [word for word in re.split(r"[^a-z0-9]+", spaced.lower()) if word]


def _parts(word: str) -> tuple[str, ...]:
    """Return the word for a quantity and the number of a joint, such as tau and 1, or the word itself."""
    found = _NUMBERED.fullmatch(word)
    return tuple(part for part in found.groups() if part) if found else (word,)


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "", name.lower())
