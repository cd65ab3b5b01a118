# SPDX-License-Identifier: Apache-2.0
"""Flags whose values are the names in a registry."""

from typing import Any

from tyro.constructors import PrimitiveConstructorSpec

from neurodyn.core.registry import Registry


def one_of(registry: Registry[Any]) -> PrimitiveConstructorSpec[str]:
    """Return what makes a flag take the names in a registry, to annotate a `str` with."""
    names = tuple(registry)
    return PrimitiveConstructorSpec(
        nargs=1,
        metavar=f"{{{','.join(names)}}}",
        instance_from_str=lambda given: given[0],
        is_instance=lambda value: value in names,
        str_from_instance=lambda value: [value],
        choices=names,
    )
