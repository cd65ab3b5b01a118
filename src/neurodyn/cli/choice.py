# SPDX-License-Identifier: Apache-2.0
"""Flags whose values are the names in a registry."""

from typing import Annotated, Any

from tyro.constructors import PrimitiveConstructorSpec

from neurodyn.core.errors import InputError, choices
from neurodyn.core.registry import Registry


def one_of(registry: Registry[Any], *others: Registry[Any]) -> PrimitiveConstructorSpec[str]:
    """Return what makes a flag take the names in a registry, or in one of several, to annotate a `str` with.

    Names are looked up when the flag is read: a plug-in may register some after the verb was imported.
    """
    every = (registry, *others)

    def named(given: list[str]) -> str:
        # The error passes the parser by, as that of a verb.
        if not others:
            registry.require(given[0])
        elif not any(given[0] in one for one in every):
            valid = choices(name for one in every for name in one)
            raise InputError(f"unknown {' or '.join(one.what for one in every)} {given[0]!r}; valid: {valid}")
        return given[0]

    return PrimitiveConstructorSpec(
        nargs=1,
        metavar=f"{{{','.join(name for one in every for name in one)}}}",
        instance_from_str=named,
        is_instance=lambda value: isinstance(value, str),
        str_from_instance=lambda value: [value],
    )


def _logger(given: list[str]) -> str:
    from neurodyn.learn.tracking.lookup import require_name

    require_name(given[0])
    return given[0]


Logger = (
    Annotated[
        str,
        PrimitiveConstructorSpec(
            nargs=1,
            metavar="tensorboard|wandb|none|MODULE:CLASS",
            instance_from_str=_logger,
            is_instance=lambda value: isinstance(value, str),
            str_from_instance=lambda value: [value],
        ),
    ]
    | None
)
"""What follows a training; None for TensorBoard, or what followed the run so far."""
