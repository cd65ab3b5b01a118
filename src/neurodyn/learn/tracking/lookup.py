# SPDX-License-Identifier: Apache-2.0
"""From what users call a tracker to the tracker."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from neurodyn.core.errors import InputError, unknown
from neurodyn.learn.tracking.log_writer import ServedWriter
from neurodyn.learn.tracking.tracker import TRACKERS, Tracker

Logger = str | Mapping[str, Any]
"""A tracker as users name it: a name in `TRACKERS`, "package.module:Class", or, as rsl_rl's `cfg["logger"]`, a mapping
of `class_name` and the arguments of that class."""


def name_of(logger: Logger) -> str:
    """Return the name of a tracker, or of its class.

    Raises:
        InputError: A mapping has no such name.
    """
    if isinstance(logger, str):
        return logger
    name = logger.get("class_name")
    if not isinstance(name, str):
        raise InputError("logger: a mapping needs class_name, the name of a logger or PACKAGE.MODULE:CLASS")
    return name


def require_name(logger: str) -> None:
    """Refuse what is neither a registered name nor the form of a class; nothing is imported.

    Raises:
        InputError: It is neither.
    """
    if logger not in TRACKERS and not _is_class(logger):
        raise unknown("logger", logger, [*TRACKERS, "PACKAGE.MODULE:CLASS"])


def find(logger: Logger) -> tuple[type[Tracker], dict[str, Any]]:
    """Return the tracker that a user names, and its options.

    Raises:
        InputError: There is none of that name, or its class cannot be imported.
    """
    name = name_of(logger)
    options = {} if isinstance(logger, str) else {key: value for key, value in logger.items() if key != "class_name"}
    require_name(name)
    if name in TRACKERS:
        return TRACKERS[name], options
    found = _imported(name)
    if issubclass(found, Tracker):
        return found, options
    return ServedWriter, {"writer": found, **options}


def _is_class(name: str) -> bool:
    module, colon, attribute = name.partition(":")
    parts = [*module.split("."), *attribute.split(".")]
    return bool(colon) and all(part.isidentifier() for part in parts)


def _imported(name: str) -> type[Any]:
    module, _, attribute = name.partition(":")
    try:
        found: Any = import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except Exception as error:  # whatever its module raises is about the class
        raise InputError(f"logger {name!r} cannot be imported ({type(error).__name__}: {error})") from error
    if not isinstance(found, type):
        raise InputError(f"logger {name!r} is no class; valid: a Tracker, or a LogWriter of rsl_rl")
    return found
