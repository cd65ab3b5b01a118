# SPDX-License-Identifier: Apache-2.0
r"""Distance of a point from a convex shape in the frame of the shape's body, with the outward normal there.

Outside, the distance is that of the nearest point of the surface; inside, the least negative one of the faces,

$$d = \max_i\ n_i \cdot (p - v_i),$$

and a rounding radius is taken off. Both are continuous; the normal jumps where the nearest feature changes, as contact
normals do. On a face the normal is the face's own, so that it has no 0/0 where a point just touches.
"""

from collections.abc import Sequence
from typing import Any

from neurodyn.core.description.body_contacts import BodyShape
from neurodyn.multibody.trace import absolute, maximum, minimum, safe_sqrt, select_less
from neurodyn.multibody.vectors import Vector, array, dot


def distance(shape: BodyShape, point: Vector) -> tuple[Any, Vector]:
    """Return the distance of a point from a shape [m], negative inside, and the outward unit normal.

    Args:
        shape: The shape.
        point: Floats or traced values in the frame of its body [m].
    """
    seen = point - array(shape.position)
    if shape.half is not None:
        reach, normal = _of_box(shape.half, seen)
    elif shape.vertices:
        reach, normal = _of_polygon(shape.vertices, seen)
    else:
        reach = safe_sqrt(dot(seen, seen))
        normal = seen / reach
    return reach - shape.radius, normal


def _of_box(half: Sequence[float], p: Vector) -> tuple[Any, Vector]:
    beyond = [absolute(x) - h for x, h in zip(p, half, strict=True)]
    sign = [select_less(x, 0.0, -1.0, 1.0) for x in p]
    out = [maximum(x, 0.0) for x in beyond]
    away = safe_sqrt(dot(out, out))
    nearest = maximum(maximum(beyond[0], beyond[1]), beyond[2])
    # Faces that a point is beyond: with one, the normal is the face's; with more, it points from an edge or a corner.
    face = _first_of([select_less(x, nearest, 0.0, 1.0) for x in beyond])
    second = maximum(maximum(minimum(beyond[0], beyond[1]), minimum(beyond[0], beyond[2])),
                     minimum(beyond[1], beyond[2]))  # fmt: skip
    normal = array([s * select_less(0.0, second, o / away, f) for s, o, f in zip(sign, out, face, strict=True)])
    return select_less(0.0, second, away, nearest), normal


def _first_of(marks: list[Any]) -> list[Any]:
    """Return marks of which only the first 1 is left, where two are equal."""
    first, second, third = marks
    return [first, (1.0 - first) * second, (1.0 - first) * (1.0 - second) * third]


def _of_polygon(vertices: Sequence[tuple[float, float]], p: Vector) -> tuple[Any, Vector]:
    inside: Any = None
    nearest: Any = None
    face, off = (0.0, 0.0), (0.0, 0.0)
    for (ax, ay), (bx, by) in zip(vertices, [*vertices[1:], vertices[0]], strict=True):
        ex, ey = bx - ax, by - ay
        length = (ex * ex + ey * ey) ** 0.5
        nx, ny = ey / length, -ex / length
        x, y = p[0] - ax, p[1] - ay
        height = nx * x + ny * y
        along = (ex * x + ey * y) * (1.0 / (length * length))
        share = minimum(maximum(along, 0.0), 1.0)
        dx, dy = x - share * ex, y - share * ey
        squared = dx * dx + dy * dy
        reach = safe_sqrt(squared)
        # Beside the middle of an edge the direction is the edge's own.
        beside = select_less(absolute(along - 0.5), 0.5, 1.0, 0.0)
        towards = [select_less(0.5, beside, n, d / reach) for n, d in ((nx, dx), (ny, dy))]
        if inside is None:
            inside, face, nearest, off = height, (nx, ny), squared, towards
            continue
        face = [select_less(inside, height, n, old) for n, old in zip((nx, ny), face, strict=True)]
        inside = maximum(inside, height)
        off = [select_less(squared, nearest, new, old) for new, old in zip(towards, off, strict=True)]
        nearest = minimum(squared, nearest)
    reach = safe_sqrt(nearest)
    normal = [select_less(0.0, inside, o, f) for o, f in zip(off, face, strict=True)]
    return select_less(0.0, inside, reach, inside), array([*normal, 0.0])
