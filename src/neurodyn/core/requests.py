# SPDX-License-Identifier: Apache-2.0
"""Requests: a function's arguments as one struct, the source of its signature, help and flags.

The docstring below a field is its help, in Python and in the terminal.
"""

import ast
import functools
import inspect
import itertools
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ForwardRef, ParamSpec, Protocol, TypeVar, cast, get_args, get_origin, overload

import msgspec

P = ParamSpec("P")
S = TypeVar("S")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


@dataclass(frozen=True)
class Flag:
    """Annotation of a field whose flag differs from its Python type."""

    kind: Any
    """Type of the flag, or the name of one of `cli.terminal.flags.FLAG_TYPES`; None where there is no flag."""
    argument: str = ""
    """Name of the verb's argument, if the help uses another name than Python."""


IN_PYTHON = Flag(None)
"""Annotation of a Python-only field: a callback, a progress bar, a logger."""


class RequestFunction(Protocol[P, S, R_co]):  # pyright: ignore[reportInvalidTypeVarUse] - `S` is only taken
    """A function that takes a request, or its fields as arguments."""

    @overload
    def __call__(self, request: S, /) -> R_co: ...
    @overload
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co: ...


def accepts_request(request: Callable[P, S]) -> Callable[[Callable[[S], R]], RequestFunction[P, S, R]]:
    """Return a decorator that lets a function of a request also take the request's fields as arguments.

    Signature and arguments in the docstring are those of the request.

    Args:
        request: Class of the request.
    """
    struct: Any = get_origin(request) or request

    def decorate(function: Callable[[S], R]) -> RequestFunction[P, S, R]:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> R:
            if len(args) == 1 and not kwargs and isinstance(args[0], struct):
                return function(args[0])
            return function(struct(*args, **kwargs))

        returns = inspect.signature(function).return_annotation
        parameters = [one.replace(annotation=python_type(one.annotation)) for one in arguments_of(struct)]
        call.__signature__ = inspect.Signature(  # pyright: ignore[reportAttributeAccessIssue]
            parameters, return_annotation=returns
        )
        meanings = field_docs(struct)
        lines = [f"    {one.name}: {meanings[one.name]}" for one in parameters if one.name in meanings]
        call.__doc__ = "\n".join([inspect.getdoc(function) or "", "\nArgs:", *lines])
        return cast(RequestFunction[P, S, R], call)

    return decorate


def names_of(given: str | Path | Sequence[str | Path]) -> tuple[str, ...]:
    """Return the names or paths of an argument that takes one or several."""
    return (str(given),) if isinstance(given, str | Path) else tuple(map(str, given))


def arguments_of(request: type) -> list[inspect.Parameter]:
    """Return the fields of a request as parameters: its own, then those of its bases, which are keyword-only."""
    given = _defaults(request)
    parameters = {
        name: inspect.Parameter(
            name,
            inspect.Parameter.POSITIONAL_OR_KEYWORD if owner is request else inspect.Parameter.KEYWORD_ONLY,
            default=given[name],
            annotation=annotation,
        )
        for owner in reversed(request.__mro__)
        for name, annotation in inspect.get_annotations(owner).items()
        if name in given
    }
    own = [name for owner in request.__mro__ for name in inspect.get_annotations(owner) if name in parameters]
    return [parameters[name] for name in dict.fromkeys(own)]


def _defaults(request: type) -> dict[str, Any]:
    """Return the field defaults of a struct or dataclass without resolving a struct's types."""
    if not issubclass(request, msgspec.Struct):
        return {name: one.default for name, one in inspect.signature(request).parameters.items()}
    names, defaults = request.__struct_fields__, request.__struct_defaults__
    absent = inspect.Parameter.empty
    known = [absent] * (len(names) - len(defaults)) + [absent if x is msgspec.NODEFAULT else x for x in defaults]
    return dict(zip(names, known, strict=True))


def python_type(annotation: Any) -> Any:
    """Return a field's type without its flag; a string if it is not imported."""
    kind = annotation if flag_of(annotation) is None else get_args(annotation)[0]
    return kind.__forward_arg__ if isinstance(kind, ForwardRef) else kind


def flag_of(annotation: Any) -> Flag | None:
    """Return the `Flag` that annotates a field; None if the field's type is also its flag's."""
    return next((one for one in getattr(annotation, "__metadata__", ()) if isinstance(one, Flag)), None)


def field_docs(request: type) -> dict[str, str]:
    """Return the docstring below each field of a struct and its bases, on one line; none where there is no source."""
    docs: dict[str, str] = {}
    for owner in reversed(request.__mro__):
        docs |= _docs_in(owner.__module__).get(owner.__qualname__, {})
    return docs


@functools.cache
def _docs_in(module: str) -> dict[str, dict[str, str]]:
    """Return the docstrings below the fields of a module's classes, by class."""
    try:
        tree = ast.parse(inspect.getsource(sys.modules[module]))
    except (OSError, TypeError):  # there is no source
        return {}
    return {
        cls.name: {
            field.target.id: " ".join(below.value.value.split())
            for field, below in itertools.pairwise(cls.body)
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
            and isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant)
            and isinstance(below.value.value, str)
        }
        for cls in tree.body if isinstance(cls, ast.ClassDef)
    }  # fmt: skip
