# SPDX-License-Identifier: Apache-2.0
"""The contact points of one collision shape."""

import numpy as np

from neurodyn.core.errors import InputError
from neurodyn.robots.sections import ContactPointSelection
from neurodyn.sim.engine import import_newton

_RIM = 8
_DIRECTIONS = 4096


def shape_points(
    kind: int, scale: np.ndarray, vertices: np.ndarray | None, selection: ContactPointSelection
) -> np.ndarray:
    """Return points in the frame of a shape and the radius of the shape around each [m], shape [points, 4].

    A sphere has its centre, a capsule the ends of its axis, a box its corners, a cylinder points on its rims, an
    ellipsoid the ends of its axes, a mesh vertices of its hull. With `spacing`, capsules, boxes and cylinders
    have more, along axes, edges and mantle.

    Args:
        kind: Newton's type of the shape.
        scale: Newton's scale of the shape [m], shape [3].
        vertices: Vertices of a mesh before scaling, shape [vertices, 3].
        selection: Spacing of points and most vertices.

    Raises:
        InputError: The kind of shape has no points.
    """
    kinds = import_newton().GeoType
    x, y, z = (float(value) for value in scale)
    spacing = selection.spacing
    if kind == int(kinds.SPHERE):
        return np.array([[0.0, 0.0, 0.0, x]])
    if kind == int(kinds.CAPSULE):
        return np.array([[0.0, 0.0, place, x] for place in _along(y, spacing, x)])
    if kind == int(kinds.BOX):
        return _sharp(_box((x, y, z), spacing))
    if kind == int(kinds.CYLINDER):
        angles = np.arange(_RIM) * 2 * np.pi / _RIM
        rim = np.stack([x * np.cos(angles), x * np.sin(angles)], -1)
        return _sharp(np.concatenate([np.insert(rim, 2, place, axis=1) for place in _along(y, spacing, x)]))
    if kind == int(kinds.ELLIPSOID):
        return _sharp(np.concatenate([np.diag([x, y, z]), -np.diag([x, y, z])]))
    if kind in (int(kinds.MESH), int(kinds.CONVEX_MESH)) and vertices is not None:
        return _sharp(far_apart(hull_vertices(vertices * (x, y, z)), selection.vertices))
    raise InputError(f"a {kinds(kind).name.lower()}; valid: sphere, capsule, box, cylinder, ellipsoid, mesh")


def _sharp(points: np.ndarray) -> np.ndarray:
    return np.insert(points, 3, 0.0, axis=1)


def _along(half: float, spacing: float | None, unit: float) -> np.ndarray:
    """Return places from -half to half, at most `spacing` units apart; the ends alone without a spacing."""
    count = 2 if spacing is None else max(2, int(np.ceil(2 * half / (spacing * unit) - 1e-9)) + 1)
    return np.linspace(-half, half, count)


def _box(half: tuple[float, float, float], spacing: float | None) -> np.ndarray:
    """Return corners and points on edges, shape [points, 3]."""
    places = [_along(h, spacing, h) for h in half]
    index = np.stack(np.meshgrid(*(np.arange(len(p)) for p in places), indexing="ij"), -1).reshape(-1, 3)
    at_end = ((index == 0) | (index == [len(p) - 1 for p in places])).sum(1)
    return np.stack([places[axis][index[at_end >= 2, axis]] for axis in range(3)], -1)


def hull_vertices(vertices: np.ndarray) -> np.ndarray:
    """Return vertices of the convex hull: those that lie furthest out in one of many directions, shape [n, 3]."""
    golden = np.pi * (3 - np.sqrt(5))
    height = 1 - (2 * np.arange(_DIRECTIONS) + 1) / _DIRECTIONS
    angle, around = golden * np.arange(_DIRECTIONS), np.sqrt(1 - height**2)
    directions = np.stack([around * np.cos(angle), around * np.sin(angle), height], -1)
    centred = vertices - vertices.mean(0)
    furthest = [np.argmax(directions[i : i + 256] @ centred.T, axis=1) for i in range(0, _DIRECTIONS, 256)]
    return vertices[np.unique(np.concatenate(furthest))]


def far_apart(points: np.ndarray, most: int) -> np.ndarray:
    """Return at most `most` points, each as far as possible from those before it, shape [n, 3]."""
    chosen = [int(np.argmax(np.linalg.norm(points - points.mean(0), axis=1)))]
    distance = np.linalg.norm(points - points[chosen[0]], axis=1)
    while len(chosen) < min(most, len(points)) and distance.max() > 1e-9:
        chosen.append(int(np.argmax(distance)))
        distance = np.minimum(distance, np.linalg.norm(points - points[chosen[-1]], axis=1))
    return points[chosen]
