# SPDX-License-Identifier: Apache-2.0
"""Packages whose public names are imported on first use, so that importing a package is fast.

A package writes its imports under `with lazy(__name__)` and lists their names in `__all__`. Type checkers, editors and
the API reference see ordinary imports.
"""

import builtins
import sys
import threading
from importlib import import_module
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple, Self

_ENTERED = threading.RLock()
"""Held while Python's import is replaced, so that threads that import packages take turns."""


class _Home(NamedTuple):
    """Module and name to import."""

    module: str
    name: str


class lazy:  # noqa: N801 - read as a verb of the `with` statement
    """Defer imports until their names are used.

    Only `from MODULE import NAME` statements of the package itself are deferred; imports in other threads run as usual.
    A name in `__all__` takes precedence over a submodule of the same name, whose contents `from PACKAGE.MODULE import
    NAME` still finds.
    """

    def __init__(self, package: str) -> None:
        """Take the `__name__` of the package."""
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
        """Record an import of the package instead of running it; same signature as `__import__`."""
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
        # Python binds every imported submodule to its package; that must not hide a function of the same name.
        if not (isinstance(value, ModuleType) and name in self.__all__):
            super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted({*self.__all__, *super().__dir__()})
