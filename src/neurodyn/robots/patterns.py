# SPDX-License-Identifier: Apache-2.0
"""The short forms of a declaration, written out: patterns of joints as keys, and joints that share an entry.

`"*_KFE": 80.0` stands for all joints that the pattern (as of a shell) matches, in the order of the joints, and
`names: [a, b]` in place of `name` for an entry each. Both are written out in the plain data, before a `Robot` is made
of them, so that the rest of the library knows names alone.
"""

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from neurodyn.core.description.joint_kinds import COORDINATES
from neurodyn.core.errors import InputError, choices

_WILD = frozenset("*?[")
_RANGES = {"sampling": ("q", "qd", "control"), "reset": ("q", "qd"), "range": ("q", "qd")}


def expand(data: Any, where: str) -> Any:
    """Return the plain data of a declaration with all short forms written out.

    A plain name overrides every pattern, and a later pattern an earlier one. Whatever else is wrong with the data is
    left as it is, for the checks of the declaration itself.

    Args:
        data: What was read from a file.
        where: What it was read from, for error messages.

    Raises:
        InputError: A pattern matches nothing, or a joint has both `name` and `names`.
    """
    if not isinstance(data, dict) or not isinstance(data.get("joints"), list):
        return data
    joints = [single for entry in data["joints"] for single in _singles(entry, where)]
    known = [joint for joint in joints if _is_named(joint)]
    scalars = [joint["name"] for joint in known if len(COORDINATES[joint["kind"]].qd) == 1]
    rates = [joint["name"] + suffix for joint in known for suffix in COORDINATES[joint["kind"]].qd]
    whole = {**data, "joints": joints}
    for key in ("actuated", "nominal"):
        if key in whole:
            whole[key] = expand_keys(whole[key], scalars, f"{where}: {key}")
    controls = list(whole["actuated"]) if isinstance(whole.get("actuated"), dict) else []
    if "drives" in whole:
        whole["drives"] = expand_keys(whole["drives"], controls, f"{where}: drives")
    names = {"q": scalars, "qd": rates, "control": controls}
    for section, fields in _RANGES.items():
        if isinstance(whole.get(section), dict):
            whole[section] = {
                key: expand_keys(value, names[key], f"{where}: {section}.{key}") if key in fields else value
                for key, value in whole[section].items()
            }
    return whole


def expand_keys(table: Any, names: Sequence[str], where: str) -> Any:
    """Return a table by name whose keys may be patterns as a table of names alone.

    Args:
        table: Values by name or pattern; anything else than a table is returned as it is.
        names: What a pattern can match, in the order that the result has.
        where: The table, for the error message.

    Raises:
        InputError: A pattern matches nothing.
    """
    if not isinstance(table, Mapping):
        return table
    whole: dict[Any, Any] = {}
    for key, value in table.items():
        if not _is_pattern(key, names):
            whole.setdefault(key, value)
            continue
        matched = [name for name in names if fnmatchcase(name, key)]
        if not matched:
            raise InputError(f"{where}: the pattern {key!r} matches nothing; valid: patterns of {choices(names)}")
        whole |= dict.fromkeys(matched, value)
    return whole | {key: value for key, value in table.items() if not _is_pattern(key, names)}


def _is_pattern(key: Any, names: Sequence[str]) -> bool:
    return isinstance(key, str) and bool(_WILD & set(key)) and key not in names


def _is_named(joint: Any) -> bool:
    """Return whether an entry of joints is good enough to know its coordinates."""
    if not (isinstance(joint, dict) and isinstance(joint.get("name"), str)):
        return False
    return isinstance(joint.get("kind"), str) and joint["kind"] in COORDINATES


def _singles(entry: Any, where: str) -> list[Any]:
    """Return an entry of joints as one for each of its names."""
    if not isinstance(entry, dict) or "names" not in entry:
        return [entry]
    names = entry["names"]
    if "name" in entry or not isinstance(names, list) or not names:
        raise InputError(f"{where}: joints: {entry} needs one of `name: JOINT` and `names: [JOINT, ...]`")
    shared = {key: value for key, value in entry.items() if key != "names"}
    return [{"name": name, **shared} for name in names]
