# SPDX-License-Identifier: Apache-2.0
"""Registries of everything that users can extend, by name.

A package can name a module that registers its entries as an entry point of the group "neurodyn.plugins". It is imported
when a name is unknown, and before names are listed.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any, Generic, TypeVar

from neurodyn.core.errors import InputError, among, suggested_file, unknown

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

PLUGINS = "neurodyn.plugins"
"""Entry-point group of plug-ins."""

_loaded: list[str] = []


@dataclass(frozen=True)
class Later(Generic[T]):
    """An entry that a function imports and returns when it is first used."""

    load: Callable[[], T]


class Registry(Mapping[str, T], Generic[T]):
    """Entries of one kind by name; `what` names the kind in error messages."""

    def __init__(self, what: str, **entries: T | Later[T]) -> None:
        """Start with some entries."""
        self.what = what
        self._entries: dict[str, T | Later[T]] = dict(entries)

    def add(self, name: str, entry: T | Later[T], *, replace: bool = False) -> None:
        """Add an entry; an InputError for a taken name unless `replace` is set."""
        if name in self._entries and not replace:
            raise InputError(f"{self.what} {name!r} is registered already; valid: another name, or replace=True")
        self._entries[name] = entry

    def register(self, name: str) -> Callable[[F], F]:
        """Return a decorator that adds a function or class."""

        def added(entry: F) -> F:
            self.add(name, entry)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
            return entry

        return added

    def names_so_far(self) -> tuple[str, ...]:
        """Return the names of the entries so far, without importing plug-ins."""
        return tuple(self._entries)

    def remove(self, name: str) -> None:
        """Remove an entry."""
        del self._entries[name]

    def require(self, name: str) -> None:
        """Raise an InputError that lists the valid names if a name is unknown."""
        if name not in self:
            raise unknown(self.what, name, self)

    def __getitem__(self, name: str) -> T:
        """Return an entry, or raise an InputError that lists the valid names."""
        self.require(name)
        entry: Any = self._entries[name]
        if isinstance(entry, Later):
            entry = self._entries[name] = entry.load()
        return entry

    def __contains__(self, name: object) -> bool:
        if name not in self._entries:
            load_plugins()
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        load_plugins()
        return iter(tuple(self._entries))

    def __len__(self) -> int:
        load_plugins()
        return len(self._entries)


def load_plugins() -> None:
    """Import the plug-ins of installed packages, once; raise an InputError for one that cannot be imported."""
    if PLUGINS in _loaded:
        return
    from importlib.metadata import entry_points  # slow, and not needed at every start of the command line

    _loaded.append(PLUGINS)  # first, because a plug-in may look up a registry
    for entry in entry_points(group=PLUGINS):
        try:
            entry.load()
        except Exception as error:  # any exception is the plug-in's
            raise InputError(
                f"plug-in {entry.name!r} ({entry.value}) cannot be imported ({type(error).__name__}: {error}); repair "
                "or uninstall it"
            ) from error


def is_file(name: str) -> bool:
    """Return whether a name has the form FILE.py:CLASS."""
    return ".py:" in name


def split_name(name: str) -> tuple[Path, str]:
    """Return the absolute path and the class name of FILE.py:CLASS."""
    file, _, kind = name.rpartition(":")
    return Path(file).resolve(), kind


def own_class(path: Path, kind: str, what: str, base: type) -> type[Any]:
    """Import a file and return one of its classes.

    Args:
        path: The file.
        kind: Name of the class.
        what: Noun for the class in messages.
        base: Required base class.

    Raises:
        InputError: The file does not exist, cannot be imported, or has no such class.
    """
    spec = spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None or not path.is_file():
        expected = f"a subclass of {base.__module__}.{base.__name__}" if base is not object else f"a class of a {what}"
        raise InputError(f"{path}: no such file{suggested_file(path)}; expected Python with {expected}")
    module = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # any exception here comes from the user's file
        raise InputError(f"{path}: cannot be imported ({type(error).__name__}: {error})") from error
    own = getattr(module, kind, None)
    if not (isinstance(own, type) and issubclass(own, base)):
        here = base if base is object else base.__name__
        valid = [
            name for name, value in vars(module).items()
            if isinstance(value, type) and issubclass(value, base) and name != here
            and (base is not object or value.__module__ == path.stem)
        ]  # fmt: skip
        raise InputError(f"{path}: has no {what} {kind!r}{among(kind, valid)}")
    return own
