# SPDX-License-Identifier: Apache-2.0
"""The shapes of a scene as solids: heightfields and meshes read from files, terrains generated from seeds."""

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
from neurodyn.core.errors import InputError
from neurodyn.geometry.meshes import TriangleMesh, read_mesh
from neurodyn.geometry.rotation import quaternion_matrix

_TILE = 4.0
"""Edge of the tiles of a mixed terrain [m]."""

_MOST_HEIGHTS = 16_000_000


def heightfield_heights(path: Path) -> np.ndarray:
    """Read heights [m], shape [rows along y, columns along x].

    Raises:
        InputError: The file is missing, or is not an array of at least 2 x 2 finite numbers.
    """
    if not path.is_file():
        raise InputError(f"{path}: no such file; valid: a .npy file of heights")
    try:
        heights = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise InputError(f"{path}: cannot be read as .npy: {error}") from None
    return check_heights(heights, str(path))


def check_heights(heights: object, where: str) -> np.ndarray:
    """Return heights as float64; raise InputError if they are not a grid of finite numbers."""
    if not isinstance(heights, np.ndarray) or heights.dtype.kind not in "fiu":
        raise InputError(f"{where}: holds no array of numbers; valid: heights [m], shape [rows, columns]")
    if heights.ndim != 2 or min(heights.shape) < 2:
        raise InputError(f"{where}: heights have shape {list(heights.shape)}; valid: [rows, columns], at least 2 each")
    bad = ~np.isfinite(heights)
    if bad.any():
        row, column = np.argwhere(bad)[0]
        raise InputError(
            f"{where}: {int(bad.sum())} heights are not finite, the first at row {row}, column {column}; "
            "valid: finite numbers [m]"
        )
    return heights.astype(np.float64)


def block_ranges(heights: np.ndarray, block: int) -> np.ndarray:
    """Return least and greatest height in each block of block x block cells, shape [blocks, 2], row by row."""
    rows, columns = (np.array(heights.shape) - 1 + block - 1) // block
    padded = np.pad(
        heights, ((0, rows * block + 1 - heights.shape[0]), (0, columns * block + 1 - heights.shape[1])), mode="edge"
    )
    tiles = np.lib.stride_tricks.sliding_window_view(padded, (block + 1, block + 1))[::block, ::block]
    return np.stack([tiles.min((2, 3)), tiles.max((2, 3))], -1).reshape(-1, 2)


def terrain_heights(terrain: Terrain) -> np.ndarray:
    """Return the heights of a terrain [m], shape [rows along y, columns along x], centred at its origin.

    Vertices are `cell` apart. The same declaration gives the same heights on every machine up to rounding. The height
    at the centre is zero for all styles except "rough" and "steps".

    Raises:
        InputError: The grid would have fewer than 2 x 2 or more than 16 million vertices.
    """
    columns, rows = (round(edge / terrain.cell) + 1 for edge in terrain.size)
    if min(rows, columns) < 2 or rows * columns > _MOST_HEIGHTS:
        raise InputError(
            f"terrain of {terrain.size[0]:g} x {terrain.size[1]:g} m with cells of {terrain.cell:g} m has "
            f"{rows} x {columns} heights; valid: at least 2 each and {_MOST_HEIGHTS} in all; change size or cell"
        )
    generator = np.random.default_rng([terrain.seed, 0x7E44])
    makers = {"rough": _rough, "steps": _steps, "stairs": _stairs, "mixed": _mixed}
    return makers[terrain.style](generator, rows, columns, terrain)


def _rough(generator: np.random.Generator, rows: int, columns: int, terrain: Terrain) -> np.ndarray:
    """Gaussian noise, smoothed to bumps of length `feature` and scaled to the amplitude."""
    noise = generator.standard_normal((rows, columns))
    frequency = np.fft.fftfreq(rows)[:, None] ** 2 + np.fft.rfftfreq(columns)[None] ** 2
    width = terrain.feature / terrain.cell / 4  # standard deviation of the smoothing, in cells
    smooth = np.fft.irfft2(np.fft.rfft2(noise) * np.exp(-2 * (np.pi * width) ** 2 * frequency), s=(rows, columns))
    smooth -= smooth.mean()
    return terrain.amplitude * smooth / max(float(np.abs(smooth).max()), 1e-12)


def _steps(generator: np.random.Generator, rows: int, columns: int, terrain: Terrain) -> np.ndarray:
    """Square blocks of random heights, with walls one cell wide."""
    edge = max(2, round(terrain.feature / terrain.cell))
    blocks = generator.uniform(-terrain.amplitude, terrain.amplitude, (-(-rows // edge), -(-columns // edge)))
    return np.repeat(np.repeat(blocks, edge, 0), edge, 1)[:rows, :columns]


def _stairs(generator: np.random.Generator, rows: int, columns: int, terrain: Terrain) -> np.ndarray:
    """Square rings around a flat centre: treads as deep as `feature`, three steps down or up to the amplitude."""
    y, x = (np.abs(np.arange(count) - (count - 1) / 2) * terrain.cell for count in (rows, columns))
    ring = np.floor(np.maximum(y[:, None], x[None]) / terrain.feature + 0.5)
    level = 3 - np.abs(3 - ring % 6)  # 0 1 2 3 2 1 0 ...
    direction = -1.0 if generator.random() < 0.5 else 1.0
    return direction * terrain.amplitude * level / 3


def _mixed(generator: np.random.Generator, rows: int, columns: int, terrain: Terrain) -> np.ndarray:
    """Tiles of all styles, flat ones included, in random order; the central tile is flat."""
    edge = max(2, round(_TILE / terrain.cell))
    makers = (_rough, _steps, _stairs, None)
    across, along = -(-rows // edge), -(-columns // edge)
    styles = generator.integers(0, len(makers), (across, along))
    styles[across // 2, along // 2] = len(makers) - 1
    heights = np.zeros((across * edge, along * edge))
    for i in range(across):
        for j in range(along):
            maker = makers[styles[i, j]]
            if maker is not None:
                heights[i * edge : (i + 1) * edge, j * edge : (j + 1) * edge] = maker(generator, edge, edge, terrain)
    return heights[:rows, :columns]


Kind = Literal["plane", "box", "sphere", "capsule", "cylinder", "mesh", "heightfield"]


@dataclass(frozen=True, eq=False)
class Solid:
    """A shape with its pose, triangles and heights."""

    kind: Kind
    place: np.ndarray  # position and rotation [x y z, qx qy qz qw] in the scene, shape [7]
    # Half edges of a box; radius and half length; or cell edges of a heightfield along x and y [m].
    size: tuple[float, float, float] = (0.0, 0.0, 0.0)
    mesh: TriangleMesh | None = None
    heights: np.ndarray | None = None  # of a heightfield [m], shape [rows along y, columns along x]

    def ball(self) -> tuple[float, float, float, float]:
        """Return centre (in the scene) and radius of a bounding sphere; radius -1 for a plane."""
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
    """Return the solids of a scene: files are read, terrains generated; an InputError if a file is not valid."""
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
