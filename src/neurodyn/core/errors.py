# SPDX-License-Identifier: Apache-2.0
"""Errors that a user can mend, apart from faults of ours."""

from collections.abc import Iterable


class NeurodynError(Exception):
    """Base class of every error that neurodyn raises on purpose."""


class InputError(NeurodynError):
    """The input is bad: a file, a flag, a declaration or an argument.

    The message is one line that says what is wrong, where, and what would be valid. The command line
    prints it and exits with code 2.
    """

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split()))


class MismatchError(InputError):
    """A model meets another robot, time step or joint order than the one it was made for."""


def choices(names: Iterable[str]) -> str:
    """Return valid names as an enumeration for the end of an error message."""
    listed = ", ".join(sorted(names))
    return listed or "(none)"


def require(ok: bool, what: str, value: object, valid: str) -> None:
    """Raise the ValueError of a struct that checks itself, "WHAT is VALUE; valid: VALID", unless `ok`."""
    if not ok:
        raise ValueError(f"{what} is {value}; valid: {valid}")
