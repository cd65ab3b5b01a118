# SPDX-License-Identifier: Apache-2.0
"""Errors that a user can fix, as opposed to library faults, and notices of deviations from the request."""

import warnings
from collections import Counter
from collections.abc import Collection, Iterable
from pathlib import Path, PurePath

_FILES = (".yaml", ".yml", ".toml", ".json", ".py", ".urdf", ".xml", ".h5", ".npz", ".csv")
"""Suffixes of names that are treated as files."""


class NeurodynError(Exception):
    """Base class of all errors that neurodyn raises deliberately."""


class InputError(NeurodynError):
    """Bad input: a file, a flag, a declaration or an argument.

    The message is one line that says what is wrong, where, and what would be valid. The command line prints it and
    exits with code 2.
    """

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split()))


class MismatchError(InputError):
    """A model is used with another robot, time step or joint order than it was made for."""


def choices(names: Iterable[str]) -> str:
    """Return valid names as a list for the end of an error message."""
    listed = ", ".join(sorted(names))
    return listed or "(none)"


def unknown(what: str, name: str, valid: Iterable[str], also: str = "") -> InputError:
    """Return the error for an unknown name with a suggestion; `what` is the kind of thing it should name.

    `also` is an alternative to a name, for example "the path of a settings file"; a name that looks like a file is then
    reported as a missing file.
    """
    valid = sorted(valid)
    more = f", or {also}" if also else ""
    if also and (PurePath(name).suffix.lower() in _FILES or "/" in name):
        return InputError(f"{name}: no such file{suggested_file(name)}; valid for a {what}: {choices(valid)}{more}")
    near = suggestion(name, valid) or (suggested_file(name) if also else "")
    return InputError(f"unknown {what} {name!r}{near}; valid: {choices(valid)}{more}")


MOST_CHOICES = 8
"""Maximum number of names that an error about a long list shows."""


def list_briefly(items: Collection[str]) -> str:
    """Return items as a list of words; of more than `MOST_CHOICES`, the first three and the count."""
    if len(items) <= MOST_CHOICES:
        return ", ".join(items)
    return f"{', '.join(list(items)[:3])} ... ({len(items)})"


def nearest(name: str, valid: Iterable[str]) -> str:
    """Return the valid names for the end of an error message: of many, only those most similar to `name`."""
    from difflib import SequenceMatcher

    listed = sorted(set(valid))
    if len(listed) <= MOST_CHOICES:
        return choices(listed)
    alike = sorted(listed, key=lambda one: -SequenceMatcher(None, name, one, autojunk=False).ratio())[:MOST_CHOICES]
    return f"{', '.join(sorted(alike))} and {len(listed) - MOST_CHOICES} more"


def among(name: str, valid: Iterable[str]) -> str:
    """Return the end of an error about an unknown name: " (did you mean 'NAME'?); valid: NAME, NAME"."""
    valid = list(valid)
    return f"{suggestion(name, valid)}; valid: {nearest(name, valid)}"


def suggestion(name: str, valid: Iterable[str]) -> str:
    """Return " (did you mean 'NAME'?)" with the closest valid name; empty if none is close."""
    from difflib import SequenceMatcher, get_close_matches  # only on errors: the CLI imports this module at start

    near = get_close_matches(name, list(valid), n=2)
    ratios = [SequenceMatcher(None, one, name).ratio() for one in near]
    alike = [repr(one) for one, ratio in zip(near, ratios, strict=True) if ratio >= ratios[0]]
    return f" (did you mean {' or '.join(alike)}?)" if alike else ""


def suggested_file(path: PurePath | str) -> str:
    """Return " (did you mean 'NAME'?)" with the most similar file or folder beside a missing one; empty if none is."""
    path = Path(path)
    try:
        hidden = path.name.startswith(".")  # such as locks
        beside = [one.name for one in path.parent.iterdir() if hidden or not one.name.startswith(".")]
    except (OSError, ValueError):
        return ""
    alike = [name for name in beside if Path(name).suffix == path.suffix]
    return suggestion(path.name, alike) or suggestion(path.name, beside)


def unreadable(path: PurePath | str, error: Exception, expected: str) -> InputError:
    """Return the error for a file that is missing or cannot be read; `expected` is what it should be ("a CSV file")."""
    if isinstance(error, FileNotFoundError):
        return InputError(f"{path}: no such file{suggested_file(path)}; expected {expected}")
    return InputError(f"{path}: cannot be read ({describe_os_error(error)}); expected {expected}")


def describe_os_error(error: Exception) -> str:
    """Return the readable part of an operating-system error."""
    return getattr(error, "strerror", None) or str(error)


def unwritable(path: PurePath | str, reason: str, more: str = "") -> InputError:
    """Return the error for a file or folder that cannot be written."""
    return InputError(f"{path}: cannot be written ({reason}); give a path with space and permission to write{more}")


MOST_COUNT = 1_000_000_000
"""Largest integer for a setting or a flag, except seeds and transitions."""
MOST_TRANSITIONS = 1_000_000_000_000
"""Largest number of transitions."""


def require(ok: bool, what: str, value: object, valid: str) -> None:
    """Raise the ValueError of a struct's validation, "WHAT is VALUE; valid: VALID", unless `ok`."""
    if not ok:
        raise ValueError(f"{what} is {value}; valid: {valid}")


_given: Counter[str] = Counter()


class Notice(UserWarning):
    """A notice that something was left out or replaced, and why; the command line prints it unchanged."""


def count_notices() -> int:
    """Return the number of notices in this process so far, repeats included."""
    return _given.total()


def notice(text: str) -> None:
    """Issue a notice, once per process: a robot, for example, is built many times."""
    line = " ".join(text.split())
    _given[line] += 1
    if _given[line] == 1:
        warnings.warn(Notice(line), stacklevel=2)
