# SPDX-License-Identifier: Apache-2.0
"""Tables by name in short: patterns in place of names that share a value."""

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from os.path import commonprefix
from typing import Any


def shortened(table: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Return a table with a pattern for each value that several names share, where a pattern says just these.

    Args:
        table: Values by name.
        names: All names that a pattern could match, in order.
    """
    short: dict[str, Any] = {}
    for value in dict.fromkeys(_key(value) for value in table.values()):
        group = [name for name in names if name in table and _key(table[name]) == value]
        shared = table[group[0]]
        pattern = pattern_of(group, names)
        short |= {pattern: shared} if pattern else dict.fromkeys(group, shared)
    return short


def pattern_of(group: Sequence[str], names: Sequence[str]) -> str | None:
    """Return a pattern that matches a group of names and no other; None where there is no short one."""
    if len(group) < 2:
        return None
    if list(group) == list(names):
        return "*"
    before = commonprefix(list(group))
    after = commonprefix([name[::-1] for name in group])[::-1]
    for pattern in (f"*{after}", f"{before}*", f"{before}*{after}", f"{before}?"):
        if pattern != "*" and [name for name in names if fnmatchcase(name, pattern)] == list(group):
            return pattern
    return None


def _key(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
