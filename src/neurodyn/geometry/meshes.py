# SPDX-License-Identifier: Apache-2.0
"""Triangle meshes: reading of .obj and .stl files, check that they are closed, pseudo-normals."""

from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path

import numpy as np

from neurodyn.core.errors import InputError

_STL_TRIANGLE = np.dtype([("normal", "<f4", 3), ("corners", "<f4", (3, 3)), ("attribute", "<u2")])

_SAME = 1e-6
"""Vertices within this share of the mesh's size are merged (rounded to its multiples)."""


def read_triangles(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Read vertices, shape [vertices, 3], and triangles, shape [faces, 3]; an InputError if the file is not valid."""
    readers = {".obj": _read_obj, ".stl": _read_stl}
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise InputError(f"{path}: meshes of kind {path.suffix!r} cannot be read; valid: {', '.join(readers)}")
    if not path.is_file():
        raise InputError(f"{path}: no such file; valid: a mesh, {', '.join(readers)}")
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
    """A closed surface with outward normals.

    Attributes:
        vertices: Vertices [m], shape [vertices, 3].
        faces: Vertex indices of each triangle, counter-clockwise from outside, shape [faces, 3].
    """

    vertices: np.ndarray
    faces: np.ndarray


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
