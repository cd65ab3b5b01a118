# SPDX-License-Identifier: Apache-2.0
"""Notices: what was done in another way than asked for, and is no error."""

import warnings

_given: set[str] = set()


class Notice(UserWarning):
    """One line that says what was left out or replaced, and why; the command line prints it as it is."""


def notice(text: str) -> None:
    """Give a notice, once in a process: a robot is built many times."""
    line = " ".join(text.split())
    if line not in _given:
        _given.add(line)
        warnings.warn(Notice(line), stacklevel=2)
