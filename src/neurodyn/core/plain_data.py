# SPDX-License-Identifier: Apache-2.0
"""Plain data from users' YAML, TOML and JSON texts, within limits.

Returns only dictionaries, lists, strings and numbers. Inputs that could hang or exhaust memory are refused: pipes,
devices, huge files, deep nesting, and aliases that expand to millions of values.
"""

import contextlib
import json
import math
import stat
import tomllib
from collections.abc import Iterable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import yaml
from yaml.composer import Composer
from yaml.constructor import SafeConstructor
from yaml.resolver import Resolver

from neurodyn.core.errors import InputError, unreadable

MOST_BYTES = 64 << 20
"""Maximum size of a text file of settings, declarations or results [bytes]."""

MOST_DEPTH = 64
"""Maximum nesting depth."""

MOST_VALUES = 4_000_000
"""Maximum number of values in a file, aliases expanded."""

MOST_NUMBER = 3.4e38
"""Largest number, near the single-precision maximum."""


def require_regular(path: Path, what: str) -> None:
    """Raise an InputError for a pipe, device or socket, which may never end; missing files are left to the reader."""
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):
        return
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise InputError(f"{path}: is a pipe, device or socket, which is not read; expected {what}")


def read_text(path: Path, what: str, *, errors: str = "strict") -> str:
    """Read a UTF-8 text file; `what` describes it in messages ("a JSON file"), `errors`: see `bytes.decode`.

    Raises:
        InputError: It is missing, not a regular file, larger than `MOST_BYTES`, or not UTF-8.
    """
    require_regular(path, what)
    try:
        size = path.stat().st_size
        if size > MOST_BYTES:
            raise InputError(f"{path}: has {size:,} bytes; expected {what} of at most {MOST_BYTES:,}")
        return path.read_text(encoding="utf-8-sig", errors=errors)
    except (OSError, ValueError) as error:  # ValueError: not UTF-8, or not a path
        raise unreadable(path, error, what) from None


def parse_text(text: str, suffix: str, where: str) -> Any:
    """Parse YAML, TOML or JSON text by file suffix, or raise an InputError if it is malformed or exceeds the limits."""
    if suffix not in _PARSERS:
        raise InputError(f"{where}: unknown kind of file {suffix or '(no suffix)'!r}; valid: {', '.join(_PARSERS)}")
    try:
        data = _PARSERS[suffix](text)
    except RecursionError:
        raise InputError(f"{where}: is nested too deeply; valid: at most {MOST_DEPTH} levels") from None
    except (yaml.YAMLError, ValueError, OverflowError) as error:  # malformed dates and numbers included
        form = suffix[1:].upper()
        raise InputError(f"{where}: not readable as {form}: {error}; expected text of {form}") from None
    for place, value in _values(data, where):
        _require_plain(value, where, place)
    return data


class _Limited(Composer):
    """Loader mixin that limits nesting and alias expansion and refuses repeated keys."""

    _depth = 0
    _sizes: dict[int, int]

    def compose_node(self, parent: Any, index: Any) -> Any:
        self._depth += 1
        if self._depth > MOST_DEPTH:
            raise RecursionError
        node = super().compose_node(parent, index)
        self._depth -= 1
        if node is not None and id(node) not in self._sizes:
            children = node.value if isinstance(node, yaml.SequenceNode) else ()
            if isinstance(node, yaml.MappingNode):
                children = [child for pair in node.value for child in pair]
                _require_once(key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode))
            self._sizes[id(node)] = 1 + sum(self._sizes.get(id(child), 1) for child in children)
            if self._sizes[id(node)] > MOST_VALUES:
                raise ValueError(f"its aliases stand for more than {MOST_VALUES:,} values")
        return node


class _Loader(_Limited, yaml.SafeLoader):
    """PyYAML's safe loader."""

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self._sizes = {}


def _parse_yaml(text: str) -> Any:
    """Parse YAML with libyaml, several times faster, if available; on errors PyYAML, whose messages say more."""
    if yaml.__with_libyaml__:
        with contextlib.suppress(yaml.YAMLError, UnicodeError):
            return yaml.load(text, Loader=_fast_loader())
    return yaml.load(text, Loader=_Loader)


@cache
def _fast_loader() -> Any:
    from yaml._yaml import CParser

    class FastLoader(_Limited, CParser, SafeConstructor, Resolver):
        def __init__(self, stream: str) -> None:
            CParser.__init__(self, stream)
            Composer.__init__(self)
            SafeConstructor.__init__(self)
            Resolver.__init__(self)
            self._sizes = {}

    return FastLoader


def _table(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    _require_once(key for key, _ in pairs)
    return dict(pairs)


def _require_once(keys: Iterable[str]) -> None:
    """Raise a ValueError for a repeated key, whose first value would be lost; TOML forbids it itself."""
    seen: set[str] = set()
    for key in keys:
        if key in seen:
            raise ValueError(f"{key!r} is there more than once")
        seen.add(key)


_PARSERS = {
    ".yaml": _parse_yaml,
    ".yml": _parse_yaml,
    ".toml": tomllib.loads,
    ".json": partial(json.loads, object_pairs_hook=_table),
}


def _values(data: Any, where: str, place: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:
    if depth > MOST_DEPTH:
        raise InputError(f"{where}: is nested too deeply; valid: at most {MOST_DEPTH} levels")
    if isinstance(data, dict):
        for key, value in data.items():
            if isinstance(key, str):
                yield f"{place}.{key}", key
            yield from _values(value, where, f"{place}.{key}", depth + 1)
    elif isinstance(data, list):
        for index, value in enumerate(data):
            yield from _values(value, where, f"{place}[{index}]", depth + 1)
    else:
        yield place, data


def _require_plain(value: Any, where: str, place: str) -> None:
    at = place.lstrip(".") or "the file"
    if isinstance(value, bool):
        return
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
        raise InputError(f"{where}: {at} is a whole number beyond 64 bits; valid: below 2^63")
    if isinstance(value, float) and math.isnan(value):
        raise InputError(f"{where}: {at} is not a number; valid: a number")
    if isinstance(value, float) and MOST_NUMBER < abs(value) < math.inf:
        raise InputError(
            f"{where}: {at} is {value:g}, beyond single precision; valid: at most {MOST_NUMBER:.2g} in size"
        )
    if isinstance(value, str) and "\0" in value:
        raise InputError(f"{where}: {at} holds a character that no name has (NUL); valid: text")
