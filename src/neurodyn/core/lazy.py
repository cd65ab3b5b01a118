# SPDX-License-Identifier: Apache-2.0
"""Packages whose public names are imported when they are first used, so that importing a package costs nothing.

A package writes its imports under `with lazy(__name__)` and lists their names in `__all__`. Type checkers, editors and
the API reference see ordinary imports; Python is told only where each name is found.
"""

import builtins
import sys
import threading
from importlib import import_module
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple, Self

_ENTERED = threading.RLock()
"""Held while Python's import is replaced: two threads that import two packages do so one after the other."""


class _Home(NamedTuple):
    """Where a name is found."""

    module: str
    name: str


class lazy:  # noqa: N801 - read as a verb of the `with` statement
    """Keep imports for the time when their names are used.

    Only statements `from MODULE import NAME` of the package itself are kept; what others import meanwhile, in other
    threads, is imported. A name in `__all__` wins over a module of the package that is called the same, whose contents
    `from PACKAGE.MODULE import NAME` still finds.
    """

    def __init__(self, package: str) -> None:
        """Prepare; `package` is the `__name__` of the package."""
        self._package = sys.modules[package]

    def __enter__(self) -> Self:
        _ENTERED.acquire()
        self._import = builtins.__import__
        builtins.__import__ = self._kept
        return self

    def __exit__(self, *_: object) -> None:
        builtins.__import__ = self._import
        _ENTERED.release()
        names = vars(self._package)
        names["_homes"] = {name: home for name, home in names.items() if isinstance(home, _Home)}
        for name in names["_homes"]:
            del names[name]
        self._package.__class__ = _Lazy

    def _kept(
        self, module: str, given: dict[str, Any] | None = None, local: Any = None, names: Any = (), level: int = 0
    ) -> Any:
        """Return what an import of the package binds for now, as `__import__`."""
        if given is not vars(self._package):
            return self._import(module, given, local, names, level)
        if level or not names or "*" in names:
            raise ImportError(f"{self._package.__name__}: `import {module}`; valid: `from MODULE import NAME`")
        return SimpleNamespace(**{name: _Home(module, name) for name in names})


class _Lazy(ModuleType):
    def __getattr__(self, name: str) -> Any:
        homes: dict[str, _Home] = self.__dict__["_homes"]
        if name not in homes:
            raise AttributeError(
                f"module {self.__name__!r} has no attribute {name!r}; it has {', '.join(self.__all__)}"
            )
        home = homes[name]
        if home.module == self.__name__:
            value = import_module(f"{home.module}.{home.name}")
        else:
            value = getattr(import_module(home.module), home.name)
        self.__dict__[name] = value
        return value

    def __setattr__(self, name: str, value: object) -> None:
        # Python binds every module to its package once it is imported; that must not hide a function of the same name.
        if not (isinstance(value, ModuleType) and name in self.__all__):
            super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted({*self.__all__, *super().__dir__()})
