# SPDX-License-Identifier: Apache-2.0
"""Registries: everything that users can add one of is found in one by name.

A package of your own names the module that does the adding as an entry point of the group "neurodyn.plugins". It is
imported when a name is not known, and before names are listed.
"""

from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import Any, Generic, TypeVar

from neurodyn.core.errors import InputError, unknown

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

PLUGINS = "neurodyn.plugins"
"""Group of the entry points of plug-ins."""

_loaded: list[str] = []


class Registry(Mapping[str, T], Generic[T]):
    """Things of one sort by name.

    Attributes:
        what: What an entry is, for error messages.
    """

    def __init__(self, what: str, **entries: T | str) -> None:
        """Begin with some entries.

        Args:
            what: What an entry is.
            entries: Things by name; the text "module:attribute" is imported when the thing is first asked for.
        """
        self.what = what
        self._entries: dict[str, T | str] = dict(entries)

    def add(self, name: str, entry: T | str, *, replace: bool = False) -> None:
        """Add a thing, or the text "module:attribute" that says where it is.

        Raises:
            InputError: The name is taken, and the thing is not to be replaced.
        """
        if name in self._entries and not replace:
            raise InputError(f"{self.what} {name!r} is registered already; valid: another name, or replace=True")
        self._entries[name] = entry

    def register(self, name: str) -> Callable[[F], F]:
        """Return a decorator that adds what it decorates."""

        def added(entry: F) -> F:
            self.add(name, entry)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
            return entry

        return added

    def remove(self, name: str) -> None:
        """Take a thing out again."""
        del self._entries[name]

    def require(self, name: str) -> None:
        """Refuse names that are not there.

        Raises:
            InputError: There is no such thing; the message lists the valid names.
        """
        if name not in self:
            raise unknown(self.what, name, self)

    def __getitem__(self, name: str) -> T:
        """Return the thing of a name.

        Raises:
            InputError: As of `require`.
        """
        self.require(name)
        entry: Any = self._entries[name]
        if isinstance(entry, str):
            entry = self._entries[name] = imported(entry)
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


def imported(entry: Any) -> Any:
    """Return what the text "module:attribute" names; anything else as it is."""
    if not isinstance(entry, str):
        return entry
    module, _, attribute = entry.partition(":")
    return getattr(import_module(module), attribute)


def load_plugins() -> None:
    """Import the plug-ins of installed packages, each once.

    Raises:
        InputError: One cannot be imported.
    """
    if PLUGINS in _loaded:
        return
    from importlib.metadata import entry_points  # not by every start of the command line

    _loaded.append(PLUGINS)  # first, because a plug-in may ask a registry for something
    for entry in entry_points(group=PLUGINS):
        try:
            entry.load()
        except Exception as error:  # whatever the plug-in raises is about the plug-in
            raise InputError(
                f"plug-in {entry.name!r} ({entry.value}) cannot be imported ({type(error).__name__}: {error}); mend "
                "or uninstall it"
            ) from error
