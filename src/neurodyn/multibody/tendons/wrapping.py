# SPDX-License-Identifier: Apache-2.0
"""The path of a tendon around a sphere or a cylinder, in a traced step, as in MuJoCo.

In the plane of the arc, tangents from both points touch a circle around the origin. Of the two paths around it the
tendon takes the shorter one, or the one nearer to a side point. It goes straight if the line between the points does
not cross the circle and, with a side point, passes on that side.
"""

import math
from dataclasses import dataclass
from typing import Any

from neurodyn.multibody.trace import absolute, arctan2, maximum, minimum, safe_sqrt, select_less
from neurodyn.multibody.vectors import Matrix, Vector, array, cross, dot, normalise

_TINY = 1e-15  # MuJoCo's mjMINVAL
_CROSSED = -1e4  # score of a path whose tangents cross

Point = tuple[Any, Any]
"""A point of the plane."""


@dataclass
class WrapPath:
    """A tendon's path around an obstacle.

    Attributes:
        wraps: 1 where it touches the obstacle, 0 where it goes straight.
        first: Point where it reaches the obstacle, relative to its centre.
        last: Point where it leaves the obstacle.
        length: Length of the arc between these points [m].
    """

    wraps: Any
    first: Vector
    last: Vector
    length: Any


def wrap_path(start: Vector, end: Vector, radius: Any, side: Vector | None, frame: Matrix | None) -> WrapPath:
    """Return the path from one point to another, both relative to the centre of a sphere or cylinder.

    Args:
        start: The first point [m].
        end: The last point [m].
        radius: Radius of the obstacle [m].
        side: A point on the side on which the tendon should pass; None for the shorter path [m].
        frame: Axes of a cylinder in its columns, its own axis last; None for a sphere.
    """
    if frame is None:
        first = normalise(start)
        second = cross(normalise(cross(start, end)), first)
    else:
        first, second = frame.T[0], frame.T[1]
    ends = [(dot(x, first), dot(x, second)) for x in (start, end)]
    beside = None
    if side is not None:
        x, y = normalise([dot(side, first), dot(side, second)])
        beside = radius * x, radius * y
    wraps, touch, leave, length = _around_circle(ends[0], ends[1], radius, beside)
    touching = [x * first + y * second for x, y in (touch, leave)]
    if frame is not None:
        third = frame.T[2]
        heights = dot(start, third), dot(end, third)
        straight = [_distance(a, b) for a, b in ((ends[0], touch), (ends[1], leave))]
        rise = (heights[1] - heights[0]) / (straight[0] + length + straight[1])
        touching = [
            touching[0] + (heights[0] + rise * straight[0]) * third,
            touching[1] + (heights[0] + rise * (straight[0] + length)) * third,
        ]
        length = length * safe_sqrt(1.0 + rise * rise)
    return WrapPath(wraps, array(touching[0]), array(touching[1]), length)


def _around_circle(start: Point, end: Point, radius: Any, side: Point | None) -> tuple[Any, Point, Point, Any]:
    """Return whether the path touches a circle, where it reaches and leaves it, and the length of the arc."""
    square = radius * radius
    squares = [x * x + y * y for x, y in (start, end)]
    tangents = [safe_sqrt(distance_squared - square) for distance_squared in squares]
    paths = [_tangent_points(start, end, radius, sign, squares, tangents) for sign in (1.0, -1.0)]
    crossed = [_cross_each_other(start, path[0], end, path[1]) for path in paths]
    goodness = []
    for (touch, leave), bad in zip(paths, crossed, strict=True):
        if side is None:
            good = -((touch[0] - leave[0]) * (touch[0] - leave[0]) + (touch[1] - leave[1]) * (touch[1] - leave[1]))
        else:
            middle = normalise([touch[0] + leave[0], touch[1] + leave[1]])
            good = middle[0] * side[0] + middle[1] * side[1]
        goodness.append(select_less(0.5, bad, _CROSSED, good))

    def chosen(one: Any, other: Any) -> Any:
        return select_less(goodness[1], goodness[0], one, other)

    (touch, leave), (touch_too, leave_too) = paths
    first = chosen(touch[0], touch_too[0]), chosen(touch[1], touch_too[1])
    last = chosen(leave[0], leave_too[0]), chosen(leave[1], leave_too[1])
    arcs = [_arc(*path, sign) for path, sign in zip(paths, (1.0, -1.0), strict=True)]
    wraps = 1.0 - chosen(*crossed)
    wraps = wraps * select_less(squares[0], square, 0.0, 1.0) * select_less(squares[1], square, 0.0, 1.0)
    return wraps * _meets(start, end, square, side), first, last, radius * chosen(*arcs)


def _tangent_points(
    start: Point, end: Point, radius: Any, sign: float, squares: list[Any], tangents: list[Any]
) -> tuple[Point, Point]:
    """Return where tangents from both points touch the circle, for one of the two paths around it."""
    touching = []
    for (x, y), square, tangent, direction in zip((start, end), squares, tangents, (sign, -sign), strict=True):
        inverse = 1.0 / maximum(square, _TINY)
        along, across = radius * radius * inverse, direction * radius * tangent * inverse
        touching.append((along * x + across * y, along * y - across * x))
    return touching[0], touching[1]


def _meets(start: Point, end: Point, square: Any, side: Point | None) -> Any:
    """Return 1 where the line between two points crosses the circle, or passes it on the other side; else 0."""
    x, y = end[0] - start[0], end[1] - start[1]
    square_length = x * x + y * y
    share = minimum(maximum(-(x * start[0] + y * start[1]) / maximum(square_length, _TINY), 0.0), 1.0)
    nearest = share * x + start[0], share * y + start[1]
    outside = select_less(square, nearest[0] * nearest[0] + nearest[1] * nearest[1], 1.0, 0.0)
    if side is not None:
        outside = outside * select_less(side[0] * nearest[0] + side[1] * nearest[1], 0.0, 0.0, 1.0)
    return (1.0 - outside) * select_less(square_length, _TINY, 0.0, 1.0)


def _cross_each_other(a: Point, b: Point, c: Point, d: Point) -> Any:
    """Return 1 where the segments a b and c d cross, else 0."""
    det = (d[1] - c[1]) * (b[0] - a[0]) - (d[0] - c[0]) * (b[1] - a[1])
    parallel = select_less(absolute(det), _TINY, 1.0, 0.0)
    inverse = 1.0 / select_less(0.5, parallel, 1.0, det)
    one = ((d[0] - c[0]) * (a[1] - c[1]) - (d[1] - c[1]) * (a[0] - c[0])) * inverse
    other = ((b[0] - a[0]) * (a[1] - c[1]) - (b[1] - a[1]) * (a[0] - c[0])) * inverse
    crosses = 1.0 - parallel
    for share in (one, other):
        crosses = crosses * select_less(share, 0.0, 0.0, 1.0) * select_less(1.0, share, 0.0, 1.0)
    return crosses


def _arc(touch: Point, leave: Point, sign: float) -> Any:
    """Return the angle between two points of the circle along one of the two paths around it."""
    sine = touch[0] * leave[1] - touch[1] * leave[0]
    angle = arctan2(absolute(sine), touch[0] * leave[0] + touch[1] * leave[1])
    return select_less(0.0, sign * sine, 2.0 * math.pi - angle, angle)


def _distance(a: Point, b: Point) -> Any:
    x, y = a[0] - b[0], a[1] - b[1]
    return safe_sqrt(x * x + y * y)
