# SPDX-License-Identifier: Apache-2.0
"""Contacts between shapes of two links, and of points with the ground, by surface: groups of the constraint solver."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec import UNSET

from neurodyn.core.description.contacts import SOLIMP, SOLREF, ContactPoint
from neurodyn.core.description.shape_contacts import SURFACE, ContactSurface, TouchingShape
from neurodyn.geometry.rotation import quaternion_matrix
from neurodyn.multibody.constraints.impedance import Compliance, InverseWeights, compliance_of, tangent
from neurodyn.multibody.constraints.layout import ConeGroup
from neurodyn.multibody.contacts.colliders import COLLIDERS, convex
from neurodyn.multibody.contacts.contact_model import Contacts
from neurodyn.multibody.contacts.convex_search import PAIR_NUMBERS, ConvexPair, nearest_points
from neurodyn.multibody.contacts.flat_sides import MOST_CONTACTS, SIDED, flat_touches
from neurodyn.multibody.contacts.hull_corners import HullOnPlane, lowest_corners
from neurodyn.multibody.contacts.shape_pairs import Collider, PlacedShape, Touch
from neurodyn.multibody.mass_matrix import TreeInertia
from neurodyn.multibody.points import PointContact
from neurodyn.multibody.trace import Expression, Graph, map_in_loop, maximum, safe_sqrt
from neurodyn.multibody.vectors import EYE, Vector, array, dot

_LEAST_FRICTION = 1e-5  # MuJoCo's lower bound of coefficients of friction
_SOFTNESS = (*(f"solref.{part}" for part in SOLREF), *(f"solimp.{part}" for part in SOLIMP))
_CONVEX, _FLAT = ("convex shapes",), ("flat sides",)
_SLOT = 12  # numbers of a contact: `layout.PER_CONE`


@dataclass(frozen=True)
class _Pair:
    """Two shapes that can touch, of which the first may be the plane of the ground."""

    first: TouchingShape
    second: TouchingShape
    surface: str


_PLANE = TouchingShape(name="", link="", kind="plane", size=(0.0, 0.0, 0.0))


def _flat(first: PlacedShape, second: PlacedShape, margin: Any) -> list[Touch]:
    """Return the contacts of two shapes with flat sides or straight edges."""
    (single,) = convex(first, second, margin)
    return flat_touches(first, second, single, second.search_result[PAIR_NUMBERS:])


_SEARCHED: dict[tuple[str, ...], tuple[Collider, int]] = {_CONVEX: (convex, 1), _FLAT: (_flat, MOST_CONTACTS)}


@dataclass
class Cones:
    """Contacts of one group: its structure, and the inputs of the solver (`layout.ConeGroup`)."""

    links: tuple[int, int]  # the normal points from the first to the second; -1 for the world
    dofs: tuple[int, ...]
    signs: tuple[int, ...]
    surface: ContactSurface
    own: list[Any]  # of the group
    contacts: list[list[Any]] = field(default_factory=list)
    names: list[str] = field(default_factory=list)  # of the points of contacts with the ground

    @property
    def group(self) -> ConeGroup:
        """The structure of the contacts."""
        return ConeGroup(self.dofs, self.signs, self.surface.dimension, len(self.contacts))

    @property
    def inputs(self) -> list[Any]:
        """The inputs of the solver."""
        return [*self.own, *(x for contact in self.contacts for x in contact)]


class SurfaceContacts:
    """The contacts of a step, by links and surface.

    Positions are relative to the origin of the mechanism's first link.
    """

    def __init__(self, contacts: Contacts, inertia: TreeInertia, weights: InverseWeights) -> None:
        self._contacts, self._inertia, self._weights = contacts, inertia, weights
        self._mechanism = contacts.tree.mechanism
        self._surfaces = {surface.name: surface for surface in self._mechanism.surfaces or ()}
        self._last = {column.link: dof for dof, column in enumerate(inertia.columns)}
        self._bodies: dict[tuple[int, Any], Any] = {}

    def of_shapes(self) -> list[Cones]:
        """Return the contacts of all pairs of shapes."""
        pairs = [_Pair(one.first, one.second, one.surface) for one in self._mechanism.shape_contacts or ()]
        if self._contacts.flat and self._contacts.points:
            shapes = (self._mechanism.ground_shapes or {}).values()
            pairs += [_Pair(_PLANE, one.shape, one.surface) for one in shapes if one.shape is not UNSET]
        alike: dict[tuple[str, ...], list[_Pair]] = {}
        for one in pairs:
            kinds = (one.first.kind, one.second.kind)
            flat = self._mechanism.constraints.flat_sides and all(kind in SIDED for kind in kinds)
            alike.setdefault(kinds if kinds in COLLIDERS else _FLAT if flat else _CONVEX, []).append(one)
        return [cones for kinds, own in alike.items() for cones in self._alike(kinds, own)]

    def of_points(self, touched: Sequence[tuple[ContactPoint, PointContact]], axes: Sequence[Any]) -> list[Cones]:
        """Return the contacts of points with the ground; `axes` holds those of capsules, None for other shapes."""
        cones: dict[tuple[int, str], Cones] = {}
        always = bool(self._mechanism.constraints.follows_capsules)
        for (point, touch), axis in zip(touched, axes, strict=True):
            own = (self._mechanism.ground_shapes or {})[point.shape]
            if own.shape is not UNSET and self._contacts.flat:
                continue
            surface = self._surfaces[own.surface]
            key = touch.link, surface.name
            if key not in cones:
                cones[key] = self._group(-1, touch.link, surface)
            depth = touch.depth + self._number(surface, "margin")
            compliance = self._compliance(surface)
            weight = self._weight(surface, touch.link, own.centre or None)
            position = self._inertia.from_first(touch.link) + touch.arm + 0.5 * touch.depth * array(touch.normal)
            first = tangent(touch.normal, axis, always=always)
            cones[key].names.append(touch.name)
            cones[key].contacts.append(
                [*position, *touch.normal, *first, depth, compliance.weight(depth, weight), compliance.reference(depth)]
            )
        return list(cones.values())

    def _alike(self, kinds: tuple[str, ...], pairs: list[_Pair]) -> list[Cones]:
        """Return the contacts of pairs with the same collider, computed in a loop."""
        collide, slots = _SEARCHED[kinds] if kinds in _SEARCHED else COLLIDERS[kinds[0], kinds[1]]
        blocks = _Blocks()
        places: dict[Any, int] = {}
        numbers = _SurfaceNumbers([self._numbers_of(name) for name in dict.fromkeys(one.surface for one in pairs)])
        items, groups, of_group = [], [], []
        for one in pairs:
            links = tuple(self._index(shape) for shape in (one.first, one.second))
            key = (*links, one.surface)
            if key not in places:
                places[key] = len(groups)
                groups.append(self._group(links[0], links[1], self._surfaces[one.surface]))
            of_group.append(places[key])
            ends = [self._end(link, shape) for link, shape in zip(links, (one.first, one.second), strict=True)]
            at = [blocks.index(end, lambda end=end: self._block(*end)) for end in ends]
            at.append(blocks.index(one.surface, lambda own=self._numbers_of(one.surface): numbers.varying(own)))
            radii = one.first.bounding_radius + one.second.bounding_radius
            items.append((at, [radii, *_numbers(one.first), *_numbers(one.second)]))
        graph = next(x.graph for x in self._contacts.qd if isinstance(x, Expression))
        if kinds in _SEARCHED or "mesh" in kinds:
            items = self._search(graph, pairs, blocks.all, items, flat=kinds == _FLAT)
        dt, plane = self._contacts.dt, kinds[0] == "plane"

        def row(shared: list[Any], of_item: list[list[Any]], item: list[Any]) -> Sequence[Any]:
            first, second, own = of_item
            given = numbers.by_name(shared, own)
            compliance, margin = compliance_of(given.__getitem__, "solref", "solimp", dt), given["margin"]
            weight = (first[12] + second[12]) * given["edge"]
            made: list[Any] = []
            placed = _place(first, item[1:16]), _place(second, item[16:])
            for touch in collide(*placed, margin + given["gap"]):
                depth = margin - touch.distance
                made += [*touch.position, *touch.normal, *tangent(touch.normal), depth]
                made += [compliance.weight(depth, weight), compliance.reference(depth)]
            return made

        def near(shared: list[Any], of_item: list[list[Any]], item: list[Any]) -> Any:
            """Return a number above 0 where spheres around the shapes touch."""
            first, second, own = of_item
            reach = item[0] + numbers.by_name(shared, own)["margin"]
            apart = _point(second, item[16:19]) - _point(first, item[1:4])
            if plane:
                return reach - dot(array(first[:9]).reshape(3, 3)[:, 2], apart)
            return reach - safe_sqrt(dot(apart, apart))

        name = f"contacts: {' and '.join(kinds)}"
        results = map_in_loop(graph, name, row, numbers.common, blocks.all, items, near)
        for number, made in zip(of_group, results, strict=True):
            groups[number].contacts += [made[_SLOT * k : _SLOT * (k + 1)] for k in range(slots)]
        return groups

    def _search(
        self,
        graph: Graph,
        pairs: list[_Pair],
        blocks: list[list[Any]],
        items: list[tuple[list[int], list[Any]]],
        *,
        flat: bool,
    ) -> list[tuple[list[int], list[Any]]]:
        margins = [self._numbers_of(one.surface)["margin"] for one in pairs]
        hulls, results = self._mechanism.hulls or {}, []
        given = [((at[0], at[1]), values[0], (values[1:16], values[16:31])) for at, values in items]
        if pairs[0].first.kind == "plane":
            meshes = [
                HullOnPlane(at, own[1][3:12], own[1][:3], one.second.bounding_radius, one.second.hull or "")
                for one, (at, _, own) in zip(pairs, given, strict=True)
            ]
            results = lowest_corners(graph, hulls, meshes, blocks, margins)
        else:
            shapes = [
                ConvexPair(
                    at, own, (one.first.kind, one.second.kind), (one.first.hull or "", one.second.hull or ""), reach
                )
                for one, (at, reach, own) in zip(pairs, given, strict=True)
            ]
            results = nearest_points(graph, hulls, shapes, blocks, margins, flat=flat)
        return [(at, [*values, *own]) for (at, values), own in zip(items, results, strict=True)]

    def _group(self, first: int, second: int, surface: ContactSurface) -> Cones:
        """Return a group without contacts, of two links, -1 for the world."""
        sets = [set(self._inertia.chains[self._last[link]]) if link >= 0 else set() for link in (first, second)]
        dofs = tuple(sorted(sets[0] ^ sets[1]))
        own: list[Any] = [0.0] * 6
        own[1] = self._compliance(surface).damping
        own[0], own[2:] = self._friction(surface)
        return Cones((first, second), dofs, tuple(1 if dof in sets[1] else -1 for dof in dofs), surface, own)

    def _friction(self, surface: ContactSurface) -> tuple[Any, list[Any]]:
        """Return the coefficient along the first tangent, and the scales of the other rows."""
        if surface.dimension == 1:
            return 1.0, [1.0] * 4
        slide = self._coefficient(surface, "slide")
        scales: list[Any] = [surface.ratios[0], 1.0, 1.0, 1.0]
        if surface.dimension > 3:
            scales[1] = self._coefficient(surface, "torsion") / slide
        if surface.dimension > 4:
            scales[2] = self._coefficient(surface, "roll") / slide
            scales[3] = surface.ratios[1] * scales[2]
        return slide, scales

    def _coefficient(self, surface: ContactSurface, what: str) -> Any:
        return maximum(self._number(surface, what), _LEAST_FRICTION)

    def _number(self, surface: ContactSurface, what: str) -> Any:
        return self._contacts.scope(f"{SURFACE}{surface.name}.{what}")

    def _compliance(self, surface: ContactSurface) -> Compliance:
        start = f"{SURFACE}{surface.name}"
        return compliance_of(self._contacts.scope, f"{start}.solref", f"{start}.solimp", self._contacts.dt)

    def _weight(self, surface: ContactSurface, link: int, centre: Any) -> Any:
        return self._body(link, centre) * self._edge(surface)

    def _edge(self, surface: ContactSurface) -> Any:
        """Return the inverse weight of a friction pyramid's edge relative to that of the normal."""
        constraints = self._mechanism.constraints
        if surface.dimension == 1 or constraints.cone == "elliptic":
            return 1.0
        slide = self._coefficient(surface, "slide")
        return 2.0 * slide * slide / constraints.impratio * (1.0 + slide * slide)

    def _numbers_of(self, surface: str) -> dict[str, Any]:
        """Return the numbers of a surface's contacts by name."""
        own = self._surfaces[surface]
        return {what: self._number(own, what) for what in (*_SOFTNESS, "margin")} | {
            "gap": own.gap or 0.0, "edge": self._edge(own)
        }  # fmt: skip

    def _end(self, link: int, shape: TouchingShape) -> tuple[int, Any]:
        """Return the key of a contact end's block: link (-2 for the ground) and the point where its weight is taken."""
        return (-2 if shape.kind == "plane" else link), shape.centre or None

    def _block(self, link: int, centre: Any) -> list[Any]:
        """Return the block of a contact end: pose and inverse weight."""
        if link == -2:
            return [*self._plane(), 0.0]
        weight = 0.0 if link < 0 else self._body(link, centre)
        return [*self._pose(link), weight]

    def _body(self, link: int, centre: Any) -> Any:
        if (link, centre) not in self._bodies:
            self._bodies[link, centre] = self._weights.body(link, centre)
        return self._bodies[link, centre]

    def _index(self, shape: TouchingShape) -> int:
        return self._contacts.tree.index_of[shape.link] if shape.link else -1

    def _pose(self, link: int) -> list[Any]:
        """Return rotation and origin of a link's body, or of the world."""
        if link < 0:
            return [*EYE.flat, *(-1.0 * self._contacts.poses[0].origin)]
        tree, pose = self._contacts.tree, self._contacts.poses[link]
        rotation = pose.rotation @ array([tree.rotate_to_link(link, axis) for axis in EYE]).T
        return [
            *rotation.flat,
            *(self._inertia.from_first(link) + pose.rotation @ tree.in_link_frame(link, array([0.0] * 3))),
        ]

    def _plane(self) -> list[Any]:
        """Return a rotation whose third column is the normal of the ground, and a point on it."""
        origin, normal = self._contacts.grounds[0]
        rotation = array([[0.0, 0.0, x] for x in normal])
        return [*rotation.flat, *(origin - self._contacts.poses[0].origin)]


class _Blocks:
    """Values that items of a loop share."""

    def __init__(self) -> None:
        self.all: list[list[Any]] = []
        self._places: dict[Any, int] = {}

    def index(self, key: Any, make: Callable[[], list[Any]]) -> int:
        """Return the index of a block, created if it is new."""
        if key not in self._places:
            self._places[key] = len(self.all)
            self.all.append(make())
        return self._places[key]


class _SurfaceNumbers:
    """Numbers of several surfaces: equal ones are common values, the others form one block per surface."""

    def __init__(self, surfaces: Sequence[dict[str, Any]]) -> None:
        first = surfaces[0]
        self._same = {what: all(_equal(first[what], one[what]) for one in surfaces) for what in first}
        self.common = [value for what, value in first.items() if self._same[what]]

    def varying(self, surface: dict[str, Any]) -> list[Any]:
        return [value for what, value in surface.items() if not self._same[what]]

    def by_name(self, common: Sequence[Any], own: Sequence[Any]) -> dict[str, Any]:
        """Return the numbers by name from the common values and those of a block."""
        either = {True: iter(common), False: iter(own)}
        return {what: next(either[same]) for what, same in self._same.items()}


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, Expression) or isinstance(other, Expression):
        return isinstance(one, Expression) and isinstance(other, Expression) and one.index == other.index
    return float(one) == float(other)


def _numbers(shape: TouchingShape) -> list[float]:
    """Return position, rotation and size of a shape in its body."""
    return [*shape.place[:3], *array(quaternion_matrix(shape.place[3:])).flat, *shape.size]


def _point(pose: Sequence[Any], own: Sequence[Any]) -> Vector:
    return array(pose[9:12]) + array(pose[:9]).reshape(3, 3) @ array(own)


def _place(pose: Sequence[Any], own: Sequence[Any]) -> PlacedShape:
    rotation = array(pose[:9]).reshape(3, 3) @ array(own[3:12]).reshape(3, 3)
    return PlacedShape(_point(pose, own[:3]), rotation, array(own[12:15]), own[15:])
