# SPDX-License-Identifier: Apache-2.0
"""Flags of one value that a verb reads itself: names in a registry, and others."""

from collections.abc import Callable
from typing import Annotated, Any, TypeVar

from tyro.constructors import PrimitiveConstructorSpec

from neurodyn.core.errors import InputError, choices
from neurodyn.core.registry import Registry

_Value = TypeVar("_Value", str, int)


def read_by(read: Callable[[str], _Value], metavar: str, kind: type[_Value]) -> PrimitiveConstructorSpec[_Value]:
    """Return what makes a flag take one value, to annotate its type with.

    Args:
        read: Returns the value of a text. An InputError that it raises passes the parser by, as that of a verb.
        metavar: What the value is called in the help.
        kind: Type of the value.
    """
    return PrimitiveConstructorSpec(
        nargs=1,
        metavar=metavar,
        instance_from_str=lambda given: read(given[0]),
        is_instance=lambda value: isinstance(value, kind),
        str_from_instance=lambda value: [str(value)],
    )


def one_of(registry: Registry[Any], *others: Registry[Any]) -> PrimitiveConstructorSpec[str]:
    """Return what makes a flag take the names in a registry, or in one of several, to annotate a `str` with.

    Names are looked up when the flag is read: a plug-in may register some after the verb was imported.
    """
    every = (registry, *others)

    def named(given: str) -> str:
        if not others:
            registry.require(given)
        elif not any(given in one for one in every):
            valid = choices(name for one in every for name in one)
            raise InputError(f"unknown {' or '.join(one.what for one in every)} {given!r}; valid: {valid}")
        return given

    return read_by(named, f"{{{','.join(name for one in every for name in one)}}}", str)


def _logger(given: str) -> str:
    from neurodyn.learn.tracking.lookup import require_name

    require_name(given)
    return given


Logger = Annotated[str, read_by(_logger, "tensorboard|wandb|none|MODULE:CLASS", str)] | None
"""What follows a training; None for TensorBoard, or what followed the run so far."""
