# SPDX-License-Identifier: Apache-2.0
"""Packages whose public names are imported when they are first used, so that importing a package costs nothing.

A package imports its names under `if TYPE_CHECKING`, where type checkers, editors and the API reference see them, lists
them in `__all__`, and ends in `lazy(__name__)`.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import Any


class _Lazy(ModuleType):
    def __getattr__(self, name: str) -> Any:
        if "_homes" not in self.__dict__:
            self.__dict__["_homes"] = _imported_for_type_checkers(self)
        homes: dict[str, tuple[str, str]] = self.__dict__["_homes"]
        if name not in homes:
            raise AttributeError(
                f"module {self.__name__!r} has no attribute {name!r}; it has {', '.join(self.__all__)}"
            )
        module, original = homes[name]
        if module == self.__name__:
            value = import_module(f"{module}.{original}")
        else:
            value = getattr(import_module(module), original)
        self.__dict__[name] = value
        return value

    def __setattr__(self, name: str, value: object) -> None:
        # Python binds every module to its package once it is imported; that must not hide a function of the same name.
        if not (isinstance(value, ModuleType) and name in self.__all__):
            super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted({*self.__all__, *super().__dir__()})


def lazy(package: str) -> None:
    """Import what a package imports under `if TYPE_CHECKING` when it is first asked for.

    A name in `__all__` wins over a module of the package that is called the same, whose contents `from PACKAGE.MODULE
    import NAME` still finds.

    Args:
        package: Its `__name__`.
    """
    sys.modules[package].__class__ = _Lazy


def _imported_for_type_checkers(package: ModuleType) -> dict[str, tuple[str, str]]:
    """Return module and name there of each name that a package imports under `if TYPE_CHECKING`."""
    import ast

    source = package.__spec__.loader.get_source(package.__name__)  # type: ignore[union-attr]
    found: dict[str, tuple[str, str]] = {}
    for block in ast.parse(source).body:
        if isinstance(block, ast.If) and isinstance(block.test, ast.Name) and block.test.id == "TYPE_CHECKING":
            for line in block.body:
                if isinstance(line, ast.ImportFrom) and line.module is not None:
                    found |= {name.asname or name.name: (line.module, name.name) for name in line.names}
    return found
