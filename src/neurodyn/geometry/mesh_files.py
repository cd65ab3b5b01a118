# SPDX-License-Identifier: Apache-2.0
"""Triangles of a mesh file: Wavefront .obj and .stl (binary or text)."""

from itertools import pairwise
from pathlib import Path

import numpy as np

from neurodyn.core.errors import InputError

_STL_TRIANGLE = np.dtype([("normal", "<f4", 3), ("corners", "<f4", (3, 3)), ("attribute", "<u2")])


def read_triangles(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Read vertices, shape [vertices, 3], and triangles, shape [faces, 3].

    Raises:
        InputError: The file is missing, of another kind, or damaged.
    """
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
    """Indices begin at 1; negative ones count back from the last vertex."""
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
