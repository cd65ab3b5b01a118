# SPDX-License-Identifier: Apache-2.0
"""The text of a declaration: short, with patterns for names that share a value, and comments on choices."""

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

import yaml

from neurodyn.core.description.spec import COORDINATES
from neurodyn.sim.interface import AssetJoint


def shorten(table: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Return a table with patterns for names that share a value, with few keys.

    `names` are all names that a pattern could match, in order.
    """
    groups: dict[Any, list[str]] = {}
    for name in names:
        if name in table:
            value = table[name]
            groups.setdefault(tuple(value) if isinstance(value, list) else value, []).append(name)
    short = {key: table[group[0]] for group in groups.values() for key in _keys(group, names)}
    if len(groups) > 1 and len(table) == len(names):  # the most common value as "*", overridden by the others
        common = max(groups.values(), key=len)
        others = [group for group in groups.values() if group is not common]
        over = {"*": table[common[0]]} | {key: table[group[0]] for group in others for key in _keys(group, names)}
        if len(over) < len(short):
            return over
    return short


def _keys(group: Sequence[str], names: Sequence[str]) -> list[str]:
    if (pattern := pattern_of(group, names)) is not None:
        return [pattern]
    for ending in (True, False):  # left_knee and right_knee; knee_left and knee_right
        parts: dict[str, list[str]] = {}
        for name in group:
            head, _, tail = name.partition("_") if ending else name.rpartition("_")[::-1]
            parts.setdefault(tail or head, []).append(name)
        patterns = [pattern_of(part, names) for part in parts.values()]
        if len(parts) < len(group) and all(patterns):
            return [pattern for pattern in patterns if pattern is not None]
    return list(group)


def pattern_of(group: Sequence[str], names: Sequence[str]) -> str | None:
    """Return a pattern that matches exactly a group of names; None if there is no short one."""
    if len(group) < 2:
        return None
    if list(group) == list(names):
        return "*"
    before, after = _common_prefix(group), _common_prefix([name[::-1] for name in group])[::-1]
    for pattern in (f"*{after}", f"{before}*", f"{before}*{after}"):
        if pattern != "*" and [name for name in names if fnmatchcase(name, pattern)] == list(group):
            return pattern
    return None


def _common_prefix(words: Sequence[str]) -> str:
    least, most = min(words), max(words)
    same = next((i for i, (a, b) in enumerate(zip(least, most, strict=False)) if a != b), min(len(least), len(most)))
    return least[:same]


_DEFAULTS = {"fixed_base": True, "locked": [], "meshes": True, "nominal": {}, "passive_fraction": 0.0}
_COMMENTS = {
    "joints": "Limits and their order are the asset's.",
    "actuated": "Efforts [N m or N], in the order of the control vector.",
    "meshes": "Masses and contacts do without meshes, and the robot builds faster.",
    "colliders": "Nothing else of the robot touches anything.",
    "contact_points": "Points that the network sees beside the ground.",
    "ground_sampling": "Data on tilted planes; `ground: rough` in place of `flat` for rough terrain.",
    "nominal": "A pose that the robot can stand in.",
    "legs": "Feet among `contacts`, height of the base above the ground, and joints that swing the legs.",
    "gains": "Data are driven by a PD controller with targets about the nominal pose; `hold` holds it in evaluations.",
    "range": "Trajectories end beyond these velocities: only a simulator that has blown up gets there.",
    "passive_fraction": "Share of the data that hold the nominal pose, or without gains have no torque at all.",
}
_ORDER = (
    "name", "description", "asset", "gravity", "fixed_base", "locked", "meshes", "joints", "actuated", "drives", "dt",
    "simulator", "material", "colliders", "self_contacts", "contact_points", "contacts", "legs", "grounds", "ground",
    "ground_sampling", "end_effector", "nominal", "gains", "sampling", "reset", "range", "passive_fraction",
)  # fmt: skip


class _WithoutAnchors(yaml.SafeDumper):
    """YAML dumper that writes repeated values in full instead of as anchors and aliases."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def declaration_text(tree: Mapping[str, Any], decisions: Mapping[str, Any]) -> str:
    """Return the YAML of a declaration from its plain data, in which every joint is listed by name.

    The decisions (with `value` and `why`), by topic, become comments.
    """
    joints = tree["joints"]
    scalars = [joint["name"] for joint in joints if len(COORDINATES[joint["kind"]].qd) == 1]
    rates = [joint["name"] + suffix for joint in joints for suffix in COORDINATES[joint["kind"]].qd]
    lines = ["# Written by `neurodyn init`; `neurodyn check` says whether its simulator can be trusted."]
    for key in _ORDER:
        if key not in tree or tree[key] == _DEFAULTS.get(key):
            continue
        value = tree[key]
        if comment := _comment(key, decisions):
            lines.append(f"# {comment}")
        if key == "joints":
            lines += ["joints:", *(f"  - {_flow(entry)}" for entry in _group(value))]
        elif key in ("actuated", "nominal"):
            short = value if key == "actuated" and "drives" in tree else _in_order(value, scalars)
            lines.append(f"{key}: {_flow(short)}")
        elif key in ("sampling", "reset", "range"):
            lines += _section(key, value, scalars, rates)
        elif key == "drives":
            lines += ["drives:", *(f"  {name}: {_flow(drive)}" for name, drive in value.items())]
        elif key == "grounds":
            lines += ["grounds:", *(f"  {name}: {_flow(ground)}" for name, ground in value.items())]
        else:
            lines.append(f"{key}: {_flow(value)}")
    return "\n".join(lines) + "\n"


def _comment(key: str, decisions: Mapping[str, Any]) -> str:
    decided = decisions.get(key)
    if key in ("fixed_base", "simulator") and decided is not None:
        return f"{decided.value[:1].upper()}{decided.value[1:]}: {decided.why}."
    if key == "actuated" and "actuated" in decisions:
        return "The asset gives no efforts: add {JOINT: greatest torque} for each drive."
    comment = _COMMENTS.get(key, "")
    if key == "joints" and (armature := decisions.get("armature")) is not None and "none" in armature.why:
        comment += f" Armatures are not: {armature.why}."
    return comment


def _section(key: str, value: Mapping[str, Any], scalars: list[str], rates: list[str]) -> list[str]:
    names = {"q": scalars, "qd": rates}
    tables = {k: _in_order(content, names[k]) if k in names else content for k, content in value.items()}
    others = {k: [name for name in content if name not in names[k]] for k, content in value.items() if k in names}
    for k, own in others.items():
        tables[k] |= {name: value[k][name] for name in own}
    lines = [f"  {field}: {_flow(content)}" for field, content in tables.items() if content or field not in names]
    return [f"{key}:", *lines] if lines else []


def _in_order(table: Mapping[str, Any], names: list[str]) -> dict[str, Any]:
    return shorten({name: table[name] for name in names if name in table}, names)


def _group(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Merge adjacent joint entries that differ only by name."""
    grouped: list[dict[str, Any]] = []
    for entry in entries:
        rest = {key: value for key, value in entry.items() if key != "name"}
        last = grouped[-1] if grouped else {}
        if {key: value for key, value in last.items() if key not in ("name", "names")} == rest and grouped:
            grouped[-1] = {"names": [*last.get("names", [last.get("name")]), entry["name"]], **rest}
        else:
            grouped.append(entry)
    return grouped


def _flow(value: Any) -> str:
    """Return a value as single-line YAML."""
    text = yaml.dump(
        value, Dumper=_WithoutAnchors, default_flow_style=True, sort_keys=False, width=10**6, allow_unicode=True
    )
    return text.strip().removesuffix("...").strip()


def joint_entry(joint: AssetJoint) -> dict[str, Any]:
    """Return a joint as plain data; a limit decides forces of thousands of newtons a metre, so it keeps its digits."""
    entry: dict[str, Any] = {"name": joint.name, "kind": joint.kind}
    if joint.lower is not None and joint.upper is not None:
        entry |= {"lower": round(joint.lower, 12), "upper": round(joint.upper, 12)}
    elif joint.kind == "revolute":
        entry["continuous"] = True
    return entry
