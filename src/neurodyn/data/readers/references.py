# SPDX-License-Identifier: Apache-2.0
"""Names of columns: "array[index]" or "array[name]", and those that are usual for times."""

import re
from collections.abc import Sequence

_STAMPS = ("time", "t", "timestamp", "timestamps", "stamp")
_REFERENCE = re.compile(r"(.+?)(?:\[([^\[\]]+)\])?")


def split_reference(reference: str) -> tuple[str, str | None]:
    """Return array and column that a reference names; None for an array of one column."""
    match = _REFERENCE.fullmatch(reference.strip())
    return (reference, None) if match is None else (match[1], match[2])


def column_index(key: str | None, width: int, names: tuple[str, ...] = ()) -> int | None:
    """Return which of `width` columns a key names: by number, or by its name; None where there is none."""
    if key is None:
        return 0 if width == 1 else None
    if key in names:
        return names.index(key)
    return int(key) if key.isdecimal() and int(key) < width else None


def usual_stamp(names: Sequence[str]) -> str | None:
    """Return the first name that is usual for times, alone or with a unit or a prefix ("t_ms", "ur10_time")."""
    for fits in (
        lambda name, wanted: name == wanted,
        lambda name, wanted: re.fullmatch(rf"{wanted}_?(s|ms|us|ns|sec)", name),
        lambda name, wanted: len(wanted) > 1 and wanted in name.split("_"),
    ):
        for wanted in _STAMPS:
            for name in names:
                if fits(name.lower(), wanted):
                    return name
    return None
