# SPDX-License-Identifier: Apache-2.0
"""The text of a declaration: short, with patterns, and with a comment where a choice was made."""

from collections.abc import Mapping
from typing import Any

import yaml

from neurodyn.core.description.joint_kinds import COORDINATES
from neurodyn.sim.declaration.shorten import shortened

_DEFAULTS = {"fixed_base": True, "locked": [], "meshes": True, "nominal": {}, "passive_fraction": 0.0}
_COMMENTS = {
    "joints": "Limits and their order are the asset's.",
    "actuated": "Efforts [N m or N], in the order of the control vector.",
    "meshes": "Masses and contacts do without meshes, and the robot builds faster.",
    "contact_points": "Points that the network sees beside the ground; nothing else of the robot touches it.",
    "ground_sampling": "Data on tilted planes; `ground: rough` in place of `flat` for rough terrain.",
    "nominal": "A pose that the robot can stand in.",
    "gains": "Data are driven by a PD controller with targets about the nominal pose; `hold` holds it in evaluations.",
    "range": "Trajectories end beyond these velocities: only a simulator that has blown up gets there.",
    "passive_fraction": "Share of the data that hold the nominal pose, or without gains have no torque at all.",
}
_ORDER = (
    "name", "description", "asset", "fixed_base", "locked", "meshes", "joints", "actuated", "dt", "simulator",
    "material", "colliders", "contact_points", "grounds", "ground", "ground_sampling", "nominal", "gains", "sampling",
    "reset", "range", "passive_fraction",
)  # fmt: skip


class _WithoutAnchors(yaml.SafeDumper):
    """Writes a value that occurs twice twice."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def declaration_text(tree: Mapping[str, Any], decisions: Mapping[str, Any]) -> str:
    """Return the YAML of a declaration.

    Args:
        tree: Its plain data, in which every joint stands by name.
        decisions: Decisions (with `value` and `why`) by what they are about.
    """
    joints = tree["joints"]
    scalars = [joint["name"] for joint in joints if len(COORDINATES[joint["kind"]].qd) == 1]
    rates = [joint["name"] + suffix for joint in joints for suffix in COORDINATES[joint["kind"]].qd]
    lines = ["# Written by `neurodyn init`; `neurodyn check` says whether its simulator can be trusted."]
    for key in _ORDER:
        if key not in tree or tree[key] == _DEFAULTS.get(key):
            continue
        value = tree[key]
        comment = _comment(key, decisions)
        if comment:
            lines.append(f"# {comment}")
        if key == "joints":
            lines += ["joints:", *(f"  - {_flow(entry)}" for entry in _grouped(value))]
        elif key in ("actuated", "nominal"):
            lines.append(f"{key}: {_flow(_in_order(value, scalars))}")
        elif key in ("sampling", "reset", "range"):
            lines += _section(key, value, scalars, rates)
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
    lines = [f"{key}:"]
    for field, content in value.items():
        if field in ("q", "qd"):
            if content:
                lines.append(f"  {field}: {_flow(_in_order(content, scalars if field == 'q' else rates))}")
        else:
            lines.append(f"  {field}: {_flow(content)}")
    return lines if len(lines) > 1 else []


def _in_order(table: Mapping[str, Any], names: list[str]) -> dict[str, Any]:
    return shortened({name: table[name] for name in names if name in table}, names)


def _grouped(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return entries of joints, neighbours that share everything but their name as one."""
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
    """Return a value as YAML in one line."""
    text = yaml.dump(
        value, Dumper=_WithoutAnchors, default_flow_style=True, sort_keys=False, width=10**6, allow_unicode=True
    )
    return text.strip().removesuffix("...").strip()
