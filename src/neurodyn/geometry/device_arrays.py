# SPDX-License-Identifier: Apache-2.0
"""Contact-point layouts and shapes as Warp arrays, in the order of the kernels' arguments."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import warp as wp

from neurodyn.core.description.contacts import ContactPointLayout
from neurodyn.core.description.scene import Scene
from neurodyn.core.description.spec import places
from neurodyn.core.errors import InputError
from neurodyn.geometry.chain import FROM_BASE, FROM_BEFORE, FROM_ROOT, JOINT_KINDS, SHAPE_KINDS
from neurodyn.geometry.distances import BLOCK
from neurodyn.geometry.launching import OperatorHandle
from neurodyn.geometry.rotation import quaternion_matrix
from neurodyn.geometry.solids import Solid, block_ranges, pseudo_normals, solids_of_scene


@dataclass(frozen=True)
class Precision:
    """Warp types of one floating-point precision."""

    scalar: Any
    """A number; `vec2` to `transform` are of such numbers."""
    vec2: Any
    vec3: Any
    transform: Any
    joint: Any
    """A joint of a chain: its kind, the indices of its first coordinates in q and qd, `anchor` and `frame` in the
    parent, rotation `turn` from its frame to the child, its `axis`, `offset` of its frame in the child, and `centre` of
    mass of a free joint's child, and `slide` of a screw per angle."""
    shape: Any
    """A shape of a scene: kind, origin, rotation, size (the third of a heightfield is its lowest height), bounding
    `ball`, Warp `mesh` with the row of its `first_face` among the normals, and `grid` of a heightfield (first height,
    rows, columns, first block)."""

    @classmethod
    def of(cls, scalar: Any, vec2: Any, vec3: Any, vec4: Any, quat: Any, mat33: Any, transform: Any) -> "Precision":
        """Return the types with numbers of one kind."""
        joint = _struct(
            "Joint", kind=wp.int32, q=wp.int32, qd=wp.int32, anchor=vec3, frame=quat, turn=quat, axis=vec3, offset=vec3,
            centre=vec3, slide=vec3,
        )  # fmt: skip
        shape = _struct(
            "Shape", kind=wp.int32, origin=vec3, rotation=mat33, size=vec3, ball=vec4, mesh=wp.uint64,
            first_face=wp.int32, grid=wp.vec4i,
        )  # fmt: skip
        return cls(scalar, vec2, vec3, transform, joint, shape)


def _struct(name: str, **fields: Any) -> Any:
    return wp.struct(type(name, (), {"__annotations__": fields, "__module__": __name__}))


PRECISIONS = {
    torch.float32: Precision.of(wp.float32, wp.vec2f, wp.vec3f, wp.vec4f, wp.quatf, wp.mat33f, wp.transformf),
    torch.float64: Precision.of(wp.float64, wp.vec2d, wp.vec3d, wp.vec4d, wp.quatd, wp.mat33d, wp.transformd),
}


def layout_arrays(layout: ContactPointLayout, device: str, precision: Precision, *, one_by_one: bool) -> list[Any]:
    """Return the kernel arguments `start`, `chain_start`, `chain`, `contact_point_point` and `joints`.

    With `one_by_one`, the chain of every contact point starts at the root. Otherwise it starts at the body of the
    previous contact point if that is on the path, or at the body of joint 0.
    """
    chains, start = [], []
    before = [-1]
    for contact_point in layout.contact_points:
        whole = _chain(layout, contact_point.joint)
        from_before = not one_by_one and before[-1] in whole
        from_base = not one_by_one and not from_before and before[0] == whole[0] == 0
        walked = whole.index(before[-1]) + 1 if from_before else int(from_base)
        chains.append(whole[walked:])
        start.append(FROM_BEFORE if from_before else FROM_BASE if from_base else FROM_ROOT)
        before = whole
    frames = np.array([joint.parent_frame for joint in layout.joints], dtype=np.float64).reshape(-1, 7)
    children = np.array([joint.child_frame for joint in layout.joints], dtype=np.float64).reshape(-1, 7)
    at = places(layout.joints)
    centres = np.zeros((len(layout.joints), 3))
    centres[0] = layout.base_com
    for index, joint in enumerate(layout.joints):
        if joint.name in (layout.coms or {}):
            centres[index] = (layout.coms or {})[joint.name]

    def integers(values: Sequence[Any]) -> Any:
        return wp.array(np.array(values, dtype=np.int32), dtype=wp.int32, device=device)

    points = np.array([point.point for point in layout.contact_points], dtype=np.float64).reshape(-1, 3)
    joints: Any = np.zeros(len(layout.joints), precision.joint.numpy_dtype())
    joints["kind"] = [JOINT_KINDS[joint.moves_like] for joint in layout.joints]
    joints["q"], joints["qd"] = [place.q.start for place in at], [place.qd.start for place in at]
    joints["anchor"], joints["frame"] = frames[:, :3], frames[:, 3:]
    joints["turn"], joints["offset"] = children[:, 3:] * [-1, -1, -1, 1], children[:, :3]
    joints["axis"], joints["centre"] = [joint.axis for joint in layout.joints], centres
    joints["slide"] = [np.array(joint.axis) * joint.shares[1] for joint in layout.joints]
    return [
        integers(start),
        integers(np.cumsum([0, *map(len, chains)]).tolist()),
        integers([joint for chain in chains for joint in chain]),
        wp.array(points, dtype=precision.vec3, device=device),
        wp.array(joints, dtype=precision.joint, device=device),
    ]


def _chain(layout: ContactPointLayout, joint: int) -> list[int]:
    chain: list[int] = []
    while joint >= 0:
        chain.append(joint)
        joint = layout.joints[joint].parent
    return chain[::-1]


class ShapeArrays:
    """Shapes as the kernel arguments `shape_start`, `shapes`, `pseudo_normals`, `heights` and `ranges`.

    `worlds` is the number of worlds with individual shapes; 0 if all shapes are shared.
    """

    def __init__(
        self, shared: Sequence[Solid], own: Sequence[Sequence[Solid]], device: str, precision: Precision
    ) -> None:
        solids = [*shared, *(solid for each in own for solid in each)]
        count = max(len(solids), 1)  # Warp needs arrays of nonzero length
        starts = np.cumsum([len(shared), *map(len, own)])
        self.worlds = len(own)
        rows: Any = np.zeros(count, precision.shape.numpy_dtype())
        self._meshes: dict[int, tuple[Any, int]] = {}
        self._normals: list[np.ndarray] = []
        self._grids: dict[int, tuple[int, int]] = {}
        self._heights: list[np.ndarray] = []
        self._ranges: list[np.ndarray] = []
        for row, solid in zip(rows, solids, strict=False):
            row["kind"], row["size"], row["ball"] = SHAPE_KINDS[solid.kind], solid.size, solid.ball()
            row["origin"], row["rotation"] = solid.pose[:3], quaternion_matrix(solid.pose[3:])
            if solid.mesh is not None:
                mesh, row["first_face"] = self._add_mesh(solid, device)
                row["mesh"] = mesh.id
            if solid.heights is not None:
                start, block = self._add_heights(solid.heights)
                row["grid"] = (start, *solid.heights.shape, block)
                row["size"][2] = solid.heights.min()

        def array(values: np.ndarray, dtype: Any) -> Any:
            return wp.array(values, dtype=dtype, device=device)

        normals = np.concatenate(self._normals) if self._normals else np.zeros((1, 7, 3))
        heights = np.concatenate(self._heights) if self._heights else np.zeros(1)
        ranges = np.concatenate(self._ranges) if self._ranges else np.zeros((1, 2))
        self.arrays = [
            array(starts.astype(np.int32), wp.int32),
            array(rows, precision.shape),
            array(normals.astype(np.float32), wp.vec3f),
            array(heights, precision.scalar),
            array(ranges, precision.vec2),
        ]

    def require_worlds(self, worlds: int) -> None:
        """Raise InputError if the shapes are for another number of worlds."""
        if self.worlds not in (0, worlds):
            raise InputError(f"the ground is for {self.worlds} worlds; valid: a ground for {worlds} worlds")

    def _add_mesh(self, solid: Solid, device: str) -> tuple[Any, int]:
        """Return the Warp mesh and its first row of normals; solids with the same triangles share both."""
        triangles = solid.mesh
        assert triangles is not None
        if id(triangles) not in self._meshes:
            points = wp.array(triangles.vertices.astype(np.float32), dtype=wp.vec3f, device=device)
            indices = wp.array(triangles.faces.astype(np.int32).ravel(), dtype=wp.int32, device=device)
            first = sum(map(len, self._normals))
            self._meshes[id(triangles)] = (wp.Mesh(points, indices), first)
            self._normals.append(pseudo_normals(triangles))
        return self._meshes[id(triangles)]

    def _add_heights(self, heights: np.ndarray) -> tuple[int, int]:
        """Return the index of the first height and of the first block of a heightfield."""
        if id(heights) not in self._grids:
            self._grids[id(heights)] = (sum(map(len, self._heights)), sum(map(len, self._ranges)))
            self._heights.append(heights.ravel())
            self._ranges.append(block_ranges(heights, int(BLOCK)))
        return self._grids[id(heights)]


class CompiledShapes(OperatorHandle):
    """The shapes of a ground as Warp arrays per device and precision; shared by grounds that differ only in pose."""

    def __init__(self, scene: Scene, shared: Sequence[Solid], own: Sequence[Sequence[Solid]]) -> None:
        """Store the shapes; arguments: see `geometry.ground.Ground`."""
        super().__init__()
        self._scene, self._shared, self._own = scene, shared, own
        self._arrays: dict[tuple[str, torch.dtype], ShapeArrays] = {}

    def arrays(self, device: str, dtype: torch.dtype) -> ShapeArrays:
        """Return the shapes as Warp arrays, created on first use.

        Raises:
            InputError: A file of the scene is missing or invalid.
        """
        key = (device, dtype)
        if key not in self._arrays:
            solids = (*solids_of_scene(self._scene), *self._shared)
            self._arrays[key] = ShapeArrays(solids, self._own, device, PRECISIONS[dtype])
        return self._arrays[key]
