# SPDX-License-Identifier: Apache-2.0
"""Verbs whose flags are the fields of a request."""

import functools
import inspect
import re
from collections.abc import Callable, Collection, Mapping
from typing import Any, Optional, TypeVar

from neurodyn.cli.terminal.flags import READERS
from neurodyn.core.requests import arguments_of, documented, entries, flag_of, with_arguments

S = TypeVar("S")

_IN_PYTHON = re.compile(r"; in Python also [^.]*\.")
"""What the docstring of a request says of values that cannot be typed."""


def command(
    request: type[S],
    *,
    after: Mapping[str, str] | None = None,
    without: Collection[str] = (),
    overriding: type | None = None,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that makes a verb of a function of a request.

    The first field is the verb's argument, the others are its flags; each has the type that its `core.requests.Flag`
    names, else that of the field. Further keyword arguments of the function are flags of the terminal alone, which
    "Flags:" in its docstring explains.

    Args:
        request: Class of the request.
        after: The flag behind which the help shows a flag, where that is not the order of the fields and then of the
            flags of the terminal.
        without: Fields that have no flag.
        overriding: Settings whose fields are flags, too: those that `after` places. The function takes the values that
            are given as `**flags`.
    """

    def decorate(verb: Callable[..., None]) -> Callable[..., None]:
        taken = list(inspect.signature(verb).parameters.values())[1:]
        own = {one.name: one for one in taken if one.kind is one.KEYWORD_ONLY}
        known = {name: one for name, one in _flags(request).items() if name not in without} | own
        overrides = {} if overriding is None else _overrides(overriding, (after or {}).keys() - known.keys())
        own, known = own | overrides, known | overrides
        order = [name for name in known if name not in (after or {})]
        for name, place in (after or {}).items():
            order.insert(order.index(place) + 1, name)
        placed = {name: known[name] for name in order}

        @functools.wraps(verb)
        def call(*args: Any, **kwargs: Any) -> None:
            extra = {name: kwargs.pop(name) for name in own if name in kwargs}
            given = {name: x for name, x in extra.items() if name not in overrides or x not in (None, ())}
            verb(request(*args, **kwargs), **given)

        signature = inspect.Signature(list(placed.values()))
        call.__dict__ |= {"request": request, "without": without, "__signature__": signature}
        meanings = documented(request) | entries(verb.__doc__, "Flags")
        meanings |= {name: _with_default(overriding, name) for name in overrides}
        texts = {one.name: _IN_PYTHON.sub(".", meanings[name]) for name, one in placed.items()}
        call.__doc__ = with_arguments(verb, texts)
        return call

    return decorate


def _flags(request: type) -> dict[str, inspect.Parameter]:
    """Return the fields of a request as the terminal takes them, by name; what only Python has is left out."""
    found: dict[str, inspect.Parameter] = {}
    for one in arguments_of(request):
        kind, flag = terminal_type(one), flag_of(one.annotation)
        if kind is not None:
            how = one.KEYWORD_ONLY if found else one.POSITIONAL_ONLY
            named = one.name if flag is None else flag.argument or one.name
            found[one.name] = one.replace(name=named, annotation=kind, kind=how)
    return found


def _overrides(settings: type, names: Collection[str]) -> dict[str, inspect.Parameter]:
    """Return fields of settings as flags that need not be given."""
    found = {one.name: one.replace(kind=one.KEYWORD_ONLY) for one in arguments_of(settings) if one.name in names}
    return {
        name: one if one.default == () else one.replace(annotation=Optional[one.annotation], default=None)  # noqa: UP045
        for name, one in found.items()
    }


def _with_default(settings: Any, name: str) -> str:
    """Return the meaning of a field of settings, and its default where the text says none."""
    meaning = documented(settings)[name]
    default = next(one.default for one in arguments_of(settings) if one.name == name)
    if default in (None, ()) or "by default" in meaning:
        return meaning
    shown = f"{default:,}" if isinstance(default, int) else default
    return f"{meaning.rstrip('.')}; by default {shown}."


def terminal_type(field: inspect.Parameter) -> Any:
    """Return the type that the flag of a field has; None for a field that only Python has."""
    flag = flag_of(field.annotation)
    if flag is None:
        return field.annotation
    if not isinstance(flag.kind, str):
        return flag.kind
    reader = READERS[flag.kind]()
    return Optional[reader] if field.default is None else reader  # noqa: UP045 - `|` takes no Annotated
