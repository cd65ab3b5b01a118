# SPDX-License-Identifier: Apache-2.0
"""The shapes of a scene as solids: heightfields and meshes read from files, terrains generated from seeds.

Triangle meshes are read from .obj and .stl files, and checked for being closed.
"""

from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
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
from neurodyn.core.errors import InputError, suggested_file
from neurodyn.geometry.rotation import quaternion_matrix

_STL_TRIANGLE = np.dtype([("normal", "<f4", 3), ("corners", "<f4", (3, 3)), ("attribute", "<u2")])

_SAME = 1e-6
"""Vertices within this share of the mesh's size are merged (rounded to its multiples)."""

_CONVEX_TOLERANCE = 1e-4  # of the size of the mesh
_CHUNK = 1 << 22  # distances computed at a time


def read_triangles(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Read vertices, shape [vertices, 3], and triangles, shape [faces, 3]; an InputError if the file is not valid."""
    readers = {".obj": _read_obj, ".stl": _read_stl}
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise InputError(f"{path}: meshes of kind {path.suffix!r} cannot be read; valid: {', '.join(readers)}")
    if not path.is_file():
        raise InputError(f"{path}: no such file{suggested_file(path)}; valid: a mesh, {', '.join(readers)}")
    try:
        return reader(path.read_bytes())
    except (ValueError, IndexError, OSError) as error:
        raise InputError(f"{path}: cannot be read as {path.suffix}: {error}") from None


def _read_obj(content: bytes) -> tuple[np.ndarray, np.ndarray]:
    vertices: list[list[float]] = []
    faces: list[tuple[int, int, int]] = []
    for number, line in enumerate(content.decode("utf-8", errors="replace").splitlines(), 1):
        words = line.split("#", 1)[0].split()
        if not words:
            continue
        try:
            if words[0] == "v":
                x, y, z = (float(word) for word in words[1:4])
                vertices.append([x, y, z])
            elif words[0] == "f":
                corners = [_obj_index(word, len(vertices)) for word in words[1:]]
                faces.extend((corners[0], a, b) for a, b in pairwise(corners[1:]))
        except ValueError:
            raise ValueError(f"line {number}: {line.strip()!r}") from None
    return np.array(vertices, dtype=np.float64).reshape(-1, 3), np.array(faces, dtype=np.int64).reshape(-1, 3)


def _obj_index(word: str, count: int) -> int:
    """Return a zero-based index; .obj indices start at 1, and negative ones count back from the last vertex."""
    index = int(word.split("/", 1)[0])
    return index - 1 if index > 0 else count + index


def _read_stl(content: bytes) -> tuple[np.ndarray, np.ndarray]:
    count = int.from_bytes(content[80:84], "little")
    if len(content) == 84 + count * _STL_TRIANGLE.itemsize:
        corners = np.frombuffer(content, dtype=_STL_TRIANGLE, offset=84)["corners"].astype(np.float64)
    elif content.lstrip().startswith(b"solid"):
        lines = content.decode("utf-8", errors="replace").splitlines()
        rows = [line.split()[1:4] for line in lines if line.strip().startswith("vertex")]
        corners = np.array(rows, dtype=np.float64)
    else:
        raise ValueError(f"{len(content)} bytes do not hold the {count} triangles that the header names")
    vertices = corners.reshape(-1, 3)
    return vertices, np.arange(len(vertices)).reshape(-1, 3)


@dataclass(frozen=True, eq=False)
class TriangleMesh:
    """A closed surface with outward normals."""

    vertices: np.ndarray
    """Vertices [m], shape [vertices, 3]."""
    faces: np.ndarray
    """Vertex indices of each triangle, counter-clockwise from outside, shape [faces, 3]."""


def read_mesh(path: Path, scale: float = 1.0) -> TriangleMesh:
    """Read a mesh file (.obj or .stl) that bounds a solid, and scale its coordinates.

    Raises:
        InputError: The file is missing or not a mesh, or the mesh does not bound a solid.
    """
    vertices, faces = read_triangles(path)
    return closed_mesh(vertices * scale, faces, str(path))


def closed_mesh(vertices: np.ndarray, faces: np.ndarray, where: str) -> TriangleMesh:
    """Return a checked mesh: merge equal vertices, drop triangles without area, orient normals outward.

    Arguments: see `TriangleMesh`; `where` names the mesh in error messages.

    Raises:
        InputError: The mesh has holes, non-finite numbers or inconsistently oriented faces.
    """
    vertices = np.asarray(vertices, dtype=np.float64).reshape(-1, 3)
    faces = np.asarray(faces, dtype=np.int64).reshape(-1, 3)
    if not len(faces):
        raise InputError(f"{where}: the mesh has no triangles; valid: a closed surface of triangles")
    bad = ~np.isfinite(vertices).all(1)
    if bad.any():
        first = int(np.flatnonzero(bad)[0])
        raise InputError(
            f"{where}: {int(bad.sum())} of {len(vertices)} vertices of the mesh are not finite, the first is number "
            f"{first}; valid: finite coordinates"
        )
    if faces.min() < 0 or faces.max() >= len(vertices):
        raise InputError(f"{where}: a face names vertex {int(faces.max())} of {len(vertices)}; valid: existing ones")
    grid = np.round(vertices / (_SAME * max(float(np.ptp(vertices, axis=0).max()), 1e-30)))
    _, first, inverse = np.unique(grid, axis=0, return_index=True, return_inverse=True)
    vertices, faces = vertices[first], inverse.reshape(-1)[faces]
    faces = faces[(faces[:, 0] != faces[:, 1]) & (faces[:, 1] != faces[:, 2]) & (faces[:, 2] != faces[:, 0])]
    _check_edges(vertices, faces, where)
    volume = np.einsum("ij,ij->", vertices[faces[:, 0]], np.cross(vertices[faces[:, 1]], vertices[faces[:, 2]])) / 6
    return TriangleMesh(vertices, faces if volume > 0 else faces[:, ::-1].copy())


def _check_edges(vertices: np.ndarray, faces: np.ndarray, where: str) -> None:
    """Require that triangles traverse every edge exactly once in each direction."""
    directed = faces[:, [0, 1, 1, 2, 2, 0]].reshape(-1, 2)
    undirected, index, count = np.unique(np.sort(directed, 1), axis=0, return_inverse=True, return_counts=True)

    def place(edge: int) -> str:
        a, b = (np.round(vertices[v], 4).tolist() for v in undirected[edge])
        return f"between {a} and {b}"

    single = np.flatnonzero(count == 1)
    if len(single):
        raise InputError(
            f"{where}: the mesh has a hole: {len(single)} edges belong to one triangle only, the first "
            f"{place(int(single[0]))}; valid: a closed surface, two triangles at every edge"
        )
    many = np.flatnonzero(count > 2)
    if len(many):
        raise InputError(
            f"{where}: the mesh is no surface: {len(many)} edges belong to more than two triangles, the first "
            f"{place(int(many[0]))}; valid: two triangles at every edge (split solids that touch into several meshes)"
        )
    balance = np.zeros(len(undirected), dtype=np.int64)
    np.add.at(balance, index.reshape(-1), np.where(directed[:, 0] < directed[:, 1], 1, -1))
    turned = np.flatnonzero(balance)
    if len(turned):
        raise InputError(
            f"{where}: triangles of the mesh disagree on which side is outside at {len(turned)} edges, the first "
            f"{place(int(turned[0]))}; valid: vertices of all triangles counter-clockwise as seen from outside"
        )


@lru_cache(maxsize=32)
def pseudo_normals(mesh: TriangleMesh) -> np.ndarray:
    """Return unit normals of the features of each face, shape [faces, 7, 3].

    Features are the vertices a, b, c (angle-weighted), the edges ab, bc, ca (mean of both faces) and the face
    (Baerentzen and Aanaes 2005).
    """
    corners = mesh.vertices[mesh.faces]
    normal = _unit(np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]))
    vertex = np.zeros_like(mesh.vertices)
    for k in range(3):
        one = _unit(corners[:, (k + 1) % 3] - corners[:, k])
        other = _unit(corners[:, (k + 2) % 3] - corners[:, k])
        angle = np.arccos(np.clip(np.einsum("ij,ij->i", one, other), -1, 1))
        np.add.at(vertex, mesh.faces[:, k], angle[:, None] * normal)
    directed = np.sort(mesh.faces[:, [0, 1, 1, 2, 2, 0]].reshape(-1, 2), 1)
    edges, index = np.unique(directed, axis=0, return_inverse=True)
    edge = np.zeros((len(edges), 3))
    np.add.at(edge, index.reshape(-1), np.repeat(normal, 3, axis=0))
    by_edge = _unit(edge)[index.reshape(-1)].reshape(-1, 3, 3)
    return np.concatenate([_unit(vertex)[mesh.faces], by_edge, normal[:, None]], axis=1)


def _unit(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-30)


_TILE = 4.0
"""Edge of the tiles of a mixed terrain [m]."""

_MOST_HEIGHTS = 16_000_000


def heightfield_heights(path: Path) -> np.ndarray:
    """Read heights [m], shape [rows along y, columns along x].

    Raises:
        InputError: The file is missing, or is not an array of at least 2 x 2 finite numbers.
    """
    if not path.is_file():
        raise InputError(f"{path}: no such file{suggested_file(path)}; valid: a .npy file of heights")
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
    return _STYLES[terrain.style](generator, rows, columns, terrain)


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
    ring = np.floor(_distance(rows, columns, terrain) + 0.5)
    return _sign(generator) * terrain.amplitude * _up_and_down(ring, 3) / 3  # 0 1 2 3 2 1 0 ...


def _slopes(generator: np.random.Generator, rows: int, columns: int, terrain: Terrain) -> np.ndarray:
    """Square rings around a flat centre: slopes as long as `feature`, up or down to the amplitude and back."""
    along = np.maximum(_distance(rows, columns, terrain) - 0.5, 0.0)
    return _sign(generator) * terrain.amplitude * _up_and_down(along, 1)


def _up_and_down(along: np.ndarray, most: int) -> np.ndarray:
    """Return heights that climb and descend by one a ring, to `most` and back, and end at 0 at the nearest edge."""
    edge = min(along[0].min(), along[:, 0].min())
    return np.clip(np.minimum(most - np.abs(most - along % (2 * most)), edge - along), 0.0, None)


def _flat(generator: np.random.Generator, rows: int, columns: int, terrain: Terrain) -> np.ndarray:
    return np.zeros((rows, columns))


def _distance(rows: int, columns: int, terrain: Terrain) -> np.ndarray:
    """Return distances from the middle, along x or y, whichever is greater, in features, shape [rows, columns]."""
    y, x = (np.abs(np.arange(count) - (count - 1) / 2) * terrain.cell for count in (rows, columns))
    return np.maximum(y[:, None], x[None]) / terrain.feature


def _sign(generator: np.random.Generator) -> float:
    return -1.0 if generator.random() < 0.5 else 1.0


def _mix_tiles(generator: np.random.Generator, rows: int, columns: int, terrain: Terrain) -> np.ndarray:
    """Tiles of several styles in random order; the central tile has the last one."""
    edge = max(2, round(_TILE / terrain.cell))
    across, along = -(-rows // edge), -(-columns // edge)
    styles = generator.integers(0, len(terrain.tiles), (across, along))
    styles[across // 2, along // 2] = len(terrain.tiles) - 1
    tiles = [[_STYLES[terrain.tiles[style]](generator, edge, edge, terrain) for style in row] for row in styles]
    heights = np.block(tiles)
    return heights[:rows, :columns]


_STYLES = {
    "rough": _rough, "steps": _steps, "stairs": _stairs, "slopes": _slopes, "flat": _flat, "mixed": _mix_tiles,
}  # fmt: skip


Kind = Literal["plane", "box", "sphere", "capsule", "cylinder", "mesh", "heightfield"]


@dataclass(frozen=True, eq=False)
class Solid:
    """A shape with its pose, triangles and heights."""

    kind: Kind
    pose: np.ndarray  # position and rotation [x y z, qx qy qz qw] in the scene, shape [7]
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
        placed = self.pose[:3] + np.array(quaternion_matrix(self.pose[3:])) @ centre
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


def needs_triangles(scene: Scene) -> bool:
    """Return whether a mesh of the scene is not convex, so that MuJoCo's convex hulls would fill its concavities."""
    if not any(isinstance(shape, Mesh) for shape in scene.shapes):
        return False
    meshes = [solid.mesh for solid in solids_of_scene(scene) if solid.mesh is not None]
    return any(not is_convex(mesh.vertices, mesh.faces) for mesh in meshes)


def is_convex(vertices: np.ndarray, faces: np.ndarray) -> bool:
    """Return whether no vertex lies outside the plane of any triangle, i.e. a closed mesh is its convex hull.

    Vertices [m] have shape [V, 3], triangles, counter-clockwise from outside, [F, 3].
    """
    a, b, c = (vertices[faces[:, i]].astype(float) for i in range(3))
    normals = np.cross(b - a, c - a)
    length = np.linalg.norm(normals, axis=1, keepdims=True)
    solid = length[:, 0] > 0
    normals, a = normals[solid] / length[solid], a[solid]
    tolerance = _CONVEX_TOLERANCE * float(np.ptp(vertices, axis=0).max())
    rows = max(1, _CHUNK // max(len(vertices), 1))
    for first in range(0, len(normals), rows):
        n = normals[first : first + rows]
        offset = (n * a[first : first + rows]).sum(1, keepdims=True)
        if (n @ vertices.T.astype(float) - offset).max() > tolerance:
            return False
    return True
