# SPDX-License-Identifier: Apache-2.0
"""Scenes as shapes of a Newton model, posed per world; static shapes of any Newton model as a ground."""

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from neurodyn.core.description.scene import Scene
from neurodyn.core.errors import InputError
from neurodyn.geometry.ground import Ground
from neurodyn.geometry.rotation import multiply, rotate
from neurodyn.geometry.solids import Kind, Solid, TriangleMesh, check_heights, closed_mesh, solids_of_scene
from neurodyn.robots.sections import ContactMaterial
from neurodyn.sim.bodies import compose
from neurodyn.sim.engine import collides, import_newton
from neurodyn.sim.interface import SCENE_LABEL
from neurodyn.sim.newton.fingerprints import body_groups

if TYPE_CHECKING:
    import newton

_GROUP = 1
_BASE = 1.0  # thickness of a heightfield below its lowest point [m]


def add_scene(builder: "newton.ModelBuilder", scene: Scene, material: ContactMaterial | None = None) -> list[int]:
    """Add the shapes of a scene to a builder of one world, at the identity pose; return their indices.

    Friction, stiffness and damping of contacts with a robot are the robot's: MuJoCo uses those of the shape with higher
    priority, and scenes have a lower one. `material` is for solvers without priorities. For MuJoCo,
    `SolverMuJoCo.register_custom_attributes` must have been called with the builder.
    """
    import warp as wp

    newton = import_newton()
    given = material_fields(material or ContactMaterial())
    config = newton.ModelBuilder.ShapeConfig(density=0.0, gap=0.0, collision_group=_GROUP, **given)
    priority = "mujoco:geom_priority"
    custom = {priority: -1} if priority in builder.custom_attributes else {}
    shapes = []
    for number, solid in enumerate(solids_of_scene(scene)):
        common = {
            "xform": wp.transform(*(float(x) for x in solid.pose)),
            "cfg": config,
            "label": f"{SCENE_LABEL}/{number}",
            "custom_attributes": dict(custom),
        }
        shapes.append(_add(newton, builder, solid, common))
    return shapes


def material_fields(material: ContactMaterial) -> dict[str, float]:
    """Return the given values of a material by Newton's field names."""
    fields = {"mu": material.friction, "ke": material.stiffness, "kd": material.damping}
    return {name: value for name, value in fields.items() if value is not None}


class ScenePlacer:
    """Moves the scene of every world of a model."""

    def __init__(self, model: Any) -> None:
        """Find the scene's shapes in a Newton model and their local poses."""
        import warp as wp

        rows = [index for index, label in enumerate(model.shape_label) if label.startswith(f"{SCENE_LABEL}/")]
        self._transforms = wp.to_torch(model.shape_transform).view(-1, 7) if rows else torch.empty(0, 7)
        world = model.shape_world.numpy()[rows] if rows else np.zeros(0, dtype=int)
        self._rows = torch.tensor(rows, dtype=torch.long, device=self._transforms.device)
        self._world = torch.from_numpy(world.astype(np.int64)).to(self._transforms.device)
        self._local = self._transforms[self._rows].clone()

    def set_pose(self, pose: Tensor) -> None:
        """Set the pose of each world's scene (scene to world), shape [worlds, 7].

        Notify the solver afterwards (`notify_model_changed` with `SHAPE_PROPERTIES`).
        """
        pose = pose.to(self._transforms)[self._world]
        position, rotation = pose[:, :3], torch.nn.functional.normalize(pose[:, 3:], dim=-1)
        moved = position + rotate(rotation, self._local[:, :3])
        self._transforms[self._rows] = torch.cat([moved, multiply(rotation, self._local[:, 3:])], -1)


def _add(newton: Any, builder: Any, solid: Solid, common: dict[str, Any]) -> int:
    x, y, z = solid.size
    match solid.kind:
        case "plane":
            return builder.add_shape_plane(body=-1, width=0.0, length=0.0, **common)
        case "box":
            return builder.add_shape_box(-1, hx=x, hy=y, hz=z, **common)
        case "sphere":
            return builder.add_shape_sphere(-1, radius=x, **common)
        case "capsule":
            return builder.add_shape_capsule(-1, radius=x, half_height=y, **common)
        case "cylinder":
            return builder.add_shape_cylinder(-1, radius=x, half_height=y, **common)
        case "mesh":
            assert solid.mesh is not None  # for the type checker
            vertices, faces = solid.mesh.vertices.astype(np.float32), solid.mesh.faces.astype(np.int32)
            mesh = newton.Mesh(vertices, faces.ravel(), compute_inertia=False)
            return builder.add_shape_mesh(-1, mesh=mesh, **common)
        case "heightfield":
            assert solid.heights is not None  # for the type checker
            rows, columns = solid.heights.shape
            half = {"hx": (columns - 1) * x / 2, "hy": (rows - 1) * y / 2}
            field = newton.Heightfield(solid.heights.astype(np.float32), rows, columns, **half)
            if "mujoco:hfield_base" in builder.custom_attributes:
                common["custom_attributes"]["mujoco:hfield_base"] = _BASE
            return builder.add_shape_heightfield(heightfield=field, **common)


def ground_of_model(model: "newton.Model") -> Ground:
    """Return the static shapes of a model that its moving bodies can touch.

    Planes are infinite, as in Newton's solvers. Shapes of the global world are shared by all worlds. Shapes that
    collide with nothing that moves, such as a fixed base, are left out.

    Raises:
        InputError: A static shape is of an unsupported kind, or its mesh does not bound a solid.
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
    reader = _SolidReader(arrays, groups)
    solids = {int(shape): reader.solid(int(shape)) for shape in np.flatnonzero(touched)}
    own: list[list[Solid]] = [[] for _ in range(max(int(model.world_count), 1))]
    for shape, solid in solids.items():
        if world[shape] >= 0:
            own[world[shape]].append(solid)
    return Ground(
        shared=tuple(solid for shape, solid in solids.items() if world[shape] < 0),
        own=tuple(map(tuple, own)) if any(own) else (),
    )


class _SolidReader:
    """Converts shapes of a model to solids; shapes that share a mesh or heights still share them."""

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
        kind = int(self._type[shape])
        _, offset = self._groups[int(self._body[shape])]
        pose = compose(offset, self._transform[shape])
        pose[3:] /= np.linalg.norm(pose[3:])
        x, y, z = self._scale[shape].tolist()
        label = self._model.shape_label[shape]
        if kind in self._simple:
            return Solid(self._simple[kind], pose, (x, y, z))
        if kind in self._triangles:
            return Solid("mesh", pose, mesh=self._mesh(shape, kind, label))
        if kind == self._field:
            return self._heightfield(shape, pose, label)
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
            cone = newton.Mesh.create_cone(scale[0], scale[1], up_axis=newton.Axis.Z, compute_inertia=False)
            source, scale = cone, (1.0, 1.0, 1.0)
        elif kind == int(newton.GeoType.CONVEX_MESH):
            # With all vertices: Newton's hulls have at most `maxhullvert`, but its collision pipeline has all.
            most = len(np.asarray(source.vertices).reshape(-1, 3))
            whole = newton.Mesh(source.vertices, source.indices, compute_inertia=False, maxhullvert=most)
            source = whole.compute_convex_hull()
        key = (id(self._model.shape_source[shape]) if self._model.shape_source[shape] is not None else -shape, scale)
        if key not in self._meshes:
            vertices = np.asarray(source.vertices, dtype=float).reshape(-1, 3) * scale
            faces = np.asarray(source.indices).reshape(-1, 3)
            self._meshes[key] = closed_mesh(vertices, faces, f"static shape {label!r}")
        return self._meshes[key]

    def _heightfield(self, shape: int, pose: np.ndarray, label: str) -> Solid:
        source = self._model.shape_source[shape]
        x, y, z = self._scale[shape].tolist()
        key = (id(source), z)
        if key not in self._heights:
            heights = z * (source.min_z + np.asarray(source.data, dtype=float) * (source.max_z - source.min_z))
            self._heights[key] = check_heights(heights.reshape(source.nrow, source.ncol), f"static shape {label!r}")
        cell = (2 * x * source.hx / (source.ncol - 1), 2 * y * source.hy / (source.nrow - 1), 0.0)
        return Solid("heightfield", pose, cell, heights=self._heights[key])
