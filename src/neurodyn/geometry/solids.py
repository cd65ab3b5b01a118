# SPDX-License-Identifier: Apache-2.0
"""Shapes with their triangles and heights at hand: what a scene or a simulator's model is turned into."""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

import numpy as np

from neurodyn.core.description.scene import (
    Box,
    Capsule,
    Cylinder,
    Heightfield,
    Mesh,
    Plane,
    Scene,
    Shape,
    Sphere,
    Terrain,
)
from neurodyn.geometry.heights import heightfield_heights
from neurodyn.geometry.meshes import TriangleMesh, read_mesh
from neurodyn.geometry.rotation import quaternion_matrix
from neurodyn.geometry.terrain import terrain_heights

Kind = Literal["plane", "box", "sphere", "capsule", "cylinder", "mesh", "heightfield"]


@dataclass(frozen=True, eq=False)
class Solid:
    """One shape at its place.

    Attributes:
        kind: Kind of shape.
        place: Position and rotation [x y z, qx qy qz qw] in the scene, shape [7].
        size: Half edges of a box; radius and half length; edges of a cell of a heightfield along x and y [m].
        mesh: Triangles of a mesh.
        heights: Heights of a heightfield [m], shape [rows along y, columns along x].
    """

    kind: Kind
    place: np.ndarray
    size: tuple[float, float, float] = (0.0, 0.0, 0.0)
    mesh: TriangleMesh | None = None
    heights: np.ndarray | None = None

    def ball(self) -> tuple[float, float, float, float]:
        """Return centre (in the scene) and radius of a ball around the shape; radius -1 where it has no end."""
        sx, sy, _ = self.size
        if self.kind == "plane":
            return (0.0, 0.0, 0.0, -1.0)
        radii = {"sphere": sx, "capsule": sx + sy, "cylinder": float(np.hypot(sx, sy))}
        centre, radius = np.zeros(3), radii.get(self.kind, float(np.linalg.norm(self.size)))
        low = high = centre
        if self.mesh is not None:
            low, high = self.mesh.vertices.min(0), self.mesh.vertices.max(0)
        elif self.heights is not None:
            rows, columns = self.heights.shape
            half = np.array([sx * (columns - 1), sy * (rows - 1)]) / 2
            low, high = np.array([*-half, self.heights.min()]), np.array([*half, self.heights.max()])
        if self.mesh is not None or self.heights is not None:
            centre, radius = (low + high) / 2, float(np.linalg.norm(high - low)) / 2
        placed = self.place[:3] + np.array(quaternion_matrix(self.place[3:])) @ centre
        return (float(placed[0]), float(placed[1]), float(placed[2]), radius * (1 + 1e-6))


@lru_cache(maxsize=32)
def solids_of_scene(scene: Scene) -> tuple[Solid, ...]:
    """Return the shapes of a scene with their files read and their terrains made.

    Raises:
        InputError: A file is missing or bad.
    """
    return tuple(_solid(shape, Path(scene.folder)) for shape in scene.shapes)


def _solid(shape: Shape, folder: Path) -> Solid:
    rotation = np.array(shape.rotation, dtype=np.float64)
    place = np.concatenate([np.array(shape.position, dtype=np.float64), rotation / np.linalg.norm(rotation)])
    match shape:
        case Plane():
            return Solid("plane", place)
        case Box():
            return Solid("box", place, shape.half)
        case Sphere():
            return Solid("sphere", place, (shape.radius, 0.0, 0.0))
        case Capsule():
            return Solid("capsule", place, (shape.radius, shape.half_length, 0.0))
        case Cylinder():
            return Solid("cylinder", place, (shape.radius, shape.half_length, 0.0))
        case Mesh():
            return Solid("mesh", place, mesh=read_mesh(folder / shape.file, shape.scale))
        case Heightfield():
            heights = heightfield_heights(folder / shape.file)
            return Solid("heightfield", place, (shape.cell, shape.cell, 0.0), heights=heights)
        case Terrain():
            return Solid("heightfield", place, (shape.cell, shape.cell, 0.0), heights=terrain_heights(shape))
