# SPDX-License-Identifier: Apache-2.0
"""Declarations and configurations: frozen structs that are read from, and written to, YAML, TOML and JSON.

Every configuration of the library derives from `Config`. Reading checks types and refuses unknown keys, so
that a misspelt key is an error that names its place instead of a silently used default.
"""

import json
import tomllib
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import yaml

from neurodyn.core.errors import InputError

T = TypeVar("T")


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Base of every declaration and configuration: frozen, keyword-only, no unknown keys."""


def to_dict(config: Any) -> Any:
    """Return `config` as plain dictionaries, lists, strings and numbers."""
    return msgspec.to_builtins(config)


def from_dict(data: Any, kind: type[T], where: str = "configuration") -> T:
    """Build a `kind` from plain data.

    Args:
        data: Dictionaries, lists, strings and numbers, as `to_dict` returns them.
        kind: The struct to build.
        where: What the data came from, for the error message.

    Raises:
        InputError: A key is unknown or missing, or a value has the wrong type.
    """
    try:
        return msgspec.convert(data, type=kind, strict=False)
    except msgspec.ValidationError as error:
        valid = ", ".join(getattr(kind, "__struct_fields__", ()))
        hint = f" (keys of {kind.__name__}: {valid})" if "$" not in str(error) and valid else ""
        raise InputError(f"{where}: {error}{hint}") from None
    except InputError as error:  # raised by a struct that checks itself
        raise InputError(f"{where}: {error}") from None


def parse_text(text: str, suffix: str, where: str) -> Any:
    """Parse YAML, TOML or JSON text by file suffix.

    Raises:
        InputError: The text is malformed, or the suffix is none of .yaml, .yml, .toml, .json.
    """
    try:
        if suffix in {".yaml", ".yml"}:
            return yaml.safe_load(text)
        if suffix == ".toml":
            return tomllib.loads(text)
        if suffix == ".json":
            return json.loads(text)
    except (yaml.YAMLError, tomllib.TOMLDecodeError, json.JSONDecodeError) as error:
        raise InputError(f"{where}: not readable as {suffix[1:].upper()}: {error}") from None
    raise InputError(f"{where}: unknown kind of file {suffix or '(no suffix)'!r}; valid: .yaml, .yml, .toml, .json")


def read_config(path: Path, kind: type[T]) -> T:
    """Read a `kind` from a YAML, TOML or JSON file.

    Raises:
        InputError: The file is missing, malformed, or does not describe a `kind`.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"{path}: cannot be read ({describe_os_error(error)}); expected a YAML, TOML or JSON file"
        ) from None
    return from_dict(parse_text(text, path.suffix.lower(), str(path)), kind, str(path))


def to_yaml(config: Any) -> str:
    """Return `config` as YAML text, keys in the order of their declaration."""
    return yaml.safe_dump(to_dict(config), sort_keys=False, allow_unicode=True, width=110)


def describe_os_error(error: Exception) -> str:
    """Return the plain-language part of an operating-system error."""
    return getattr(error, "strerror", None) or str(error)
