# SPDX-License-Identifier: Apache-2.0
"""Flags that say what of the machine a verb uses."""

from typing import Annotated

from tyro.constructors import PrimitiveConstructorSpec

from neurodyn.core.errors import InputError


def _count(given: list[str]) -> int:
    text = given[0]
    if not text.isdecimal() or int(text) < 1:
        # Passes the parser by, as an error of the verb itself.
        raise InputError(f"--threads is {text!r}; valid: a whole number of at least 1")
    return int(text)


Threads = (
    Annotated[
        int,
        PrimitiveConstructorSpec(
            nargs=1,
            metavar="INT",
            instance_from_str=_count,
            is_instance=lambda value: isinstance(value, int),
            str_from_instance=lambda value: [str(value)],
        ),
    ]
    | None
)
"""How many cores a verb uses; None for its default."""
