# SPDX-License-Identifier: Apache-2.0
"""Flags whose values are the names in a registry."""

from typing import Any

from tyro.constructors import PrimitiveConstructorSpec

from neurodyn.core.registry import Registry


def one_of(registry: Registry[Any]) -> PrimitiveConstructorSpec[str]:
    """Return what makes a flag take the names in a registry, to annotate a `str` with.

    Names are looked up when the flag is read: a plug-in may register some after the verb was imported.
    """

    def named(given: list[str]) -> str:
        registry.require(given[0])  # its error passes the parser by, as that of a verb
        return given[0]

    return PrimitiveConstructorSpec(
        nargs=1,
        metavar=f"{{{','.join(registry)}}}",
        instance_from_str=named,
        is_instance=lambda value: isinstance(value, str),
        str_from_instance=lambda value: [value],
    )
