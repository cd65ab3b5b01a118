# SPDX-License-Identifier: Apache-2.0
"""Things that users can add one of: each kind of thing has a registry, each thing a name in it.

A package that adds some names the module in which it registers them as an entry point of the group
"neurodyn.plugins"; it is imported when a name is asked for that no registry of ours knows.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import Generic, TypeVar

from neurodyn.core.errors import InputError, choices

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., object])

PLUGINS = "neurodyn.plugins"


class Registry(Mapping[str, T], Generic[T]):
    """Things of one kind by name.

    Attributes:
        what: What it holds one of, in words, for error messages.
    """

    def __init__(self, what: str, **entries: T | str) -> None:
        """Begin with some entries.

        Args:
            what: What it holds one of, in words.
            entries: Things by name; a text "module:attribute" is imported when it is first asked for.
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
            self.add(name, entry)  # type: ignore[arg-type]
            return entry

        return added

    def remove(self, name: str) -> None:
        """Take a thing out again."""
        del self._entries[name]

    def __getitem__(self, name: str) -> T:
        """Return the thing of a name.

        Raises:
            InputError: There is none; the message says what there is.
        """
        if name not in self._entries:
            load_plugins()
        if name not in self._entries:
            raise InputError(f"unknown {self.what} {name!r}; valid: {choices(self._entries)}")
        entry = self._entries[name]
        if isinstance(entry, str):
            module, _, attribute = entry.partition(":")
            entry = self._entries[name] = getattr(import_module(module), attribute)
        return entry

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)


@cache
def load_plugins() -> None:
    """Import the modules that installed packages name as entry points of the group "neurodyn.plugins", once."""
    for entry in entry_points(group=PLUGINS):
        entry.load()
