# SPDX-License-Identifier: Apache-2.0
"""The static shapes of any Newton model as a ground that contact points can be measured against."""

from typing import TYPE_CHECKING, Any

import numpy as np

from neurodyn.core.errors import InputError
from neurodyn.geometry.ground import Ground
from neurodyn.geometry.heights import check_heights
from neurodyn.geometry.meshes import TriangleMesh, closed_mesh
from neurodyn.geometry.solids import Kind, Solid
from neurodyn.sim.assets.merge import compose
from neurodyn.sim.contact_points import collides
from neurodyn.sim.engine import import_newton
from neurodyn.sim.fingerprint import body_groups

if TYPE_CHECKING:
    import newton


def ground_of_model(model: "newton.Model") -> Ground:
    """Return the static shapes of a model that its moving bodies can touch.

    Planes have no end, as for Newton's solvers. Shapes of the global world are shared by all, others belong to theirs.
    Shapes that collide with nothing that moves, such as the bolted base of a robot, are left out.

    Raises:
        InputError: A static shape is of a kind that cannot be measured against, or its mesh does not bound a solid.
    """
    arrays: Any = model
    groups = body_groups(model)
    bodies = map(int, arrays.shape_body.numpy())
    static = np.array([groups.get(body, (body, None))[0] < 0 for body in bodies], dtype=bool)
    touched = collides(model) & static
    pairs = getattr(arrays, "shape_contact_pairs", None)
    if pairs is not None:
        pairs = pairs.numpy().reshape(-1, 2)
        partners = np.zeros(len(static), dtype=bool)
        for column in (0, 1):
            partners[pairs[~static[pairs[:, 1 - column]], column]] = True
        touched &= partners
    world = arrays.shape_world.numpy()
    reader = _Reader(arrays, groups)
    solids = {int(shape): reader.solid(int(shape)) for shape in np.flatnonzero(touched)}
    own: list[list[Solid]] = [[] for _ in range(max(int(model.world_count), 1))]
    for shape, solid in solids.items():
        if world[shape] >= 0:
            own[world[shape]].append(solid)
    return Ground(
        shared=tuple(solid for shape, solid in solids.items() if world[shape] < 0),
        own=tuple(map(tuple, own)) if any(own) else (),
    )


class _Reader:
    """Turns shapes of a model into solids; shapes that share a mesh or heights share them afterwards."""

    def __init__(self, model: Any, groups: Any) -> None:
        geo = import_newton().GeoType
        self._model = model
        self._groups = groups
        self._type, self._scale = model.shape_type.numpy(), model.shape_scale.numpy().astype(float)
        self._transform, self._body = model.shape_transform.numpy().astype(float), model.shape_body.numpy()
        self._meshes: dict[tuple[int, tuple[float, ...]], TriangleMesh] = {}
        self._heights: dict[tuple[int, float], np.ndarray] = {}
        self._simple: dict[int, Kind] = {
            int(geo.PLANE): "plane", int(geo.BOX): "box", int(geo.SPHERE): "sphere", int(geo.CAPSULE): "capsule",
            int(geo.CYLINDER): "cylinder",
        }  # fmt: skip
        self._triangles = {int(geo.MESH), int(geo.CONVEX_MESH), int(geo.ELLIPSOID), int(geo.CONE)}
        self._field = int(geo.HFIELD)

    def solid(self, shape: int) -> Solid:
        """Return one shape."""
        kind = int(self._type[shape])
        _, offset = self._groups[int(self._body[shape])]
        place = compose(offset, self._transform[shape])
        place[3:] /= np.linalg.norm(place[3:])
        x, y, z = self._scale[shape].tolist()
        label = self._model.shape_label[shape]
        if kind in self._simple:
            return Solid(self._simple[kind], place, (x, y, z))
        if kind in self._triangles:
            return Solid("mesh", place, mesh=self._mesh(shape, kind, label))
        if kind == self._field:
            return self._heightfield(shape, place, label)
        raise InputError(
            f"static shape {label!r} is a {import_newton().GeoType(kind).name.lower()}; valid for contact points: "
            "plane, box, sphere, capsule, cylinder, cone, ellipsoid, mesh, heightfield"
        )

    def _mesh(self, shape: int, kind: int, label: str) -> TriangleMesh:
        newton = import_newton()
        scale = tuple(self._scale[shape].tolist())
        source = self._model.shape_source[shape]
        if kind == int(newton.GeoType.ELLIPSOID):
            source, scale = newton.Mesh.create_ellipsoid(*scale, compute_inertia=False), (1.0, 1.0, 1.0)
        elif kind == int(newton.GeoType.CONE):
            source = newton.Mesh.create_cone(scale[0], scale[1], up_axis=newton.Axis.Z, compute_inertia=False)
            scale = (1.0, 1.0, 1.0)
        elif kind == int(newton.GeoType.CONVEX_MESH):
            # Of all vertices: Newton simplifies hulls to `maxhullvert` vertices, its pipeline does not.
            most = len(np.asarray(source.vertices).reshape(-1, 3))
            whole = newton.Mesh(source.vertices, source.indices, compute_inertia=False, maxhullvert=most)
            source = whole.compute_convex_hull()
        key = (id(self._model.shape_source[shape]) if self._model.shape_source[shape] is not None else -shape, scale)
        if key not in self._meshes:
            vertices = np.asarray(source.vertices, dtype=float).reshape(-1, 3) * scale
            faces = np.asarray(source.indices).reshape(-1, 3)
            self._meshes[key] = closed_mesh(vertices, faces, f"static shape {label!r}")
        return self._meshes[key]

    def _heightfield(self, shape: int, place: np.ndarray, label: str) -> Solid:
        source = self._model.shape_source[shape]
        x, y, z = self._scale[shape].tolist()
        key = (id(source), z)
        if key not in self._heights:
            heights = z * (source.min_z + np.asarray(source.data, dtype=float) * (source.max_z - source.min_z))
            self._heights[key] = check_heights(heights.reshape(source.nrow, source.ncol), f"static shape {label!r}")
        cell = (2 * x * source.hx / (source.ncol - 1), 2 * y * source.hy / (source.nrow - 1), 0.0)
        return Solid("heightfield", place, cell, heights=self._heights[key])
