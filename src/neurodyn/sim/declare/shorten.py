# SPDX-License-Identifier: Apache-2.0
"""Tables by name in short: patterns in place of names that share a value."""

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any


def shortened(table: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Return a table with patterns in place of names that share a value, as few keys as are found.

    Args:
        table: Values by name.
        names: All names that a pattern could match, in order.
    """
    groups: dict[Any, list[str]] = {}
    for name in names:
        if name in table:
            groups.setdefault(_key(table[name]), []).append(name)
    short = {key: table[group[0]] for group in groups.values() for key in _keys(group, names)}
    if len(groups) > 1 and len(table) == len(names):  # the commonest for all, and the others over it
        common = max(groups.values(), key=len)
        others = [group for group in groups.values() if group is not common]
        over = {"*": table[common[0]]} | {key: table[group[0]] for group in others for key in _keys(group, names)}
        if len(over) < len(short):
            return over
    return short


def _keys(group: Sequence[str], names: Sequence[str]) -> list[str]:
    """Return patterns and names that stand for a group."""
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
    """Return a pattern that matches a group of names and no other; None where there is no short one."""
    if len(group) < 2:
        return None
    if list(group) == list(names):
        return "*"
    before, after = _shared(group), _shared([name[::-1] for name in group])[::-1]
    for pattern in (f"*{after}", f"{before}*", f"{before}*{after}"):
        if pattern != "*" and [name for name in names if fnmatchcase(name, pattern)] == list(group):
            return pattern
    return None


def _shared(words: Sequence[str]) -> str:
    """Return the longest beginning that words share."""
    least, most = min(words), max(words)
    same = next((i for i, (a, b) in enumerate(zip(least, most, strict=False)) if a != b), min(len(least), len(most)))
    return least[:same]


def _key(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
