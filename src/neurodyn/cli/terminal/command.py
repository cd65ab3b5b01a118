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
    request: type[S], *, after: Mapping[str, str] | None = None, without: Collection[str] = ()
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
    """

    def decorate(verb: Callable[..., None]) -> Callable[..., None]:
        own = {one.name: one for one in list(inspect.signature(verb).parameters.values())[1:]}
        known = {one.name: one for one in _flags(request) if one.name not in without} | own
        order = [name for name in known if name not in (after or {})]
        for name, place in (after or {}).items():
            order.insert(order.index(place) + 1, name)
        placed = [known[name] for name in order]

        @functools.wraps(verb)
        def call(*args: Any, **kwargs: Any) -> None:
            extra = {name: kwargs.pop(name) for name in own if name in kwargs}
            verb(request(*args, **kwargs), **extra)

        call.__dict__ |= {"request": request, "without": without, "__signature__": inspect.Signature(placed)}
        meanings = documented(request) | entries(verb.__doc__, "Flags")
        call.__doc__ = with_arguments(verb, {one.name: _IN_PYTHON.sub(".", meanings[one.name]) for one in placed})
        return call

    return decorate


def _flags(request: type) -> list[inspect.Parameter]:
    """Return the fields of a request as the terminal takes them; what only Python has is left out."""
    found = []
    for one in arguments_of(request):
        kind = terminal_type(one)
        if kind is not None:
            how = one.KEYWORD_ONLY if found else one.POSITIONAL_ONLY
            found.append(one.replace(annotation=kind, kind=how))
    return found


def terminal_type(field: inspect.Parameter) -> Any:
    """Return the type that the flag of a field has; None for a field that only Python has."""
    flag = flag_of(field.annotation)
    if flag is None:
        return field.annotation
    if not isinstance(flag.kind, str):
        return flag.kind
    reader = READERS[flag.kind]()
    return Optional[reader] if field.default is None else reader  # noqa: UP045 - `|` takes no Annotated
