# SPDX-License-Identifier: Apache-2.0
"""Passive force elements between joints or points of a mechanism, as plain data.

A kind of element is one record in `FORCE_ELEMENTS`: its numbers, its traced forces, and how it is read from a model of
Newton. Mechanisms, hybrid engines, identification and declarations of robots know it from there.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from neurodyn.core.config import Config
from neurodyn.core.description.scene import Vector3
from neurodyn.core.errors import require
from neurodyn.core.registry import Registry, imported

QUANTITY = "element."
"""How the names of the quantities of elements begin: "element.NAME.NUMBER"."""


@dataclass(frozen=True)
class ForceElementKind:
    """A kind of force element.

    Attributes:
        numbers: Its numbers by name, with their defaults.
        forces: The traced function from a step of an element (`multibody.elements.ElementStep`) to its forces
            (`multibody.elements.ElementForces`), or "module:attribute".
        bounds: Least and greatest values of its numbers; None for no bound. Numbers not named are at least 0.
        least: Least number of attachments.
        read: From a model of Newton and the declared robot to the elements of this kind, or "module:attribute"; None
            for elements that can only be declared.
    """

    numbers: Mapping[str, float]
    forces: str | Callable[..., Any]
    bounds: Mapping[str, tuple[float | None, float | None]] = field(default_factory=dict)
    least: int = 1
    read: str | Callable[..., "tuple[ForceElement, ...]"] | None = None

    @property
    def function(self) -> Callable[..., Any]:
        """The traced function."""
        return imported(self.forces)


FORCE_ELEMENTS: Registry[ForceElementKind] = Registry("kind of force element")
"""Kinds of force elements by name."""


class Attachment(Config, frozen=True):
    """A joint or a point that a force element acts on.

    Attributes:
        joint: The joint, or the joint that moves the body of the point; empty for the world.
        point: The point in the frame of that body, or of the world [m].
        factor: Weight of the attachment, for example the moment arm of a joint [m/rad].
    """

    joint: str = ""
    point: Vector3 = (0.0, 0.0, 0.0)
    factor: float = 1.0

    def __post_init__(self) -> None:
        require(all(map(math.isfinite, (*self.point, self.factor))), "attachment", list(self.point), "finite numbers")


class ForceElement(Config, frozen=True):
    """One force element.

    Attributes:
        name: Name of the element.
        kind: Kind of element: a name in `FORCE_ELEMENTS`.
        attachments: What it acts on, in the order that the kind expects.
        values: Values of its numbers that differ from the defaults of the kind.
    """

    name: str
    kind: str
    attachments: tuple[Attachment, ...]
    values: dict[str, float] = msgspec.field(default_factory=dict)

    def __post_init__(self) -> None:
        FORCE_ELEMENTS.require(self.kind)
        kind, where = FORCE_ELEMENTS[self.kind], f"element {self.name!r}"
        require(bool(self.name) and not set(self.name) & set("./@() "), where, "its name", "a word")
        require(len(self.attachments) >= kind.least, where, len(self.attachments), f"{kind.least} or more attachments")
        for name, value in self.values.items():
            require(name in kind.numbers, f"{where}: a number", repr(name), f"{', '.join(kind.numbers)}")
            least, most = self.bounds_of(name)
            low, high = -math.inf if least is None else least, math.inf if most is None else most
            ok = math.isfinite(value) and low <= value <= high
            require(ok, f"{where}: {name}", value, f"a finite number between {low:g} and {high:g}")

    def bounds_of(self, name: str) -> tuple[float | None, float | None]:
        """Return the least and greatest value of a number."""
        return FORCE_ELEMENTS[self.kind].bounds.get(name, (0.0, None))

    def quantities(self) -> dict[str, float]:
        """Return its numbers by the names of their quantities."""
        numbers = {**FORCE_ELEMENTS[self.kind].numbers, **self.values}
        return {f"{QUANTITY}{self.name}.{name}": float(value) for name, value in numbers.items()}

    def with_quantities(self, named: Mapping[str, float]) -> "ForceElement":
        """Return the element with other values of its quantities."""
        values = {name: named[f"{QUANTITY}{self.name}.{name}"] for name in FORCE_ELEMENTS[self.kind].numbers}
        return msgspec.structs.replace(self, values=values)


def require_elements(elements: Sequence[ForceElement], joints: Sequence[str]) -> None:
    """Raise a ValueError for elements of joints that do not exist, and for two with one name."""
    names = [element.name for element in elements]
    for element in elements:
        require(names.count(element.name) == 1, f"element {element.name!r}", "declared twice", "a name of its own")
        for one in element.attachments:
            valid = f"one of {', '.join(joints)}, or nothing for the world"
            require(one.joint in ("", *joints), f"element {element.name!r}: joint", repr(one.joint), valid)


def read_elements(model: Any, robot: Any) -> tuple[ForceElement, ...]:
    """Return the force elements of all kinds in a model of Newton."""
    readers = [imported(kind.read) for kind in FORCE_ELEMENTS.values() if kind.read is not None]
    return tuple(element for read in readers for element in read(model, robot))
