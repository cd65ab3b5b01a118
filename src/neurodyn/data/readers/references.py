# SPDX-License-Identifier: Apache-2.0
"""References to columns of arrays, "array[index]" or "array[name]"."""

import re

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
