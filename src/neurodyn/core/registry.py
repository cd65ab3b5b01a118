# SPDX-License-Identifier: Apache-2.0
"""Registries of everything that users can extend, by name.

A package can name a module that registers its entries as an entry point of the group "neurodyn.plugins". It is imported
when a name is unknown, and before names are listed.

Public names of packages are also imported on first use, to keep package imports fast: a package writes its imports
under `with lazy(__name__)` and lists their names in `__all__`. Type checkers, editors and the API reference see
ordinary imports.
"""

import builtins
import gc
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, Generic, NamedTuple, Self, TypeVar

from neurodyn.core.errors import InputError, among, suggested_file, unknown

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

PLUGINS = "neurodyn.plugins"
"""Entry-point group of plug-ins."""

_loaded: list[str] = []


class Registry(Mapping[str, T], Generic[T]):
    """Entries of one kind by name; `what` names the kind in error messages."""

    def __init__(self, what: str, **entries: T | str) -> None:
        """Start with some entries; a string "module:attribute" is imported on first use."""
        self.what = what
        self._entries: dict[str, T | str] = dict(entries)

    def add(self, name: str, entry: T | str, *, replace: bool = False) -> None:
        """Add an entry, or a string "module:attribute"; an InputError for a taken name unless `replace` is set."""
        if name in self._entries and not replace:
            raise InputError(f"{self.what} {name!r} is registered already; valid: another name, or replace=True")
        self._entries[name] = entry

    def register(self, name: str) -> Callable[[F], F]:
        """Return a decorator that adds a function or class."""

        def added(entry: F) -> F:
            self.add(name, entry)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
            return entry

        return added

    def known(self) -> tuple[str, ...]:
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
    """Import the object that a string "module:attribute" names; return anything else unchanged."""
    if not isinstance(entry, str):
        return entry
    module, _, attribute = entry.partition(":")
    return getattr(import_module(module), attribute)


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
                f"plug-in {entry.name!r} ({entry.value}) cannot be imported ({type(error).__name__}: {error}); mend "
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


_IMPORT_LOCK = threading.RLock()
"""Held while Python's import is replaced, so that threads import packages one at a time."""


class _DeferredImport(NamedTuple):
    """Module and name to import."""

    module: str
    name: str


class lazy:  # noqa: N801 - read as a verb of the `with` statement
    """Defer imports until their names are used.

    Only the package's own `from MODULE import NAME` statements are deferred; imports in other threads run as usual. A
    name in `__all__` takes precedence over a submodule of the same name, from which `from PACKAGE.MODULE import NAME`
    still works.
    """

    def __init__(self, package: str) -> None:
        """Store the `__name__` of the package."""
        self._package = sys.modules[package]

    def __enter__(self) -> Self:
        _IMPORT_LOCK.acquire()
        self._import = builtins.__import__
        builtins.__import__ = self._defer
        return self

    def __exit__(self, *_: object) -> None:
        builtins.__import__ = self._import
        _IMPORT_LOCK.release()
        names = vars(self._package)
        names["_deferred"] = {name: source for name, source in names.items() if isinstance(source, _DeferredImport)}
        for name in names["_deferred"]:
            del names[name]
        self._package.__class__ = _Lazy

    def _defer(
        self, module: str, given: dict[str, Any] | None = None, local: Any = None, names: Any = (), level: int = 0
    ) -> Any:
        """Record an import of the package instead of running it; same signature as `__import__`."""
        if given is not vars(self._package):
            return self._import(module, given, local, names, level)
        if level or not names or "*" in names:
            raise ImportError(f"{self._package.__name__}: `import {module}`; valid: `from MODULE import NAME`")
        return SimpleNamespace(**{name: _DeferredImport(module, name) for name in names})


class _ImportWatch(MetaPathFinder):
    """Import finder that executes a given module within a context."""

    def __init__(self, module: str, around: Callable[[], AbstractContextManager[None]]) -> None:
        self._module, self._around, self._searching = module, around, False

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._module or self._searching:
            return None
        self._searching = True
        try:
            spec = find_spec(fullname)
        finally:
            self._searching = False
        if spec is not None and spec.loader is not None:
            execute = self._executed(spec.loader.exec_module)
            spec.loader.exec_module = execute  # pyright: ignore[reportAttributeAccessIssue]
        return spec

    def _executed(self, execute: Callable[[ModuleType], None]) -> Callable[[ModuleType], None]:
        def executed(module: ModuleType) -> None:
            first = self in sys.meta_path
            if first:
                sys.meta_path.remove(self)
            with self._around() if first else nullcontext():
                execute(module)

        return executed


def when_imported(module: str, act: str) -> None:
    """Call a function when a top-level module of another project is imported, or now if it already is.

    Args:
        module: Name of the module; this call does not import it.
        act: The function as "module:attribute", which takes no arguments.
    """
    if module in sys.modules:
        imported(act)()
    else:
        import_within(module, partial(_call_after, act))


def import_within(module: str, around: Callable[[], AbstractContextManager[None]]) -> None:
    """Execute a top-level module of another project within a context, once it is imported and if it is not yet."""
    if module not in sys.modules:
        sys.meta_path.insert(0, _ImportWatch(module, around))


@contextmanager
def _call_after(act: str) -> Iterator[None]:
    yield
    imported(act)()


@contextmanager
def uncollected() -> Iterator[None]:
    """Import large packages within without Python's garbage collector, which takes half of Newton's import.

    Objects that exist afterwards are never scanned again, because each scan would take as long as importing torch.
    """
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if before:
            gc.enable()


class _Lazy(ModuleType):
    def __getattr__(self, name: str) -> Any:
        deferred: dict[str, _DeferredImport] = self.__dict__["_deferred"]
        if name not in deferred:
            raise AttributeError(
                f"module {self.__name__!r} has no attribute {name!r}; it has {', '.join(self.__all__)}"
            )
        source = deferred[name]
        if source.module == self.__name__:
            value = import_module(f"{source.module}.{source.name}")
        else:
            value = getattr(import_module(source.module), source.name)
        self.__dict__[name] = value
        return value

    def __setattr__(self, name: str, value: object) -> None:
        # Python binds every imported submodule to its package, which must not hide a function of the same name.
        if not (isinstance(value, ModuleType) and name in self.__all__):
            super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted({*self.__all__, *super().__dir__()})
