# SPDX-License-Identifier: Apache-2.0
"""Static shapes around a robot, as plain data.

A scene is shared by many worlds, each of which places it at its own pose: a tilted plane is a plane at a tilted pose,
another patch of terrain is the shifted terrain. Positions [m] and rotations (unit quaternions, scalar last, shape to
scene) of shapes are in the frame of the scene.
"""

import math
from typing import Annotated, Literal

from msgspec import Meta

from neurodyn.core.config import Config

Vector3 = tuple[float, float, float]
Quaternion = tuple[float, float, float, float]
Pose = tuple[float, float, float, float, float, float, float]
"""Position [m] and rotation (quaternion, scalar last)."""

Positive = Annotated[float, Meta(gt=0)]

IDENTITY: Pose = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0)


class _Placed(Config, frozen=True, kw_only=True):
    """A shape placed in the scene."""

    position: Vector3 = (0.0, 0.0, 0.0)
    """Origin of the shape [m]."""
    rotation: Quaternion = (0.0, 0.0, 0.0, 1.0)
    """Rotation from shape to scene (unit quaternion, scalar last)."""

    def __post_init__(self) -> None:
        norm = math.sqrt(sum(x * x for x in self.rotation))
        if not abs(norm - 1.0) < 1e-3:
            raise ValueError(f"rotation {list(self.rotation)} has norm {norm:g}; valid: a unit quaternion [x, y, z, w]")
        if not all(math.isfinite(x) for x in self.position):
            raise ValueError(f"position {list(self.position)} is not finite")


class Plane(_Placed, frozen=True, kw_only=True, tag="plane", tag_field="kind"):
    """The half space z < 0 of the shape's frame."""


class Box(_Placed, frozen=True, kw_only=True, tag="box", tag_field="kind"):
    """A box with half extents `half` along x, y, z [m]."""

    half: tuple[Positive, Positive, Positive]


class Sphere(_Placed, frozen=True, kw_only=True, tag="sphere", tag_field="kind"):
    """A sphere."""

    radius: Positive
    """Radius [m]."""


class Capsule(_Placed, frozen=True, kw_only=True, tag="capsule", tag_field="kind"):
    """A capsule along z: all points within `radius` [m] of a segment of +-half_length [m]."""

    radius: Positive
    half_length: Positive


class Cylinder(_Placed, frozen=True, kw_only=True, tag="cylinder", tag_field="kind"):
    """A cylinder along z with a `radius` [m], from -half_length to +half_length [m]."""

    radius: Positive
    half_length: Positive


class Mesh(_Placed, frozen=True, kw_only=True, tag="mesh", tag_field="kind"):
    """A closed triangle mesh with outward normals."""

    file: str
    """Mesh file (.obj, .stl, ...), relative to the declaration that names it."""
    scale: Positive = 1.0
    """Factor on the coordinates in the file."""


class Heightfield(_Placed, frozen=True, kw_only=True, tag="heightfield", tag_field="kind"):
    """Heights over a regular grid in the shape's x and y, centred at its origin; solid below."""

    file: str
    """Heights [m] as .npy, shape [rows along y, columns along x], relative to the declaration that names it."""
    cell: Positive
    """Edge of a grid cell [m]."""


class Terrain(_Placed, frozen=True, kw_only=True, tag="terrain", tag_field="kind"):
    """A heightfield generated from a seed."""

    style: Literal["rough", "steps", "stairs", "slopes", "mixed"]
    """"rough" (smooth noise), "steps" (square blocks of random height), "stairs" (a pyramid), "slopes" (one with smooth
    sides), or "mixed" (`tiles`)."""
    tiles: tuple[Literal["rough", "steps", "stairs", "slopes", "flat"], ...] = ("rough", "steps", "stairs", "flat")
    """Styles of mixed terrain, in random order; the last one is that of the middle."""
    seed: int = 0
    """Seed of the heights."""
    size: tuple[Positive, Positive] = (20.0, 20.0)
    """Edges along x and y [m]."""
    cell: Positive = 0.05
    """Edge of a grid cell [m]."""
    amplitude: Positive = 0.1
    """Largest height above and depth below zero [m]."""
    feature: Positive = 0.5
    """Length of bumps and slopes, depth of treads, or edge of blocks [m]."""


Shape = Plane | Box | Sphere | Capsule | Cylinder | Mesh | Heightfield | Terrain


class Scene(Config, frozen=True, kw_only=True):
    """Static shapes."""

    shapes: tuple[Shape, ...] = ()
    """The shapes; empty for free space."""
    folder: str = ""
    """Folder of the declaration, which files are relative to; filled in when it is read."""
