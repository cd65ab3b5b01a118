# SPDX-License-Identifier: Apache-2.0
"""Contacts between shapes of two links as plain data, with MuJoCo's semantics, and their surfaces."""

import math
from collections.abc import Collection, Mapping, Sequence
from itertools import combinations_with_replacement
from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from neurodyn.core.config import Config
from neurodyn.core.description.contacts import SOLIMP, SOLREF, ConstraintParameters, constraint_quantities
from neurodyn.core.description.scene import IDENTITY, Pose, Vector3
from neurodyn.core.errors import require

SURFACE = "surface."
"""Name prefix of the quantities of surfaces: "surface.NAME.slide"."""

ContactDimension = Literal[1, 3, 4, 6]
"""Rows of a contact, MuJoCo's condim: 1 normal; 3 with sliding; 4 with torsion about the normal; 6 with rolling."""

FRICTION = ("slide", "torsion", "roll")
"""Names of the friction coefficients [1, m, m]."""

TouchingKind = Literal["sphere", "capsule", "ellipsoid", "cylinder", "box", "mesh", "plane"]

_ORDER: tuple[TouchingKind, ...] = ("sphere", "capsule", "ellipsoid", "cylinder", "box", "mesh")

PAIRED: frozenset[tuple[TouchingKind, TouchingKind]] = frozenset(combinations_with_replacement(_ORDER, 2))
"""Pairs of shape kinds that can touch between two links, in this order."""

GROUNDED: tuple[TouchingKind, ...] = ("cylinder", "ellipsoid", "mesh")
"""Shape kinds whose contact with a plane is at the lowest point instead of at fixed points."""


class ContactSurface(Config, frozen=True):
    """Friction and softness of contacts; many contacts may share one surface.

    Attributes:
        name: Name.
        dimension: Rows of a contact.
        friction: Coefficients of sliding, torsion [m] and rolling [m].
        ratios: Ratio of friction along the second tangent to that along the first, for sliding and for rolling.
        softness: Softness of the contacts.
        margin: Distance at which contact begins [m].
        gap: Extra distance within which MuJoCo detects contacts that do not push yet; it decides which of many contacts
            are kept. Unset for 0 [m].
    """

    name: str
    dimension: ContactDimension = 3
    friction: Vector3 = (1.0, 0.005, 0.0001)
    ratios: tuple[float, float] = (1.0, 1.0)
    softness: ConstraintParameters = ConstraintParameters()
    margin: float = 0.0
    gap: float | UnsetType = UNSET

    def __post_init__(self) -> None:
        where = f"surface {self.name!r}"
        require(0 <= (self.gap or 0.0) < math.inf, f"{where}: gap", self.gap, "a finite number of at least 0 [m]")
        require(bool(self.name) and set(self.name).isdisjoint("./@() "), where, "its name", "a word")
        require(all(0 < x < math.inf for x in self.friction), f"{where}: friction", list(self.friction), "above 0")
        require(all(0 < x < math.inf for x in self.ratios), f"{where}: ratios", list(self.ratios), "above 0")
        require(0 <= self.margin < math.inf, f"{where}: margin", self.margin, "a finite number of at least 0 [m]")

    def _scalars(self) -> dict[str, float]:
        used = {1: 0, 3: 1, 4: 2, 6: 3}[self.dimension]
        return dict(zip(FRICTION[:used], self.friction, strict=False)) | {"margin": self.margin}

    def quantities(self) -> dict[str, float]:
        """Return its parameters by quantity name."""
        start = f"{SURFACE}{self.name}"
        values = {f"{start}.{what}": float(x) for what, x in self._scalars().items()}
        return values | constraint_quantities(f"{start}.solref", f"{start}.solimp", self.softness)

    def bounds(self) -> dict[str, tuple[float | None, float | None]]:
        """Return the bounds of quantities whose bounds do not follow from their names."""
        return {f"{SURFACE}{self.name}.{what}": (0.0, None) for what in self._scalars()}

    def with_quantities(self, named: Mapping[str, float]) -> "ContactSurface":
        """Return a copy with other values of its quantities."""
        start = f"{SURFACE}{self.name}"
        values = {what: named[f"{start}.{what}"] for what in self._scalars()}
        friction = tuple(values.get(what, old) for what, old in zip(FRICTION, self.friction, strict=True))
        time, ratio = (named[f"{start}.solref.{part}"] for part in SOLREF)
        first, last, width, midpoint, power = (named[f"{start}.solimp.{part}"] for part in SOLIMP)
        softness = ConstraintParameters(solref=(time, ratio), solimp=(first, last, width, midpoint, power))
        return msgspec.structs.replace(self, friction=friction, softness=softness, margin=values["margin"])


class Hull(Config, frozen=True):
    """The convex hull of a mesh.

    Attributes:
        vertices: Vertices in the frame of the mesh [m].
        faces: Polygonal faces as vertex indices, in order around each.
        neighbours: Adjacent vertices of each vertex, in the order in which MuJoCo's search for the lowest vertex visits
            them, starting at vertex 0; empty where it compares all vertices.
    """

    vertices: tuple[Vector3, ...]
    faces: tuple[tuple[int, ...], ...]
    neighbours: tuple[tuple[int, ...], ...] = ()

    def __post_init__(self) -> None:
        count = len(self.vertices)
        require(all(math.isfinite(x) for one in self.vertices for x in one), "hull: vertices", "not finite", "numbers")
        used = {index for one in (*self.faces, *self.neighbours) for index in one}
        require(used <= set(range(count)) and count >= 1, "hull: an index", max(used, default=0), f"0 to {count - 1}")
        require(all(len(face) > 2 for face in self.faces), "hull: a face", "of two corners", "three or more")
        require(len(self.neighbours) in (0, count), "hull: neighbours", len(self.neighbours), f"0 or {count}")


class TouchingShape(Config, frozen=True):
    """A shape that can touch another shape.

    Attributes:
        name: Label of the shape.
        link: Name of its link; empty for the world.
        kind: Kind of shape.
        size: Sphere: radius. Capsule and cylinder, along z: radius, half length. Box: half extents. Ellipsoid: radii.
            Mesh: half extents of its bounding box [m].
        place: Pose in the frame of the link's body, or in the world.
        centre: Point of the body at which its inverse weight is evaluated; unset for the link's centre of mass [m].
        hull: Name of a mesh's hull; unset for other shapes.
    """

    name: str
    link: str
    kind: TouchingKind
    size: Vector3
    place: Pose = IDENTITY
    centre: Vector3 | UnsetType = UNSET
    hull: str | UnsetType = UNSET

    def __post_init__(self) -> None:
        used = self.size[: {"sphere": 1, "plane": 0, "capsule": 2, "cylinder": 2}.get(self.kind, 3)]
        valid = "finite numbers above 0 [m]"
        require(all(0 < x < math.inf for x in used), f"shape {self.name!r}: size", list(self.size), valid)
        fine = abs(math.hypot(*self.place[3:]) - 1.0) < 1e-6 and all(map(math.isfinite, self.place))
        require(fine, f"shape {self.name!r}: place", list(self.place), "a position [m] and a unit quaternion")
        fine = (self.kind == "mesh") == (self.hull is not UNSET)
        require(fine, f"shape {self.name!r}: hull", self.hull, "the name of a hull for a mesh, nothing for others")

    @property
    def bounding_radius(self) -> float:
        """Radius of the sphere about its centre that encloses it [m]."""
        if self.kind in ("box", "mesh"):
            return math.hypot(*self.size)
        if self.kind == "ellipsoid":
            return max(self.size)
        return self.size[0] + (self.size[1] if self.kind in ("capsule", "cylinder") else 0.0)


class ShapeContact(Config, frozen=True):
    """Two shapes that can touch.

    Attributes:
        first: Shape from which the contact normal points.
        second: Shape towards which it points.
        surface: Name of the surface.
    """

    first: TouchingShape
    second: TouchingShape
    surface: str

    def __post_init__(self) -> None:
        where = f"contact of {self.first.name!r} and {self.second.name!r}"
        require(self.first.link != self.second.link, f"{where}: link", repr(self.first.link), "two links")
        kinds = (self.first.kind, self.second.kind)
        require(kinds in PAIRED, f"{where}: kinds", " and ".join(kinds), f"two of {', '.join(_ORDER)}, in this order")


class GroundShape(Config, frozen=True):
    """Ground-contact properties of one of the robot's shapes.

    Attributes:
        surface: Name of the surface; empty to use `SoftConstraints`.
        centre: Point of its body at which the inverse weight is evaluated; unset for the link's centre of mass [m].
        shape: Its geometry if its kind is in `GROUNDED`; unset for shapes with fixed points.
    """

    surface: str = ""
    centre: Vector3 | UnsetType = UNSET
    shape: TouchingShape | UnsetType = UNSET

    def __post_init__(self) -> None:
        fine = self.shape is UNSET or (self.shape.kind in GROUNDED and bool(self.surface))
        valid = f"one of {', '.join(GROUNDED)} with a surface, or nothing"
        require(fine, f"ground shape of {self.surface!r}: shape", self.shape, valid)


def require_shape_contacts(
    contacts: Sequence[ShapeContact], surfaces: Sequence[ContactSurface], ground: Mapping[str, GroundShape],
    hulls: Mapping[str, Hull], links: Collection[str],
) -> None:  # fmt: skip
    """Raise a ValueError for contacts with unknown links, surfaces or hulls, and for duplicate surface names."""
    names = [surface.name for surface in surfaces]
    for name in names:
        require(names.count(name) == 1, f"surface {name!r}", "there twice", "a name of its own for each")
    for one in contacts:
        where = f"contact of {one.first.name!r} and {one.second.name!r}"
        for shape in (one.first, one.second):
            valid = f"one of {', '.join(links)}, or nothing for the world"
            require(shape.link in ("", *links), f"{where}: link", repr(shape.link), valid)
    for name in (one.surface for one in (*contacts, *ground.values()) if one.surface or one in contacts):
        require(name in names, "contacts: surface", repr(name), f"one of {', '.join(names) or '(none)'}")
    shapes = [shape for one in contacts for shape in (one.first, one.second)]
    for shape in (*shapes, *(one.shape for one in ground.values() if one.shape is not UNSET)):
        if shape.hull is not UNSET:
            valid = f"one of {', '.join(hulls) or '(none)'}"
            require(shape.hull in hulls, f"shape {shape.name!r}: hull", repr(shape.hull), valid)
