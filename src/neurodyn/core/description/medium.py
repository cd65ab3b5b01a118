# SPDX-License-Identifier: Apache-2.0
"""The medium around a robot as plain data: its density, viscosity and wind, and the bodies that feel it."""

import math
from collections.abc import Collection, Mapping
from typing import Any, Literal

import msgspec

from neurodyn.core.config import Config
from neurodyn.core.description.scene import Pose, Vector3
from neurodyn.core.errors import require

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
