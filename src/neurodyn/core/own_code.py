# SPDX-License-Identifier: Apache-2.0
"""Classes in files of the user's, by FILE.py:CLASS. Their code runs, so that only a user may name them."""

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

from neurodyn.core.errors import InputError, choices


def is_file(name: str) -> bool:
    """Return whether a name is FILE.py:CLASS."""
    return ".py:" in name


def split_name(name: str) -> tuple[Path, str]:
    """Return the full path and the class of FILE.py:CLASS."""
    file, _, kind = name.rpartition(":")
    return Path(file).resolve(), kind


def own_class(path: Path, kind: str, what: str, base: type) -> type[Any]:
    """Import a file and return one of its classes.

    Args:
        path: The file.
        kind: Name of the class.
        what: What the class is, in a word, for messages.
        base: Class that it must be derived from.

    Raises:
        InputError: There is no such file, it cannot be imported, or has no such class.
    """
    spec = spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None or not path.is_file():
        expected = f"a subclass of {base.__module__}.{base.__name__}" if base is not object else f"a class of a {what}"
        raise InputError(f"{path}: no such file; expected Python with {expected}")
    module = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # whatever the user's file raises is about that file
        raise InputError(f"{path}: cannot be imported ({type(error).__name__}: {error})") from error
    own = getattr(module, kind, None)
    if not (isinstance(own, type) and issubclass(own, base)):
        here = base if base is object else base.__name__
        valid = [
            name for name, value in vars(module).items()
            if isinstance(value, type) and issubclass(value, base) and name != here
            and (base is not object or value.__module__ == path.stem)
        ]  # fmt: skip
        raise InputError(f"{path}: has no {what} {kind!r}; valid: {choices(valid)}")
    return own
