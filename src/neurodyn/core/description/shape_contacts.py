# SPDX-License-Identifier: Apache-2.0
"""Contacts between shapes of two links as plain data, with MuJoCo's semantics, and their surfaces."""

import math
from collections.abc import Collection, Mapping, Sequence
from itertools import combinations_with_replacement
from typing import Literal

from msgspec import UNSET, UnsetType

from neurodyn.core.config import Config
from neurodyn.core.description.contacts import ConstraintParameters, softness_paths
from neurodyn.core.description.record import (
    Bound,
    HasQuantities,
    Path,
    require_distinct,
    require_fields,
    require_known,
    require_word,
)
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


class ContactSurface(Config, HasQuantities, frozen=True):
    """Friction and softness of contacts; many contacts may share one surface."""

    name: str
    dimension: ContactDimension = 3
    """Rows of a contact."""
    friction: Vector3 = (1.0, 0.005, 0.0001)
    """Coefficients of sliding, torsion [m] and rolling [m]."""
    ratios: tuple[float, float] = (1.0, 1.0)
    """Ratio of friction along the second tangent to that along the first, for sliding and for rolling."""
    softness: ConstraintParameters = ConstraintParameters()
    margin: float = 0.0
    """Distance at which contact begins [m]."""
    gap: float | UnsetType = UNSET
    """Extra distance within which MuJoCo detects contacts that do not push yet; it decides which of many contacts are
    kept. Unset for 0 [m]."""

    def __post_init__(self) -> None:
        where = f"surface {self.name!r}"
        require_word(self.name, where)
        require_fields(self, where, above=("friction", "ratios"), least=("margin [m]", "gap [m]"))

    def _scalars(self) -> dict[str, Path]:
        used = FRICTION[: {1: 0, 3: 1, 4: 2, 6: 3}[self.dimension]]
        paths: dict[str, Path] = {what: ("friction", index) for index, what in enumerate(used)} | {
            "margin": ("margin",)
        }
        return {f"{SURFACE}{self.name}.{what}": path for what, path in paths.items()}

    def paths(self) -> dict[str, Path]:
        """See `HasQuantities.paths`."""
        start = f"{SURFACE}{self.name}"
        return self._scalars() | softness_paths(("softness",), f"{start}.solref", f"{start}.solimp")

    def bounds(self) -> dict[str, Bound]:
        """Return the bounds of quantities whose bounds do not follow from their names."""
        return dict.fromkeys(self._scalars(), (0.0, None))


class Hull(Config, frozen=True):
    """The convex hull of a mesh."""

    vertices: tuple[Vector3, ...]
    """Vertices in the frame of the mesh [m]."""
    faces: tuple[tuple[int, ...], ...]
    """Polygonal faces as vertex indices, in order around each."""
    neighbours: tuple[tuple[int, ...], ...] = ()
    """Adjacent vertices of each vertex, in the order in which MuJoCo's search for the lowest vertex visits them,
    starting at vertex 0; empty where it compares all vertices."""

    def __post_init__(self) -> None:
        count = len(self.vertices)
        require_fields(self, "hull", finite=("vertices",))
        used = {index for one in (*self.faces, *self.neighbours) for index in one}
        require(used <= set(range(count)) and count >= 1, "hull: an index", max(used, default=0), f"0 to {count - 1}")
        require(all(len(face) > 2 for face in self.faces), "hull: a face", "of two corners", "three or more")
        require(len(self.neighbours) in (0, count), "hull: neighbours", len(self.neighbours), f"0 or {count}")


class TouchingShape(Config, frozen=True):
    """A shape that can touch another shape."""

    name: str
    link: str
    """Name of its link; empty for the world."""
    kind: TouchingKind
    size: Vector3
    """Sphere: radius. Capsule and cylinder, along z: radius, half length. Box: half extents. Ellipsoid: radii. Mesh:
    half extents of its bounding box [m]."""
    place: Pose = IDENTITY
    """Pose in the frame of the link's body, or in the world."""
    centre: Vector3 | UnsetType = UNSET
    """Point of the body at which its inverse weight is evaluated; unset for the link's centre of mass [m]."""
    hull: str | UnsetType = UNSET
    """Name of a mesh's hull; unset for other shapes."""

    def __post_init__(self) -> None:
        used = self.size[: {"sphere": 1, "plane": 0, "capsule": 2, "cylinder": 2}.get(self.kind, 3)]
        valid = "finite numbers above 0 [m]"
        require(all(0 < x < math.inf for x in used), f"shape {self.name!r}: size", list(self.size), valid)
        require_fields(self, f"shape {self.name!r}", finite=("place",), unit=("place",))
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
    """Two shapes that can touch."""

    first: TouchingShape
    """Shape from which the contact normal points."""
    second: TouchingShape
    """Shape towards which it points."""
    surface: str

    def __post_init__(self) -> None:
        where = f"contact of {self.first.name!r} and {self.second.name!r}"
        require(self.first.link != self.second.link, f"{where}: link", repr(self.first.link), "two links")
        kinds = (self.first.kind, self.second.kind)
        require(kinds in PAIRED, f"{where}: kinds", " and ".join(kinds), f"two of {', '.join(_ORDER)}, in this order")


class GroundShape(Config, frozen=True):
    """Ground-contact properties of one of the robot's shapes."""

    surface: str = ""
    """Name of the surface; empty to use `SoftConstraints`."""
    centre: Vector3 | UnsetType = UNSET
    """Point of its body at which the inverse weight is evaluated; unset for the link's centre of mass [m]."""
    shape: TouchingShape | UnsetType = UNSET
    """Its geometry if its kind is in `GROUNDED`; unset for shapes with fixed points."""

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
    require_distinct("surface", names)
    shapes = [shape for one in contacts for shape in (one.first, one.second)]
    for shape in shapes:
        require_known(f"shape {shape.name!r}: link", (shape.link,), ("", *links))
    used = (one.surface for one in (*contacts, *ground.values()) if one.surface or one in contacts)
    require_known("contacts: surface", used, names)
    for shape in (*shapes, *(one.shape for one in ground.values() if one.shape is not UNSET)):
        if shape.hull is not UNSET:
            require_known(f"shape {shape.name!r}: hull", (shape.hull,), hulls)
