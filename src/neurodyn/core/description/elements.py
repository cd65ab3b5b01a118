# SPDX-License-Identifier: Apache-2.0
"""Passive forces on links as plain data: of elements between joints or points, and of the medium around the robot.

A kind of element is one record in `FORCE_ELEMENTS`: its numbers, its traced forces, and how it is read from a model of
Newton. Mechanisms, hybrid engines, identification and declarations of robots know it from there.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from neurodyn.core.config import Config
from neurodyn.core.description.scene import Pose, Vector3
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


MEDIUM = "medium."
"""How the names of its quantities begin."""


class ImmersedBody(Config, frozen=True):
    """A box or an ellipsoid that feels the medium, as a part of a link.

    Attributes:
        link: Joint that names the link.
        kind: "box" (drag of the box with the body's inertia) or "ellipsoid" (drag, lift and added mass of one).
        pose: Its frame in the link's body.
        size: Edges of a box, or semi-axes of an ellipsoid [m].
        interaction: Factor on all of its forces.
        drag: Of an ellipsoid: coefficients of blunt, slender and angular drag.
        lift: Of an ellipsoid: coefficients of Kutta's and Magnus' lift.
        added_mass: Of an ellipsoid: volume of added mass along its axes [m^3].
        added_inertia: Of an ellipsoid: the same for rotations [m^5].
    """

    link: str
    kind: Literal["box", "ellipsoid"]
    pose: Pose
    size: Vector3
    interaction: float = 1.0
    drag: Vector3 = (0.0, 0.0, 0.0)
    lift: tuple[float, float] = (0.0, 0.0)
    added_mass: Vector3 = (0.0, 0.0, 0.0)
    added_inertia: Vector3 = (0.0, 0.0, 0.0)

    def __post_init__(self) -> None:
        numbers = (*self.pose, *self.drag, *self.lift, *self.added_mass, *self.added_inertia, self.interaction)
        require(all(map(math.isfinite, numbers)), f"medium: body of {self.link!r}", list(numbers), "finite numbers")
        fits = all(0 < x < math.inf for x in self.size)
        require(fits, f"medium: size of a body of {self.link!r}", list(self.size), "numbers above 0 [m]")


class Medium(Config, frozen=True):
    """A medium at rest or in motion.

    Attributes:
        bodies: The bodies that feel it.
        density: Its density [kg/m^3].
        viscosity: Its dynamic viscosity [Pa s].
        wind: Its velocity in world axes [m/s].
    """

    bodies: tuple[ImmersedBody, ...]
    density: float = 0.0
    viscosity: float = 0.0
    wind: Vector3 = (0.0, 0.0, 0.0)

    def __post_init__(self) -> None:
        for name in ("density", "viscosity"):
            value = getattr(self, name)
            require(0 <= value < math.inf, f"medium: {name}", value, "a finite number of at least 0")
        require(all(map(math.isfinite, self.wind)), "medium: wind", list(self.wind), "finite numbers [m/s]")

    def require_links(self, links: Collection[str]) -> None:
        """Raise a ValueError for a body of a link that does not exist."""
        for body in self.bodies:
            require(body.link in links, "medium: link of a body", repr(body.link), f"one of {', '.join(links)}")

    def quantities(self) -> dict[str, float]:
        """Return its numbers by the names of their quantities."""
        found = {f"{MEDIUM}density": self.density, f"{MEDIUM}viscosity": self.viscosity}
        return found | {f"{MEDIUM}wind.{axis}": x for axis, x in zip("xyz", self.wind, strict=True)}

    def bounds(self) -> dict[str, tuple[float | None, float | None]]:
        """Return the bounds of its quantities."""
        return {name: (None, None) if "wind" in name else (0.0, None) for name in self.quantities()}

    def with_quantities(self, named: Mapping[str, float]) -> "Medium":
        """Return the medium with other values of its quantities."""
        changes: dict[str, Any] = {name: named[f"{MEDIUM}{name}"] for name in ("density", "viscosity")}
        return msgspec.structs.replace(self, wind=tuple(named[f"{MEDIUM}wind.{axis}"] for axis in "xyz"), **changes)
