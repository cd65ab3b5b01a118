# SPDX-License-Identifier: Apache-2.0
"""Flags that say what of the machine a verb uses."""

import sys
from typing import Annotated

from tyro.constructors import PrimitiveConstructorSpec

from neurodyn.core.errors import InputError

MOST_THREADS = 4096
"""More than any machine has cores."""


def _count(given: list[str]) -> int:
    text = given[0]
    if not text.isdecimal() or not 1 <= int(text) <= MOST_THREADS:
        # Passes the parser by, as an error of the verb itself.
        raise InputError(f"--threads is {text!r}; valid: a whole number from 1 to {MOST_THREADS:,}")
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


def _device(given: list[str]) -> str:
    name = given[0]
    if name != "cpu":  # which is there without torch, whose import takes a second
        from neurodyn.learn.devices import require_device

        try:
            require_device(name)
        except InputError as error:
            raise InputError(f"--{error}") from None
    return name


Device = Annotated[
    str,
    PrimitiveConstructorSpec(
        nargs=1,
        metavar="cpu|cuda|cuda:N",
        instance_from_str=_device,
        is_instance=lambda value: isinstance(value, str),
        str_from_instance=lambda value: [value],
    ),
]
"""Where a verb computes: a torch device that is there."""


def out_of_memory(error: Exception) -> InputError | None:
    """Return in one line that a device has too little memory, where an error says so; None for other errors."""
    if isinstance(error, MemoryError):
        detail = f" ({error})" if str(error) else ""
        return InputError(f"too little memory{detail}; valid: fewer worlds, smaller batches, fewer --threads")
    if "torch" not in sys.modules:
        return None
    from neurodyn.learn.devices import lacks_memory

    if not lacks_memory(error):
        return None
    first = str(error).partition(". ")[0].strip()
    return InputError(f"--device: too little memory ({first}); valid: fewer worlds, smaller batches, another device")
