# SPDX-License-Identifier: Apache-2.0
"""Errors that a user can mend, apart from faults of ours, and notices of what was done otherwise than asked."""

import warnings
from collections.abc import Iterable
from pathlib import PurePath

_FILES = (".yaml", ".yml", ".toml", ".json", ".py", ".urdf", ".xml", ".h5", ".npz", ".csv")
"""Suffixes of names that are meant as files."""


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


def unknown(what: str, name: str, valid: Iterable[str], also: str = "") -> InputError:
    """Return the error of a name that is not there: a missing file is called so, a typing error gets a suggestion.

    Args:
        what: What the name is of, as "robot".
        name: The name.
        valid: The names that there are.
        also: What else would be valid, as "the path of a settings file"; with it a name that looks like a path is one.
    """
    valid = sorted(valid)
    more = f", or {also}" if also else ""
    if also and (PurePath(name).suffix.lower() in _FILES or "/" in name):
        return InputError(f"{name}: no such file; valid for a {what}: {choices(valid)}{more}")
    return InputError(f"unknown {what} {name!r}{suggestion(name, valid)}; valid: {choices(valid)}{more}")


def suggestion(name: str, valid: Iterable[str]) -> str:
    """Return " (did you mean 'NAME'?)" of the valid name that a wrong one is close to; empty where none is."""
    from difflib import get_close_matches  # only where something is wrong: the command line starts with this module

    near = get_close_matches(name, list(valid), n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""


def unreadable(path: PurePath | str, error: Exception, expected: str) -> InputError:
    """Return the error of a file that cannot be read: that there is none, or what the operating system says.

    Args:
        path: The file.
        error: What reading it raised.
        expected: What was expected, as "a CSV file".
    """
    if isinstance(error, FileNotFoundError):
        return InputError(f"{path}: no such file; expected {expected}")
    return InputError(f"{path}: cannot be read ({getattr(error, 'strerror', None) or error}); expected {expected}")


MOST_COUNT = 1_000_000_000
"""Greatest whole number that a setting or a flag may be, seeds and transitions aside."""
MOST_TRANSITIONS = 1_000_000_000_000
"""Greatest number of transitions."""


def require(ok: bool, what: str, value: object, valid: str) -> None:
    """Raise the ValueError of a struct that checks itself, "WHAT is VALUE; valid: VALID", unless `ok`."""
    if not ok:
        raise ValueError(f"{what} is {value}; valid: {valid}")


_given: set[str] = set()


class Notice(UserWarning):
    """One line that says what was left out or replaced, and why; the command line prints it as it is."""


def notice(text: str) -> None:
    """Give a notice, once in a process: a robot is built many times."""
    line = " ".join(text.split())
    if line not in _given:
        _given.add(line)
        warnings.warn(Notice(line), stacklevel=2)
