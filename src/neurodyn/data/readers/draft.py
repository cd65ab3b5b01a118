# SPDX-License-Identifier: Apache-2.0
"""Draft column maps: the likely meaning of a log's columns, from their names and the robot's joints."""

import re
import shlex
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import yaml

from neurodyn.core.config import from_dict
from neurodyn.core.description.scene import Vector3
from neurodyn.core.description.spec import StateSpec
from neurodyn.core.errors import InputError
from neurodyn.data.readers.base_columns import base_columns, numbered
from neurodyn.data.readers.column_map import ColumnMap
from neurodyn.data.readers.column_names import (
    CURRENTS,
    JOINT_NUMBER,
    ColumnMeaning,
    Quantity,
    commanded,
    meaning,
    plain_name,
    told_unit,
    words_of,
)
from neurodyn.data.readers.floating import UNMEASURED
from neurodyn.data.readers.patterns import pattern_of
from neurodyn.data.readers.source import Source, Topic, factor
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


def draft_map(
    source: Source, name: str, topics: Sequence[Topic], spec: StateSpec | None,
    centers: Mapping[str, Vector3] = MappingProxyType({}), stands: Callable[[], float] = lambda: 0.0,
) -> ColumnMapDraft:  # fmt: skip
    """Draft a column map for a log of format `name`; without a robot, joints are named as in the log.

    `centers` are centres of mass of free joints' bodies in their frames [m], by joint; `stands` returns the height at
    which a floating base stands [m].
    """
    columns = [column for topic in topics for column in topic.columns]
    draft = ColumnMapDraft({"format": name})
    stamp = source.stamp()
    if stamp is not None:
        draft.tree["time"] = stamp
    draft.tree |= source.runs()
    joints = [joint.name for joint in spec.joints if joint.scalar] if spec is not None else None
    floating = [joint for joint in spec.joints if not joint.scalar] if spec is not None else []
    for joint in floating:
        tree, notes = base_columns(joint, columns, name)
        if tree is None:
            draft.absent.append(_pose_of(joint.name))
            continue
        draft.tree.setdefault("floating", {})[joint.name] = tree
        draft.doubts += notes
        _add_center(draft, joint.name, centers.get(joint.name))
        if isinstance(tree.get("position"), list) and tree["position"][2] == 0.0:
            size = factor(tree.get("position_unit", ""), "m", joint.name)
            tree["position"][2] = round(stands() / size, 6)
    posed = draft.tree.get("floating", {})
    used = [c for tree in posed.values() for part in tree.values() if isinstance(part, list) for c in part]
    left = [column for column in columns if column not in used or name == "mujoco"]  # whose arrays go on with joints
    known = {column: own for column in left if (own := meaning(column)) is not None}
    if joints is not None:
        known = _by_motor(known, joints)
    skip = sum(joint.nq for joint in floating) if name == "mujoco" else 0, sum(j.nv for j in floating)
    q = _coordinates(draft, known, "position", joints, skip[0])
    draft.tree["q"] = q
    _note_absent(draft, "position", joints or [], q)
    qd = _coordinates(draft, known, "velocity", list(q), skip[1] if name == "mujoco" else 0)
    moving = [tree for tree in posed.values() if "angular_velocity" in tree]
    if q.keys() == qd.keys() and (qd or moving):
        draft.tree["qd"] = qd
    elif not moving:
        draft.tree |= {"qd": "differentiate", "velocity": "past"}
        lacking = ", ".join(name for name in q if name not in qd)
        which = f" of {lacking}, so that those of others are left out" if qd else ""
        draft.doubts.append(f"there are no velocities{which}: positions are differentiated, without looking ahead")
    _add_controls(draft, known, spec, list(q))
    for what in ("q", "qd", "control"):
        for entry in draft.tree[what].values() if isinstance(draft.tree.get(what), dict) else ():
            if (unit := told_unit(entry["column"])) not in {None, "rad", "rad/s", "m", "m/s", "N m"}:
                entry["unit"] = unit
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
        tree = {"contact": numbered(forces, 0, len(calves))}
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
    kinds = {column: commanded(column) for column in commands if column not in ros}

    def of_kind(kind: Quantity | None) -> dict[str, ColumnMeaning]:
        return {column: commands[column] for column, own in kinds.items() if own == kind}

    efforts = {column: m for column, m in known.items() if m.quantity == "effort"}
    currents = {column: m for column, m in efforts.items() if CURRENTS.intersection(words_of(column))}
    choices = [_coordinates(draft, fitting, "command", controls, 0)]
    if not target:
        torques = {column: m for column, m in efforts.items() if column not in currents}
        choices.append(_coordinates(draft, torques, "effort", controls, 0))
    choices.append(_coordinates(draft, of_kind(wanted), "command", controls, 0))
    actions = _coordinates(draft, of_kind(None), "command", controls, 0)
    targets = {} if target else _coordinates(draft, of_kind("position"), "command", controls, 0)
    speeds = {} if target else _coordinates(draft, of_kind("velocity"), "command", controls, 0)
    amperes = {} if target else _coordinates(draft, currents, "effort", controls, 0)
    best = max([*choices, actions, targets, speeds, amperes], key=len)
    draft.tree["control"] = best
    if spec is not None:
        _note_absent(draft, "control", controls, best)
    if best and best is targets:
        draft.tree["control_kind"] = "target"
        draft.doubts.append(f"{next(iter(best.values()))['column']}: {_TARGETS}")
    elif best and best is speeds:
        draft.tree["control_kind"] = "target"
        draft.doubts.append(f"{next(iter(best.values()))['column']}: {_SPEEDS}")
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
_SPEEDS = (
    "commands are velocities, by their names; what follows them is to be given: "
    '`drives: {"*": {kind: velocity_servo, kd: ...}}`'
)
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
    by_name = _by_name(joints, named)
    if len(by_name) == len(joints) and by_name:
        taken = {plain_name(joint): entry["column"] for joint, entry in by_name.items()}
        rivals = [(taken[plain_name(own.key)], column) for column, own in known.items()
                  if own.quantity == quantity and not own.ordered and plain_name(own.key) in taken]  # fmt: skip
        _doubt_rivals(draft, quantity, *next(((one, other) for one, other in rivals if one != other), ("", "")))
        return by_name
    if numbers := {int(found[1]): c for key, c in named.items() if (found := JOINT_NUMBER.fullmatch(key))}:
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


def _by_name(joints: Sequence[str], named: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Return the column of each joint, of columns by what their names call a joint.

    Of those without one of its own name, "left" is the only one with this word, if the words of all joints tell them
    apart.
    """
    lower = {plain_name(key): column for key, column in named.items()}
    found = {joint: lower[plain_name(joint)] for joint in joints if plain_name(joint) in lower}
    if len(found) < len(joints):
        by_words: dict[str, str] = {}
        for key, column in named.items():
            words = set(words_of(key))
            fitting = [joint for joint in joints if words and words <= set(words_of(joint))]
            if len(fitting) == 1:
                by_words.setdefault(fitting[0], column)
        found = by_words if len(by_words) == len(joints) else found
    return {joint: {"column": found[joint]} for joint in joints if joint in found}


def _doubt_rivals(draft: ColumnMapDraft, quantity: Quantity, taken: str, other: str) -> None:
    """Note that another column has the same meaning as one that is taken; neither is empty if so."""
    line = f"{other}: has a name of the same meaning as {taken}, which is taken; check which {quantity} is right"
    if other and line not in draft.doubts:
        draft.doubts.append(line)


def _note_absent(draft: ColumnMapDraft, what: str, joints: Iterable[str], present: Mapping[str, Any]) -> None:
    draft.absent += [f"the {what} of {joint!r}" for joint in joints if joint not in present]


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
