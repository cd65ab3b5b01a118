# SPDX-License-Identifier: Apache-2.0
"""Labels of shapes by the patterns of a declaration."""

from collections.abc import Iterable
from fnmatch import fnmatchcase


def matching(label: str, patterns: Iterable[str]) -> bool:
    """Return whether a label matches one of the patterns (as of a shell)."""
    return any(fnmatchcase(label, pattern) for pattern in patterns)
