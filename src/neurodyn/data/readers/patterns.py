# SPDX-License-Identifier: Apache-2.0
"""Patterns of columns in a map: `q: "joint_position[*]"` for the columns of all joints, by name or by number."""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from typing import TypeVar

import msgspec

from neurodyn.core.description.spec import StateSpec
from neurodyn.core.errors import InputError, choices
from neurodyn.data.readers.column_map import Column, ColumnMap
from neurodyn.data.readers.source import Source

_MANY = 4
"""Joints from which on a drafted map names their columns by a pattern."""
_Entry = TypeVar("_Entry", bound=Column | str)


def is_pattern(joint: str) -> bool:
    """Return whether a key of a map stands for several joints."""
    return any(mark in joint for mark in "*?")


def has_patterns(columns: ColumnMap) -> bool:
    """Return whether a column map names joints by patterns."""
    return any(is_pattern(joint) for one in _tables(columns).values() for joint in one)


def expand(columns: ColumnMap, spec: StateSpec, source: Source) -> ColumnMap:
    """Return the map with a column for each joint in place of patterns.

    The part of a column's name that `*` stands for is the joint's name, or else a number: these count the joints, in
    the order of the robot, of which there must be as many.

    Raises:
        InputError: The columns of a log do not fit the joints.
    """
    there = [column for topic in source.topics() for column in topic.columns]
    joints = [joint.name for joint in spec.joints if joint.scalar]
    names = {"q": joints, "qd": joints, "control": list(spec.controls)}
    whole = {
        what: _expand(table, names[what], there, f"{source.path}: {what}") for what, table in _tables(columns).items()
    }
    return msgspec.structs.replace(columns, **whole)


def pattern_of(columns: Mapping[str, str], there: Sequence[str]) -> str | None:
    """Return a pattern for the columns of joints, in the robot's order, among those of a log; None if none fits.

    `*` stands for the joint's name or a number in the name of the first column.
    """
    if len(columns) < _MANY:
        return None
    first, column = next(iter(columns.items()))
    for part in (re.escape(first), r"\d+"):
        for found in re.finditer(part, column):
            pattern = f"{column[: found.start()]}*{column[found.end() :]}"
            with suppress(InputError):
                if "*" not in column and _columns_of(pattern, list(columns), there, "") == list(columns.values()):
                    return pattern
    return None


def _tables(columns: ColumnMap) -> dict[str, Mapping[str, Column | str]]:
    given = {"q": columns.q, "qd": columns.qd, "control": columns.control}
    return {what: table for what, table in given.items() if not isinstance(table, str)}


def _expand(table: Mapping[str, _Entry], joints: Sequence[str], there: Sequence[str], where: str) -> dict[str, _Entry]:
    """Return the entry of each joint: its own one, or that of the first pattern that fits its name."""
    whole = {joint: entry for joint, entry in table.items() if not is_pattern(joint)}
    for pattern, entry in table.items():
        if not is_pattern(pattern):
            continue
        fitting = [joint for joint in joints if joint not in whole and fnmatchcase(joint, pattern)]
        if not fitting:
            left = [joint for joint in joints if joint not in whole]
            raise InputError(f"{where}: no joint is left for {pattern!r}; joints: {choices(left)}")
        if isinstance(entry, str):
            whole |= dict.fromkeys(fitting, entry)
            continue
        found = {one: _columns_of(one, fitting, there, where) for one in entry.names}
        for k, joint in enumerate(fitting):
            column, minus = (tuple(found[one][k] for one in part) for part in (entry.columns, entry.subtracted))
            if isinstance(entry.column, dict):
                own = dict(zip(column, entry.column.values(), strict=True))
            else:
                own = column[0] if len(column) == 1 else column
            whole[joint] = msgspec.structs.replace(entry, column=own, minus=minus)
    return {joint: whole[joint] for joint in (*joints, *whole) if joint in whole}


def _columns_of(pattern: str, joints: Sequence[str], there: Sequence[str], where: str) -> list[str]:
    """Return the column of each joint among those that fit a pattern."""
    if pattern.count("*") != 1:
        raise InputError(f"{where}: {pattern!r} stands for {len(joints)} joints; valid: a column with one *")
    fits = re.compile(re.escape(pattern).replace(r"\*", "(.+?)"))
    found = {match[1]: column for column in there if (match := fits.fullmatch(column))}
    if all(joint in found for joint in joints):
        return [found[joint] for joint in joints]
    numbers = {int(key): column for key, column in found.items() if key.isdecimal()}
    if len(numbers) == len(joints):
        return [column for _, column in sorted(numbers.items())]
    fitting = f"{len(found)} columns ({choices(list(found.values()))})" if found else "no column"
    raise InputError(
        f"{where}: {pattern!r} fits {fitting}, for the joints {', '.join(joints)}; valid: a column for each, by name "
        "or by number, or the joints one by one"
    )
