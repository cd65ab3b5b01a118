# SPDX-License-Identifier: Apache-2.0
"""Frozen structs read from YAML, TOML and JSON (`Config`) or written to JSON as results (`Record`)."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, TypeVar, get_args, get_origin, get_type_hints

import msgspec
import yaml
from msgspec import UNSET

from neurodyn.core.errors import MOST_COUNT, InputError, among, choices, nearest, require, suggestion
from neurodyn.core.plain_data import parse_text, read_text

T = TypeVar("T")

EXTENDS = "extends"
"""Key of a settings file that names the file or preset whose values are its defaults."""

_SUFFIXES = {".yaml", ".yml", ".toml", ".json"}


Aliases = Mapping[str, str | tuple[str, Callable[[Any], Any]]]
"""Current names of older keys, with a function from the older value to the current one if it changed."""


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Base class of all declarations and settings: frozen, keyword-only, unknown keys refused."""

    aliases: ClassVar[Aliases] = {}
    """Deprecated keys that files may still use."""
    presets: ClassVar[Path | None] = None
    """Folder of the shipped presets that a file can extend by name; None for none."""
    frame_lengths: ClassVar[frozenset[str]] = frozenset()
    """Keys, nested ones included, of lengths in frames, which files may also give in seconds, as "0.5 s"."""

    @classmethod
    def aliases_of(cls, data: Mapping[str, Any]) -> Aliases:
        """Return the deprecated keys of these data; by default `aliases`."""
        return cls.aliases

    @property
    def own_kind(self) -> type[Self]:
        """The type from which these settings can be read again, with the parameters of a generic one."""
        return type(self)


_MOST = 3.4028234663852886e38  # largest single-precision number: settings are used in single precision


def require_numbers(config: Config, *, above: Sequence[str] = (), signed: Sequence[str] = ()) -> None:
    """Raise a ValueError unless all numbers in the settings, tuples included, are finite, at least 0 and not huge.

    Fields in `above` must be above 0 (integers at least 1); fields in `signed` may be negative. Integers are at most
    `MOST_COUNT`; a `seed` is below 2^63.
    """
    for name in config.__struct_fields__:
        given = getattr(config, name)
        for value in given if isinstance(given, tuple) else (given,):
            if isinstance(value, bool) or not isinstance(value, int | float):
                continue
            whole = isinstance(value, int)
            most = ((1 << 63) - 1 if name == "seed" else MOST_COUNT) if whole else _MOST
            least = -most if name in signed else 1 if whole and name in above else 0
            fits = least <= value <= most and (value != 0 or name not in above)
            kind = "a whole number" if whole else "a finite number"
            bound = "" if name in signed else f" of at least {least}" if whole or name not in above else " above 0"
            upper = f", at most {most:,}" if whole and value > most else ""
            require(fits, name, value, kind + bound + upper)


def with_changes(config: T, **changes: Any) -> T:
    """Return a copy of settings with some fields changed, or raise an InputError for an invalid value."""
    try:
        return msgspec.structs.replace(config, **changes)  # pyright: ignore[reportArgumentType, reportCallIssue]
    except ValueError as error:  # raised by the struct's validation
        raise InputError(str(error)) from None


def to_dict(config: Any) -> Any:
    """Return settings as plain dictionaries, lists, strings and numbers."""
    return msgspec.to_builtins(config)


def from_dict(data: Any, kind: type[T], where: str = "configuration") -> T:
    """Build a struct from plain data such as `to_dict` returns; `where` names the data's origin in messages.

    Raises:
        InputError: A key is unknown or missing, or a value has the wrong type.
    """
    try:
        return msgspec.convert(rename_keys(data, kind, where), type=kind, strict=False)
    except (RecursionError, OverflowError) as error:
        raise InputError(f"{where}: cannot be read ({type(error).__name__}: {error})") from None
    except msgspec.ValidationError as error:
        raise InputError(f"{where}: {_explain(str(error), rename_keys(data, kind, where), kind)}") from None
    except InputError as error:  # raised by the struct's validation
        raise InputError(f"{where}: {error}") from None


def rename_keys(data: Any, kind: Any, where: str) -> Any:
    """Return data with deprecated keys renamed to current ones, or raise an InputError if both are present.

    Nested settings are included.
    """
    own = get_origin(kind) or kind
    if not isinstance(data, dict) or not isinstance(own, type) or not issubclass(own, msgspec.Struct):
        return data
    aliases, current = own.aliases_of(data) if issubclass(own, Config) else {}, {}
    for key, value in data.items():
        alias = aliases.get(key, key)
        name, change = (alias, None) if isinstance(alias, str) else alias
        if name != key and name in data:
            raise InputError(f"{where}: has both `{name}` and its older name `{key}`; valid: one of them")
        current[name] = value if change is None else change(value)
    for field in msgspec.structs.fields(kind):
        if isinstance(current.get(field.encode_name), dict):
            current[field.encode_name] = rename_keys(current[field.encode_name], field.type, where)
    return current


def expand_keys(table: Any, names: Sequence[str], where: str) -> Any:
    """Return a table with patterns as keys as a table of `names` alone, in their order.

    A plain name overrides every pattern, and a later pattern an earlier one. Anything other than a table is returned
    unchanged; a pattern that matches nothing raises InputError with `where`.
    """
    if not isinstance(table, Mapping):
        return table
    whole: dict[Any, Any] = {}
    for key, value in table.items():
        if not _is_pattern(key, names):
            whole.setdefault(key, value)
            continue
        matched = [name for name in names if fnmatchcase(name, key)]
        if not matched:
            raise InputError(f"{where}: the pattern {key!r} matches nothing; valid: patterns of {choices(names)}")
        whole |= dict.fromkeys(matched, value)
    return whole | {key: value for key, value in table.items() if not _is_pattern(key, names)}


def _is_pattern(key: Any, names: Sequence[str]) -> bool:
    return isinstance(key, str) and bool(set("*?[") & set(key)) and key not in names


_WORDS = {
    "int": "a whole number", "float": "a number", "str": "text", "bool": "true or false", "array": "a list",
    "object": "a table of keys", "null": "null",
}  # fmt: skip
"""Value types in msgspec's messages, in plain words."""


def _explain(message: str, data: Any, kind: Any) -> str:
    """Rewrite msgspec's message ("... - at `$.a[0].b`"): where, which value, and what would be valid."""
    said, _, at = message.partition(" - at `")
    if not (at or said == message) or " in `$" in at:  # the key is not text
        return message
    steps = [key or index for key, index in re.findall(r"\.(\w+)|\[(\d+|\.\.\.)\]", at)]
    places = _follow(data, kind, steps)
    value, target = places[-1][1:]
    place = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key, *_ in places[1:]).lstrip(".")
    before, fields = f"{place}: " if place else "", getattr(target, "__struct_encode_fields__", ())
    if tag := getattr(getattr(target, "__struct_config__", None), "tag_field", None):
        fields = (tag, *fields)
    missing = re.match(r"Object missing required field `(.*)`", said)
    unknown = re.match(r"Object contains unknown field `(.*)`", said)
    if missing and isinstance(value, dict):  # perhaps present but misspelled
        alike = [key for key in value if key not in fields and suggestion(str(key), [missing[1]])]
        name = alike[0] if alike else None
    else:
        name = unknown[1] if unknown else None
    if name is not None:
        return (
            f"{before}unknown key {name!r}{suggestion(name, fields)}; keys of {_name(target)}: {nearest(name, fields)}"
        )
    if missing:
        keys = f"; keys of {_name(target)}: {nearest(missing[1], fields)}" if fields else ""
        return f"{before}required key {missing[1]!r} is missing{keys}"
    if said.startswith("Invalid"):
        given, valid = str(value), _choices(target, places)
        return f"{place} is {value!r}{among(given, valid)}"
    if expected := re.match(r"Expected `(.*?)`( of length .*?| [<>=].*?)?(?:, got .*)?$", said):
        words = " or ".join(_WORDS.get(word, word) for word in expected[1].split(" | "))
        more = (expected[2] or "").replace(" of length ", " of the length ")
        keys = f" (keys of {_name(target)}: {nearest('', fields)})" if fields else ""
        return f"{place or 'the whole'} is {_short(value)}; valid: {words}{more}{keys}"
    return f"{before}{said}"


def _follow(data: Any, kind: Any, steps: Sequence[str]) -> list[tuple[str | int, Any, Any]]:
    """Walk keys and indices into data and its type; "..." is the first key of a table whose value does not fit."""
    places: list[tuple[str | int, Any, Any]] = [("", data, kind)]
    for step in steps:
        key: str | int = int(step) if step.isdigit() and not isinstance(data, dict) else step
        kind = _inside(kind, data, key)
        if step == "..." and isinstance(data, dict):
            key = next((name for name, value in data.items() if not _fits(value, kind)), step)
        data = data.get(key) if isinstance(data, dict) else _entry(data, key)
        places.append((key, data, kind))
    structs = [part for part in (kind, *get_args(kind)) if hasattr(part, "__struct_fields__")]
    if isinstance(data, str) and any(get_origin(part) is Literal for part in get_args(kind)):
        structs = []  # meant as one of the literals
    places[-1] = (*places[-1][:2], _struct_of_tag(structs, data) if structs else kind)
    return places


def _entry(data: Any, key: str | int) -> Any:
    """Return an entry of a list; None if out of range."""
    return data[key] if isinstance(data, list) and isinstance(key, int) and key < len(data) else None


def _inside(kind: Any, data: Any, key: str | int) -> Any:
    """Return the type behind a key or index of a type; None if unknown."""
    parts = (kind, *get_args(kind))
    structs = [part for part in parts if hasattr(part, "__struct_fields__")]
    if structs and isinstance(key, str) and key != "...":
        struct = _struct_of_tag(structs, data)
        names = dict(zip(struct.__struct_encode_fields__, struct.__struct_fields__, strict=True))
        return get_type_hints(struct).get(names.get(key, key))
    inner = [get_args(part) for part in parts if get_origin(part) in {tuple, list, dict}]
    if not inner:
        return None
    each = inner[0][-1] is ... or len(inner[0]) == 1
    return inner[0][0] if each else inner[0][key] if isinstance(key, int) and key < len(inner[0]) else inner[0][-1]


def _struct_of_tag(structs: Sequence[Any], data: Any) -> Any:
    """Return the struct that the data's tag names, or the first one if it names none."""
    for struct in structs:
        config = struct.__struct_config__
        if config.tag is not None and isinstance(data, dict) and data.get(config.tag_field) == config.tag:
            return struct
    return structs[0]


def _fits(value: Any, kind: Any) -> bool:
    try:
        msgspec.convert(value, type=kind, strict=False)
    except (msgspec.ValidationError, InputError, TypeError):
        return False
    return True


def _choices(target: Any, places: Sequence[tuple[str | int, Any, Any]]) -> list[str]:
    """Return the valid values at a place: those of a literal, or the tags of structs."""
    literals = [part for part in (target, *get_args(target)) if get_origin(part) is Literal]
    values = [str(value) for part in literals for value in get_args(part)]
    if values or len(places) < 2:
        return values
    holder = places[-2][2]
    tags = [getattr(part, "__struct_config__", None) for part in (holder, *get_args(holder))]
    return [str(config.tag) for config in tags if config is not None and config.tag_field == places[-1][0]]


def _name(target: Any) -> str:
    return getattr(target, "__name__", "it")


def _short(value: Any) -> str:
    """Return a value as text for a message, shortened if long."""
    if isinstance(value, dict):
        return "a table" if len(str(value)) > 40 else str(value)
    text = {"None": "null", "True": "true", "False": "false"}.get(repr(value), repr(value))
    return text if len(text) <= 40 else f"{text[:37]}..."


def read_config(path: Path, kind: type[T], *, dt: float | None = None) -> T:
    """Read a struct from a YAML, TOML or JSON file, which may extend another one.

    With a frame time `dt` [s], the `frame_lengths` of `kind` may be in seconds, such as "0.5 s".

    `extends: NAME` at the top level names the file NAME.yaml beside this one (or a relative path), else the preset NAME
    of `kind`. Its values are defaults for this file; tables are merged, lists are replaced.

    Raises:
        InputError: The file or one that it extends is missing, malformed, or does not describe a `kind`.
    """
    data = _read_with_bases(path, getattr(kind, "presets", None), ())
    if dt is not None:
        data = _with_frames(data, getattr(kind, "frame_lengths", frozenset()), dt)
    return from_dict(data, kind, str(path))


_IN_SECONDS = re.compile(r"\s*(\d+\.?\d*|\.\d+)\s*s\s*")


def _with_frames(data: Any, lengths: frozenset[str], dt: float) -> Any:
    """Return plain data with lengths in seconds as the nearest number of frames, at least one unless they are zero."""
    if isinstance(data, list):
        return [_with_frames(value, lengths, dt) for value in data]
    if not isinstance(data, dict):
        return data
    frames = {key: _with_frames(value, lengths, dt) for key, value in data.items()}
    for key in lengths & data.keys():
        if isinstance(data[key], str) and (text := _IN_SECONDS.fullmatch(data[key])):
            seconds = float(text[1])
            frames[key] = max(round(seconds / dt), seconds > 0)
    return frames


def settings_file(given: str) -> Path | None:
    """Return the path of a settings file; None if `given` is a size name."""
    path = Path(given)
    return path if path.suffix in _SUFFIXES else None


def load_preset(
    kind: type[T], path: str | Path | None, presets: Iterable[Path], *, dt: float | None = None
) -> T | None:
    """Read settings from a file or, without a path, from the first preset that exists; None if none does.

    `dt`: see `read_config`.

    Raises:
        InputError: The file is missing or malformed.
    """
    if path is not None:
        return read_config(Path(path), kind, dt=dt)
    return next((read_config(preset, kind, dt=dt) for preset in presets if preset.is_file()), None)


def _read_with_bases(path: Path, presets: Path | None, extending: tuple[Path, ...]) -> Any:
    """Read a file merged with the files that it extends."""
    data = read_plain(path)
    if not isinstance(data, dict) or EXTENDS not in data:
        return data
    chain, name = (*extending, path.resolve()), data[EXTENDS]
    base = _base_file(path, name, (path.parent, presets))
    if base is None:
        valid = ["a file beside it", *(sorted(one.stem for one in presets.glob("*.yaml")) if presets else ())]
        near = suggestion(str(name), valid)
        raise InputError(f"{path}: extends {name!r}, which is not there{near}; valid: {', '.join(valid)}")
    if base.resolve() in chain:
        raise InputError(f"{path}: extends {name!r}, which extends it in turn; valid: another file")
    return _merge(_read_with_bases(base, presets, chain), data)


def read_with_siblings(path: Path) -> Any:
    """Read plain data merged with the sibling files that it extends; an `extends` that names a preset is kept."""
    data = read_plain(path)
    base = _base_file(path, data.get(EXTENDS), (path.parent,)) if isinstance(data, dict) else None
    return data if base is None else _merge(read_with_siblings(base), data)


def _base_file(path: Path, name: Any, folders: Sequence[Path | None]) -> Path | None:
    """Return the file that `path` extends; None if it does not exist."""
    if not isinstance(name, str):
        return None
    files = [folder / f"{name.removesuffix('.yaml')}.yaml" for folder in folders if folder is not None]
    return next((file for file in files if file.is_file() and file.resolve() != path.resolve()), None)


def _merge(base: Any, own: Any) -> Any:
    """Merge plain data over a base, table by table."""
    if not isinstance(base, dict) or not isinstance(own, dict):
        return own
    own = {key: _merge(base.get(key), value) for key, value in own.items() if key != EXTENDS}
    return {**base, **own}


def read_plain(path: Path) -> Any:
    """Read the plain data of a YAML, TOML or JSON file, or raise an InputError."""
    return parse_text(read_text(path, "a YAML, TOML or JSON file"), path.suffix.lower(), str(path))


def read_record(path: Path, *needed: str) -> dict[str, Any]:
    """Read a mapping with some keys from a YAML, TOML or JSON file that a run keeps, or raise an InputError."""
    plain = read_plain(path)
    lacking = [name for name in needed if name not in plain] if isinstance(plain, dict) else ["mapping"]
    if lacking:
        raise InputError(f"{path}: holds no {lacking[0]}; copy it again from where it is whole, or repeat the run")
    return plain


def to_yaml(config: Any) -> str:
    """Return settings as YAML text, keys in declaration order."""
    return yaml.safe_dump(to_dict(config), sort_keys=False, allow_unicode=True, width=110)


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """A typed result; `rename` maps fields to other JSON keys, and `inline` fields are merged into the object."""

    inline: ClassVar[tuple[str, ...]] = ()

    def plain(self) -> dict[str, Any]:
        """Return the result as plain data for JSON, without UNSET fields."""
        values: dict[str, Any] = {}
        for name, key in zip(self.__struct_fields__, self.__struct_encode_fields__, strict=True):
            value = plain(getattr(self, name))
            if value is not UNSET:
                values |= value if name in self.inline else {key: value}
        return values


def plain(value: Any) -> Any:
    """Return a value with all nested records as dictionaries and lists."""
    if isinstance(value, Record):
        return value.plain()
    if isinstance(value, Mapping):
        return {key: plain(entry) for key, entry in value.items()}
    return [plain(entry) for entry in value] if isinstance(value, (list, tuple)) else value
