# SPDX-License-Identifier: Apache-2.0
"""Contacts between the geoms of a compiled MuJoCo model as records of a mechanism."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from msgspec import UNSET, UnsetType

from neurodyn.core.description.scene import Vector3
from neurodyn.core.description.shape_contacts import (
    GROUNDED,
    ContactDimension,
    ContactSurface,
    GroundShape,
    Hull,
    ShapeContact,
    TouchingKind,
    TouchingShape,
)
from neurodyn.sim.bodies import compose, exact_pose
from neurodyn.sim.constraints import constraint_parameters
from neurodyn.sim.engine import import_mujoco
from neurodyn.sim.mujoco.couplings import ModelLinks

_KINDS: dict[str, TouchingKind] = {
    "mjGEOM_SPHERE": "sphere", "mjGEOM_CAPSULE": "capsule", "mjGEOM_ELLIPSOID": "ellipsoid",
    "mjGEOM_CYLINDER": "cylinder", "mjGEOM_BOX": "box", "mjGEOM_MESH": "mesh",
}  # fmt: skip
_EXHAUSTIVE = 10  # vertices of a mesh below which MuJoCo compares all
_LEAST, _LEAST_FRICTION = 1e-15, 1e-5
_FILTER_PARENT = 1 << 10


@dataclass(frozen=True)
class ParsedContacts:
    """Contacts between the shapes of links.

    Attributes:
        surfaces: The surfaces of contacts between links and with the ground.
        contacts: The pairs.
        ground: Geoms on the ground, by the names given; without surfaces if they differ only in the coefficient of
            sliding.
        hulls: Hulls of meshes, by name.
        left_out: Number of pairs without a collider, by kinds of geoms as named in MJCF.
    """

    surfaces: tuple[ContactSurface, ...] = ()
    contacts: tuple[ShapeContact, ...] = ()
    ground: dict[str, GroundShape] = field(default_factory=dict)
    hulls: dict[str, Hull] = field(default_factory=dict)
    left_out: Counter[tuple[str, str]] = field(default_factory=Counter)


def read_contacts(
    model: Any, links: ModelLinks, geoms: list[int], *, pairs: bool = True, ground: dict[int, str] | None = None
) -> ParsedContacts:
    """Return the contacts among geoms of a compiled model that move or can be touched by moving ones.

    Args:
        model: The `mujoco.MjModel`.
        links: Maps its bodies to the mechanism.
        geoms: The geoms.
        pairs: Whether to read contacts between geoms.
        ground: Geoms that touch the ground, with their names in the mechanism's contact points.
    """
    reader = _SurfaceReader(model, links)
    contacts = [one for pair in (reader.pairs(geoms) if pairs else ()) if (one := reader.contact(*pair)) is not None]
    own = {geom: reader.of_geom(geom) for geom in ground or {}}
    lying = {geom: reader.lying(geom) for geom in own}
    plain = len({(one.solref, one.solimp) for one in own.values()}) <= 1 and all(one.plain for one in own.values())
    plain = plain and not any(lying.values())
    shapes = {
        name: GroundShape(
            surface="" if plain else reader.surface(own[geom]), centre=reader.centre(geom),
            shape=lying[geom] or UNSET,
        )
        for geom, name in (ground or {}).items()
    }  # fmt: skip
    return ParsedContacts(tuple(reader.surfaces.values()), tuple(contacts), shapes, reader.hulls, reader.left_out)


def has_several_contacts(model: Any) -> bool:
    """Return whether flat sides that lie on each other have several contacts."""
    disabled = import_mujoco().mjtDisableBit
    return not int(model.opt.disableflags) & (int(disabled.mjDSBL_MULTICCD) | int(disabled.mjDSBL_NATIVECCD))


@dataclass(frozen=True)
class ContactNumbers:
    """Parameters of a contact."""

    dimension: ContactDimension
    friction: tuple[float, ...]  # five
    solref: tuple[float, ...]
    solimp: tuple[float, ...]
    margin: float
    gap: float = 0.0

    @property
    def plain(self) -> bool:
        """Whether it has sliding friction only, and neither margin nor gap."""
        return self.dimension == 3 and not self.margin and not self.gap


def touching_pairs(model: Any) -> dict[frozenset[str], ContactNumbers]:
    """Return the parameters of the contacts between moving geoms of a compiled model, by the geoms' names."""
    reader = _PairReader(model)
    touching = (model.geom_contype != 0) | (model.geom_conaffinity != 0)
    moving = np.flatnonzero(touching & (model.body_weldid[model.geom_bodyid] != 0)).tolist()
    return {
        frozenset((model.geom(one).name, model.geom(other).name)): numbers
        for one, other, numbers in reader.pairs(moving)
    }


class _PairReader:
    """Finds the geoms of a compiled model that may touch, and their contact parameters."""

    def __init__(self, model: Any) -> None:
        self._model = model

    def pairs(self, geoms: list[int]) -> Iterator[tuple[int, int, ContactNumbers]]:
        """Yield the pairs that may touch: those of `pair` elements, then those by `contype` and `conaffinity`."""
        model, declared = self._model, set()
        for pair in range(model.npair):
            ends = int(model.pair_geom1[pair]), int(model.pair_geom2[pair])
            if all(end in geoms for end in ends):
                declared.add(frozenset(ends))
                yield (*ends, self._of_pair(pair))
        excluded = {int(signature) for signature in model.exclude_signature}
        for position, one in enumerate(geoms):
            for other in geoms[position + 1 :]:
                if frozenset((one, other)) not in declared and self._meet(one, other, excluded):
                    yield one, other, self._mix(one, other)

    def _meet(self, one: int, other: int, excluded: set[int]) -> bool:
        model = self._model
        bits = (model.geom_contype[one] & model.geom_conaffinity[other]) | (
            model.geom_contype[other] & model.geom_conaffinity[one]
        )
        bodies = sorted(int(model.geom_bodyid[geom]) for geom in (one, other))
        welds = [int(model.body_weldid[body]) for body in bodies]
        if not bits or welds[0] == welds[1] or (bodies[0] << 16) + bodies[1] in excluded:
            return False
        if int(model.opt.disableflags) & _FILTER_PARENT or 0 in welds:
            return True
        parents = [int(model.body_weldid[model.body_parentid[weld]]) for weld in welds]
        return welds[0] != parents[1] and welds[1] != parents[0]

    def of_geom(self, geom: int) -> ContactNumbers:
        """Return the parameters of contacts that a geom determines alone."""
        model = self._model
        slide, torsion, roll = map(float, model.geom_friction[geom])
        return ContactNumbers(
            _dimension(model.geom_condim[geom]), (slide, slide, torsion, roll, roll),
            _floats(model.geom_solref[geom]), _floats(model.geom_solimp[geom]), float(model.geom_margin[geom]),
            float(model.geom_gap[geom]),
        )  # fmt: skip

    def _of_pair(self, pair: int) -> ContactNumbers:
        model = self._model
        return ContactNumbers(
            _dimension(model.pair_dim[pair]), _floats(model.pair_friction[pair]), _floats(model.pair_solref[pair]),
            _floats(model.pair_solimp[pair]), float(model.pair_margin[pair]), float(model.pair_gap[pair]),
        )  # fmt: skip

    def _mix(self, one: int, other: int) -> ContactNumbers:
        """Return the parameters of a contact of two geoms as MuJoCo mixes them."""
        model = self._model
        mine, theirs = self.of_geom(one), self.of_geom(other)
        added = mine.margin + theirs.margin, mine.gap + theirs.gap
        first, second = (int(model.geom_priority[geom]) for geom in (one, other))
        if first != second:
            chosen = mine if first > second else theirs
            return ContactNumbers(chosen.dimension, chosen.friction, chosen.solref, chosen.solimp, *added)
        share = softness_share(*(float(model.geom_solmix[geom]) for geom in (one, other)))
        solref, solimp = mix_softness(share, (mine.solref, mine.solimp), (theirs.solref, theirs.solimp))
        friction = tuple(map(max, mine.friction, theirs.friction))
        dimension = mine.dimension if mine.dimension > theirs.dimension else theirs.dimension
        return ContactNumbers(dimension, friction, solref, solimp, *added)


class _SurfaceReader(_PairReader):
    def __init__(self, model: Any, links: ModelLinks) -> None:
        super().__init__(model)
        self._links = links
        self._types = import_mujoco().mjtGeom
        self.surfaces: dict[ContactNumbers, ContactSurface] = {}
        self.hulls: dict[str, Hull] = {}
        self.left_out: Counter[tuple[str, str]] = Counter()

    def contact(self, one: int, other: int, numbers: ContactNumbers) -> ShapeContact | None:
        """Return the contact of two geoms; None if their kinds have no collider, or nothing moves."""
        first, second = sorted((one, other), key=lambda geom: int(self._model.geom_type[geom]))
        kinds = [self._kind(geom) for geom in (first, second)]
        names = [self._links.bodies[int(self._model.geom_bodyid[geom])][0] for geom in (first, second)]
        if names[0] == names[1] or "mjGEOM_PLANE" in kinds or "mjGEOM_HFIELD" in kinds:
            return None
        if any(
            kind not in _KINDS or self._without_hull(geom) for kind, geom in zip(kinds, (first, second), strict=True)
        ):
            self.left_out[kinds[0][7:].lower(), kinds[1][7:].lower()] += 1
            return None
        return ShapeContact(first=self._shape(first), second=self._shape(second), surface=self.surface(numbers))

    def surface(self, numbers: ContactNumbers) -> str:
        if numbers not in self.surfaces:
            slide, across, torsion, roll, roll_across = (max(x, _LEAST_FRICTION) for x in numbers.friction)
            self.surfaces[numbers] = ContactSurface(
                name=f"surface{len(self.surfaces) + 1}", dimension=numbers.dimension, friction=(slide, torsion, roll),
                ratios=(across / slide, roll_across / roll), margin=numbers.margin,
                softness=constraint_parameters(numbers.solref, numbers.solimp, exact=True), gap=numbers.gap or UNSET,
            )  # fmt: skip
        return self.surfaces[numbers].name

    def lying(self, geom: int) -> TouchingShape | None:
        """Return a geom as a shape that can lie on a plane; None for other kinds."""
        kind = _KINDS.get(self._kind(geom))
        return self._shape(geom) if kind in GROUNDED and not self._without_hull(geom) else None

    def _without_hull(self, geom: int) -> bool:
        """Return whether a geom is a mesh without a hull."""
        mesh = self._kind(geom) == "mjGEOM_MESH"
        return mesh and int(self._model.mesh_graphadr[self._mesh(geom)]) < 0

    def _mesh(self, geom: int) -> int:
        return int(self._model.geom_dataid[geom])

    def _hull(self, geom: int) -> str:
        mesh = self._mesh(geom)
        name = self._model.mesh(mesh).name or f"mesh{mesh}"
        if name not in self.hulls:
            self.hulls[name] = _read_hull(self._model, mesh)
        return name

    def _kind(self, geom: int) -> str:
        return self._types(int(self._model.geom_type[geom])).name

    def _shape(self, geom: int) -> TouchingShape:
        model = self._model
        name, pose = self._links.bodies[int(model.geom_bodyid[geom])]
        w, x, y, z = map(float, model.geom_quat[geom])
        shape_pose = compose(np.array(pose), np.array([*map(float, model.geom_pos[geom]), x, y, z, w]))
        a, b, c = (float(value) for value in model.geom_size[geom])
        kind = _KINDS[self._kind(geom)]
        label = model.geom(geom).name or f"geom{geom}"
        return TouchingShape(
            name=label, link=name, kind=kind, size=(a, b, c), place=exact_pose(shape_pose),
            centre=self.centre(geom) if name else UNSET, hull=self._hull(geom) if kind == "mesh" else UNSET,
        )  # fmt: skip

    def centre(self, geom: int) -> Vector3 | UnsetType:
        """Return the centre of mass of a geom's body in the frame of its link; unset if it is the link's."""
        body = int(self._model.geom_bodyid[geom])
        welded = [other for other, where in self._links.bodies.items() if where[0] == self._links.bodies[body][0]]
        if self._model.body_mass[body] == self._model.body_mass[welded].sum() > 0.0:
            return UNSET
        own = np.array([*map(float, self._model.body_ipos[body]), 0.0, 0.0, 0.0, 1.0])
        x, y, z, *_ = compose(np.array(self._links.bodies[body][1]), own)
        return float(x), float(y), float(z)


def _read_hull(model: Any, mesh: int) -> Hull:
    """Return the hull of a mesh from the graph of its corners and its polygons."""
    graph = model.mesh_graph[int(model.mesh_graphadr[mesh]) :]
    count, triangles = map(int, graph[:2])
    starts, corners, edges, _ = np.split(graph[2:], np.cumsum([count, count, count + 3 * triangles]))
    first = int(model.mesh_vertadr[mesh])
    if int(model.mesh_vertnum[mesh]) < _EXHAUSTIVE:
        corners, neighbours = np.sort(corners), ()
    else:
        ends = [start + int(np.argmax(edges[start:] < 0)) for start in starts]
        neighbours = tuple(tuple(edges[start:end].tolist()) for start, end in zip(starts, ends, strict=True))
    number = {int(corner): index for index, corner in enumerate(corners)}
    polygons = int(model.mesh_polyadr[mesh]) + np.arange(int(model.mesh_polynum[mesh]))
    faces = []
    for polygon in polygons:
        start = int(model.mesh_polyvertadr[polygon])
        own = model.mesh_polyvert[start : start + int(model.mesh_polyvertnum[polygon])]
        faces.append(tuple(number[int(corner)] for corner in own))
    vertices = (map(float, vertex) for vertex in model.mesh_vert[first + corners])
    return Hull(vertices=tuple((x, y, z) for x, y, z in vertices), faces=tuple(faces), neighbours=neighbours)


def softness_share(one: float, other: float) -> float:
    """Return the weight of the first of two geoms in the softness of their contact, from their `solmix`."""
    if one >= _LEAST and other >= _LEAST:
        return one / (one + other)
    return 0.5 if one < _LEAST and other < _LEAST else float(one >= _LEAST)


def mix_softness(
    share: float, one: tuple[Any, Any], other: tuple[Any, Any]
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return `solref` and `solimp` of a contact as MuJoCo mixes those of two geoms of equal priority."""
    solref, solimp = (
        tuple(float(share * a + (1.0 - share) * b) for a, b in zip(mine, theirs, strict=True))
        for mine, theirs in zip(one, other, strict=True)
    )
    if not (one[0][0] > 0 and other[0][0] > 0):
        solref = _floats(map(min, one[0], other[0]))
    return solref, solimp


def _floats(values: Any) -> tuple[float, ...]:
    return tuple(float(value) for value in values)


def _dimension(condim: Any) -> ContactDimension:
    dimensions: dict[int, ContactDimension] = {1: 1, 3: 3, 4: 4, 6: 6}
    return dimensions[int(condim)]
