# SPDX-License-Identifier: Apache-2.0
"""Contact points between two shapes, matching MuJoCo's C collision functions; on floats or traced values.

Every function takes two shapes in world axes and the margin [m], and returns the possible contacts: position, normal
from the first shape to the second, and distance of the surfaces [m]. Unused ones have the distance `FAR_AWAY`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from neurodyn.multibody.trace import absolute, maximum, minimum, safe_sqrt, select_less
from neurodyn.multibody.vectors import Matrix, Vector, array, cross, dot

FAR_AWAY = 1e3
"""Distance of surfaces that do not touch [m]."""

LEAST_LENGTH = 1e-15
"""Length below which MuJoCo treats a vector as zero [m]."""

_PARALLEL = 1e-12  # squared sine of the angle between edges below which they do not cross
_BIAS, _ALIKE, _BETTER = 1e-6, 0.99, 0.05  # crossing edges count only if they are clearly better than a face


@dataclass
class PlacedShape:
    """A shape in the world.

    Attributes:
        centre: Its centre [m].
        rotation: Its axes, in columns.
        size: Sphere: radius. Capsule and cylinder, along z: radius, half length. Box: half edges. Ellipsoid: radii [m].
        search_result: Of the search on the shape (`hull_corners`, `convex_search`); empty if there was none.
    """

    centre: Vector
    rotation: Matrix
    size: Vector
    search_result: Sequence[Any] = ()


@dataclass
class Touch:
    """A possible contact: position, normal from the first shape to the second, distance."""

    position: Vector
    normal: Vector
    distance: Any


Collider = Callable[[PlacedShape, PlacedShape, Any], list[Touch]]


def below(a: Any, b: Any) -> Any:
    """Return 1 if a < b, else 0."""
    return select_less(a, b, 1.0, 0.0)


def where(flag: Any, a: Any, b: Any) -> Any:
    """Return a where a flag is 1, b where it is 0."""
    if isinstance(a, type(array([0.0]))):
        return array([where(flag, x, y) for x, y in zip(a, b, strict=True)])
    return select_less(0.5, flag, a, b)


def _limit(x: Any, most: Any) -> Any:
    return maximum(minimum(x, most), -most)


def _spheres(first: Vector, radius: Any, second: Vector, other: Any) -> Touch:
    apart = second - first
    reach = safe_sqrt(dot(apart, apart))
    normal = apart / reach
    distance = reach - radius - other
    return Touch(first + (radius + 0.5 * distance) * normal, normal, distance)


def sphere_sphere(first: PlacedShape, second: PlacedShape, margin: Any) -> list[Touch]:
    """Return the contact of two spheres."""
    return [_spheres(first.centre, first.size[0], second.centre, second.size[0])]


def sphere_capsule(first: PlacedShape, second: PlacedShape, margin: Any) -> list[Touch]:
    """Return the contact of a sphere with a capsule."""
    axis = second.rotation[:, 2]
    along = _limit(dot(axis, first.centre - second.centre), second.size[1])
    return [_spheres(first.centre, first.size[0], second.centre + along * axis, second.size[0])]


def capsule_capsule(first: PlacedShape, second: PlacedShape, margin: Any) -> list[Touch]:
    """Return the contact of two capsules, or the two of parallel ones."""
    one, two = first.size[1] * first.rotation[:, 2], second.size[1] * second.rotation[:, 2]
    apart = first.centre - second.centre
    ma, mb, mc = dot(one, one), -dot(one, two), dot(two, two)
    u, v = -dot(one, apart), dot(two, apart)
    det = ma * mc - mb * mb
    parallel = below(absolute(det), LEAST_LENGTH)
    inverse = 1.0 / where(parallel, 1.0, det)
    x1, x2 = (mc * u - mb * v) * inverse, (ma * v - mb * u) * inverse
    held = _limit(x1, 1.0)
    x2 = where(below(1.0, absolute(x1)), (v - mb * held) / mc, x2)
    ended = _limit(x2, 1.0)
    x1 = where(below(1.0, absolute(x2)), _limit((u - mb * ended) / ma, 1.0), held)

    def touch(a: Any, b: Any) -> Touch:
        return _spheres(first.centre + a * one, first.size[0], second.centre + b * two, second.size[0])

    general = touch(x1, ended)
    pairs = [(a, _limit((v - mb * a) / mc, 1.0)) for a in (1.0, -1.0)]
    pairs += [(_limit((u - mb * b) / ma, 1.0), b) for b in (1.0, -1.0)]
    nearest, next_one = general, Touch(general.position, general.normal, FAR_AWAY)
    nearest = _choose(parallel, next_one, general)
    for ends in pairs:  # the two deepest of parallel capsules
        at_ends = touch(*ends)
        first_of_all = parallel * below(at_ends.distance, nearest.distance)
        second_of_all = parallel * (1.0 - first_of_all) * below(at_ends.distance, next_one.distance)
        next_one = _choose(first_of_all, nearest, _choose(second_of_all, at_ends, next_one))
        nearest = _choose(first_of_all, at_ends, nearest)
    return [nearest, next_one]


def _parts(touch: Touch) -> tuple[Vector, Vector, Any]:
    return touch.position, touch.normal, touch.distance


def _choose(flag: Any, one: Touch, other: Touch) -> Touch:
    position, normal, distance = (where(flag, a, b) for a, b in zip(_parts(one), _parts(other), strict=True))
    return Touch(position, normal, distance)


def sphere_box(first: PlacedShape, second: PlacedShape, margin: Any) -> list[Touch]:
    """Return the contact of a sphere with a box."""
    return [_sphere_box(second.rotation.T @ (first.centre - second.centre), first.size[0], second)]


def _sphere_box(seen: Vector, radius: Any, box: PlacedShape) -> Touch:
    """Return the contact of a sphere whose centre is given in the frame of the box."""
    nearest = array([_limit(x, h) for x, h in zip(seen, box.size, strict=True)])
    away = nearest - seen
    squared = dot(away, away)
    inside = below(squared, LEAST_LENGTH * LEAST_LENGTH)
    reach = safe_sqrt(squared)
    room = [h - absolute(x) for x, h in zip(seen, box.size, strict=True)]
    closest = minimum(minimum(room[0], room[1]), room[2])
    first = 1.0 - below(closest, room[0])
    second = (1.0 - first) * (1.0 - below(closest, room[1]))
    hot = [first, second, (1.0 - first) * (1.0 - second)]
    inwards = array([-flag * select_less(x, 0.0, -1.0, 1.0) for flag, x in zip(hot, seen, strict=True)])
    normal = where(inside, inwards, away / reach)
    distance = where(inside, -closest, reach) - radius
    position = seen + (radius + 0.5 * distance) * normal
    return Touch(box.centre + box.rotation @ position, box.rotation @ normal, distance)


def sphere_cylinder(first: PlacedShape, second: PlacedShape, margin: Any) -> list[Touch]:
    """Return the contact of a sphere with a cylinder: its curved side, a cap or a rim."""
    radius, half = second.size[0], second.size[1]
    axis, apart = second.rotation[:, 2], first.centre - second.centre
    along = dot(axis, apart)
    outward = apart - along * axis
    squared = dot(outward, outward)
    reach, high = safe_sqrt(squared), absolute(along)
    beside, under = below(high, half), below(squared, radius * radius)
    to_cap = beside * under * below(half - high, radius - reach)
    beside, under = beside * (1.0 - to_cap), under * (1.0 - beside * under * (1.0 - to_cap))
    mantle = _spheres(first.centre, first.size[0], second.centre + along * axis, radius)
    end = sign_of(along) * axis
    distance = high - half - first.size[0]
    cap = Touch(first.centre - (first.size[0] + 0.5 * distance) * end, -1.0 * end, distance)
    corner = second.centre + half * end + (radius / reach) * outward
    rim = _spheres(first.centre, first.size[0], corner, 0.0)
    return [_choose(beside, mantle, _choose(under, cap, rim))]


@dataclass
class _Nearest:
    """The point of a box that is nearest to the axis of a capsule, in the box's frame.

    Attributes:
        squared: Squared distance.
        along: Position on the axis, between -1 and 1.
        across: Position on the edge, between -1 and 1.
        corner: 1 for each axis of the box on whose upper side the nearest corner, or edge, lies; else 0.
        edge: 1 for the axis of the nearest edge.
        middle: 1 if that point is within an edge, 0 for a corner.
        face: 1 for the axis of the nearest face; all 0 for an edge or corner, or if the axis ends in the box.
        faced: 1 if an end of the axis is nearest to a face, or within the box.
    """

    squared: Any
    along: Any
    across: Any
    corner: list[Any]
    edge: list[Any]
    middle: Any
    face: list[Any]
    faced: Any

    def or_better(self, flag: Any, other: "_Nearest") -> "_Nearest":
        def chosen(mine: Any, theirs: Any) -> Any:
            if isinstance(mine, list):
                return [chosen(a, b) for a, b in zip(mine, theirs, strict=True)]
            return where(flag, theirs, mine)

        return _Nearest(*(chosen(getattr(self, name), getattr(other, name)) for name in self.__dataclass_fields__))


_NOWHERE = [0.0, 0.0, 0.0]


def _ends_on_faces(centre: Vector, half: Vector, size: Vector) -> _Nearest:
    best = _Nearest(FAR_AWAY * FAR_AWAY, 0.0, 0.0, _NOWHERE, _NOWHERE, 0.0, _NOWHERE, 0.0)
    for end in (-1.0, 1.0):
        tip = centre + end * half
        out = [below(h, absolute(x)) for x, h in zip(tip, size, strict=True)]
        off = array([x - _limit(x, h) for x, h in zip(tip, size, strict=True)])
        squared = dot(off, off)
        better = below(out[0] + out[1] + out[2], 1.5) * below(squared, best.squared)
        best = best.or_better(better, _Nearest(squared, end, 0.0, _NOWHERE, _NOWHERE, 0.0, out, 1.0))
    return best


def _nearest_on_edge(centre: Vector, half: Vector, size: Vector, k: int, sides: tuple[float, float]) -> Any:
    """Return the nearest point of an edge along axis k, and whether the edge is not parallel to the capsule."""
    signs = {(k + 1) % 3: sides[0], (k + 2) % 3: sides[1]}
    start = array([signs.get(i, 0.0) * size[i] for i in range(3)])
    apart = start - centre
    ma, mb, mc = size[k] * size[k], -size[k] * half[k], dot(half, half)
    u, v = -size[k] * apart[k], dot(half, apart)
    det = ma * mc - mb * mb
    crossing = 1.0 - below(absolute(det), LEAST_LENGTH)
    inverse = 1.0 / where(crossing, det, 1.0)
    x1, x2 = (mc * u - mb * v) * inverse, (ma * v - mb * u) * inverse
    held = _limit(x1, 1.0)
    x2 = where(below(1.0, absolute(x1)), (v - mb * held) / mc, x2)
    ended = _limit(x2, 1.0)
    beyond = below(1.0, absolute(x2))
    again = (u - mb * ended) / ma
    across = where(beyond, _limit(again, 1.0), held)
    # MuJoCo uses an end of the edge if the first or the second solution lies beyond it.
    clamped = below(1.0, absolute(x1)), beyond * below(1.0, absolute(again))
    upper = where(clamped[1], below(0.0, again), below(1.0, x1))
    off = apart - ended * half
    off[k] = off[k] + across * size[k]
    corner = [0.5 + 0.5 * signs[i] if i in signs else upper for i in range(3)]
    edge = [1.0 if i == k else 0.0 for i in range(3)]
    middle = (1.0 - clamped[0]) * (1.0 - clamped[1])
    return _Nearest(dot(off, off), ended, across, corner, edge, middle, _NOWHERE, 0.0), crossing


def _second_at_corner(near: _Nearest, unequal: list[Any], half: Vector, size: Vector) -> tuple[Any, Any]:
    """Return the position of the second contact along the axis if a corner is nearest, and whether it exists."""
    count = unequal[0] + unequal[1] + unequal[2]
    two = below(1.5, count)
    side = 1.0 - 2.0 * two
    special = [where(two, 1.0 - x, x) for x in unequal]
    room = [2.0 * h / maximum(absolute(x), LEAST_LENGTH) for h, x in zip(size, half, strict=True)]
    steep = _blend(special, [x * x for x in half])
    along_edge = minimum(1.0 - side * near.along, _blend(special, room))
    others = minimum(minimum(*(room[k] + special[k] * FAR_AWAY for k in (0, 1))), room[2] + special[2] * FAR_AWAY)
    over_face = minimum(1.0 + side * near.along, others)
    second = side * where(below(0.5 * dot(half, half), steep), along_edge, -over_face)
    return second, below(0.5, count) * below(count, 2.5)


def _second_at_edge(
    near: _Nearest, unequal: list[Any], upwards: list[Any], half: Vector, size: Vector
) -> tuple[Any, Any]:
    """Return what `_second_at_corner` does, if a point within an edge is nearest."""
    sizes = [absolute(x) for x in half]
    beside = [(1.0 - near.edge[k]) * x for k, x in enumerate(unequal)]
    one = beside[0] + beside[1] + beside[2]
    others = [_blend(near.edge, [sizes[(k + shift) % 3] for k in range(3)]) for shift in (1, 2)]
    swap = below(others[1], others[0])  # the steeper one is the axis after the edge's
    steep = [where(swap, near.edge[(k + 2) % 3], near.edge[(k + 1) % 3]) for k in range(3)]
    sign_flag = _blend(steep, unequal)
    side = 2.0 * sign_flag - 1.0
    second = 1.0 - side * near.along
    room = [h / maximum(x, LEAST_LENGTH) for h, x in zip(size, sizes, strict=True)]
    second = minimum(second, 2.0 * _blend(steep, room))
    up = _blend(near.edge, upwards)
    same = up * sign_flag + (1.0 - up) * (1.0 - sign_flag)
    second = minimum(second, _blend(near.edge, room) * (1.0 + (1.0 - 2.0 * same) * near.across))
    return side * second, below(0.5, one) * below(one, 1.5)


def _second_at_face(near: _Nearest, centre: Vector, half: Vector, size: Vector) -> tuple[Any, Any]:
    """Return what `_second_at_corner` does, if an end of the axis is nearest to a face."""
    towards, tip = -near.along, centre + near.along * half
    second: Any = 2.0
    for k in range(3):
        step = towards * select_less(half[k], 0.0, -1.0, 1.0) / maximum(absolute(half[k]), LEAST_LENGTH)
        for sign in (-1.0, 1.0):
            share = (sign * size[k] - tip[k]) * step
            better = (1.0 - near.face[k]) * below(0.0, share) * below(share, second)
            second = where(better, share, second)
    return towards * second, near.face[0] + near.face[1] + near.face[2]


def capsule_box(first: PlacedShape, second: PlacedShape, margin: Any) -> list[Touch]:
    """Return the two contacts of a capsule with a box: spheres at its nearest point and at one farther along."""
    box, size = second, second.size
    centre = box.rotation.T @ (first.centre - box.centre)
    half = first.size[1] * (box.rotation.T @ first.rotation[:, 2])
    near = _ends_on_faces(centre, half, size)
    for k in range(3):
        for sides in ((-1.0, -1.0), (1.0, -1.0), (-1.0, 1.0), (1.0, 1.0)):
            nearest, crossing = _nearest_on_edge(centre, half, size, k, sides)
            near = near.or_better(crossing * below(nearest.squared, near.squared - LEAST_LENGTH), nearest)
    upwards = [below(0.0, x) for x in half]
    unequal = [a + b - 2.0 * a * b for a, b in zip(upwards, near.corner, strict=True)]
    at_corner = _second_at_corner(near, unequal, half, size)
    at_edge = _second_at_edge(near, unequal, upwards, half, size)
    at_face = _second_at_face(near, centre, half, size)
    along, there = (
        where(near.faced, c, where(near.middle, b, a)) for a, b, c in zip(at_corner, at_edge, at_face, strict=True)
    )
    touches = [
        _sphere_box(centre + share * half, first.size[0], box) for share in (near.along, near.along + there * along)
    ]
    touches[1].distance = where(there, touches[1].distance, FAR_AWAY)
    return touches


@dataclass
class _Axes:
    """The axis along which two boxes overlap the least, or are the farthest apart.

    Attributes:
        hot: One-hot over 15 axes: three of either box, nine across edges.
        across: Unit vectors across edges.
        apart: 1 if any axis separates the boxes by more than the margin, else 0.
    """

    hot: list[Any]
    across: list[Vector]
    apart: Any


def _axes(d: Vector, first: PlacedShape, second: PlacedShape, margin: Any) -> _Axes:
    gaps, across = [], []
    for box, other in ((first, second), (second, first)):
        for i in range(3):
            axis = box.rotation[:, i]
            gaps.append(absolute(dot(axis, d)) - box.size[i] - _reach(other, axis))
    apart: Any = 0.0
    face, hot = gaps[0], [1.0, *[0.0] * 14]
    for number in range(1, 6):
        better = below(face, gaps[number])
        face, hot = maximum(face, gaps[number]), [x * (1.0 - better) for x in hot]
        hot[number] = better
    of_face, best = hot, face
    for gap in gaps:
        apart = maximum(apart, below(margin, gap))
    for i in range(3):
        for j in range(3):
            crossed = cross(first.rotation[:, i], second.rotation[:, j])
            squared = dot(crossed, crossed)
            unit = crossed / safe_sqrt(squared)
            gap = absolute(dot(unit, d)) - _reach(first, unit, i) - _reach(second, unit, j)
            skew = 1.0 - below(squared, _PARALLEL)
            apart = maximum(apart, skew * below(margin, gap))
            better = skew * below(best, gap - _BIAS * absolute(gap)) * below(face, gap)
            best, hot = where(better, gap, best), [x * (1.0 - better) for x in hot]
            hot[6 + 3 * i + j] = better
            across.append(unit)
    unit = _blend(hot[6:], across)
    of_two = [*(first.rotation[:, k] for k in range(3)), *(second.rotation[:, k] for k in range(3))]
    alike = below(_ALIKE, absolute(dot(unit, _blend(of_face[:6], of_two))))
    alike = alike * below(best, face + _BETTER * absolute(face) + LEAST_LENGTH) * sum(hot[7:], start=hot[6])
    return _Axes([where(alike, a, b) for a, b in zip(of_face, hot, strict=True)], across, apart)


def _reach(box: PlacedShape, direction: Vector, without: int = -1) -> Any:
    """Return how far a box extends along a unit vector; its axis `without` is perpendicular to that vector."""
    return sum(
        (box.size[k] * absolute(dot(box.rotation[:, k], direction)) for k in range(3) if k != without), start=0.0
    )


def _blend(hot: list[Any], values: list[Any]) -> Any:
    """Return the value whose flag is 1."""
    return sum((flag * value for flag, value in zip(hot[1:], values[1:], strict=True)), start=hot[0] * values[0])


def sign_of(x: Any) -> Any:
    """Return -1 if x < 0, else 1."""
    return select_less(x, 0.0, -1.0, 1.0)


def box_box(first: PlacedShape, second: PlacedShape, margin: Any) -> list[Touch]:
    """Return the contacts of two boxes: corners of the overlap of two faces, or where two edges cross."""
    axes = _axes(second.centre - first.centre, first, second, margin)
    edges = sum(axes.hot[7:], start=axes.hot[6])
    of_faces = _faces(axes.hot, first, second)
    of_faces[0] = _choose(edges, _edges(axes, first, second), of_faces[0])
    for touch in of_faces[1:]:
        touch.distance = where(edges, FAR_AWAY, touch.distance)
    for touch in of_faces:
        touch.distance = where(axes.apart, FAR_AWAY, touch.distance)
    return of_faces


def _edges(axes: _Axes, first: PlacedShape, second: PlacedShape) -> Touch:
    """Return the contact of two crossing edges, at the points where they are closest."""
    d = second.centre - first.centre
    across = _blend(axes.hot[6:], axes.across)
    across = sign_of(dot(across, d)) * across
    of_first = [axes.hot[6 + 3 * i] + axes.hot[7 + 3 * i] + axes.hot[8 + 3 * i] for i in range(3)]
    of_second = [axes.hot[6 + j] + axes.hot[9 + j] + axes.hot[12 + j] for j in range(3)]
    one, one_half, start = _edge(first, of_first, across)
    two, two_half, other = _edge(second, of_second, -1.0 * across)
    between = d + other - start
    slant = dot(one, two)
    room = 1.0 - slant * slant
    along_one, along_two = dot(one, between), dot(two, between)
    s = _limit((along_one - slant * along_two) / where(below(room, LEAST_LENGTH), 1.0, room), one_half)
    t = _limit(slant * s - along_two, two_half)
    s = _limit(along_one + slant * t, one_half)
    here, there = start + s * one, d + other + t * two
    return Touch(first.centre + 0.5 * (here + there), across, dot(there - here, across))


def _edge(box: PlacedShape, hot: list[Any], outward: Vector) -> tuple[Vector, Any, Vector]:
    """Return direction, half length and middle, from the box's centre, of the outermost edge along an axis."""
    direction = _blend(hot, [box.rotation[:, k] for k in range(3)])
    sides = [
        (1.0 - hot[k]) * box.size[k] * sign_of(dot(box.rotation[:, k], outward)) * box.rotation[:, k] for k in range(3)
    ]
    return direction, _blend(hot, list(box.size)), sides[0] + sides[1] + sides[2]


def _faces(hot: list[Any], first: PlacedShape, second: PlacedShape) -> list[Touch]:
    """Return the contacts of a reference face of one box with the face of the other box that faces it most.

    They are the corners of the latter, clipped by the sides of the reference, seen in the reference's axes x and y and
    its outward normal z.
    """
    swapped = hot[3] + hot[4] + hot[5]
    middle, away = where(swapped, second.centre, first.centre), where(swapped, first.centre, second.centre)
    own = [where(swapped, second.rotation[:, k], first.rotation[:, k]) for k in range(3)]
    others = [where(swapped, first.rotation[:, k], second.rotation[:, k]) for k in range(3)]
    half = where(swapped, second.size, first.size)
    other_half = where(swapped, first.size, second.size)
    facing = [hot[k] + hot[3 + k] for k in range(3)]
    x, y, z = (_blend(facing, [own[(k + shift) % 3] for k in range(3)]) for shift in (1, 2, 0))
    hx, hy, hz = (_blend(facing, [half[(k + shift) % 3] for k in range(3)]) for shift in (1, 2, 0))
    d = away - middle
    z = sign_of(dot(z, d)) * z
    steep = [absolute(dot(axis, z)) for axis in others]
    most = [1.0 - maximum(below(steep[0], steep[1]), below(steep[0], steep[2]))]
    most.append((1.0 - most[0]) * (1.0 - below(steep[1], steep[2])))
    most.append((1.0 - most[0]) * (1.0 - most[1]))
    look, u, v = (
        _blend(most, [other_half[(k + shift) % 3] * others[(k + shift) % 3] for k in range(3)]) for shift in (0, 1, 2)
    )
    centre = d - sign_of(dot(look, z)) * look

    def seen(vector: Vector, lower: Any = 0.0) -> Vector:
        return array([dot(vector, x), dot(vector, y), dot(vector, z) - lower])

    points = _clip(seen(centre, hz), seen(u), seen(v), (hx, hy))
    outward = where(swapped, -1.0 * z, z)
    return [
        Touch(middle + at[0] * x + at[1] * y + (hz + 0.5 * at[2]) * z, outward, where(there, at[2], FAR_AWAY))
        for at, there in points
    ]


def _clip(centre: Vector, u: Vector, v: Vector, half: tuple[Any, Any]) -> list[tuple[Vector, Any]]:
    """Return the corners of the part of a parallelogram above a rectangle: positions, and whether they exist."""
    corners = []
    for start, edge in (
        (centre - u - v, u),
        (centre + u - v, v),
        (centre + u + v, -1.0 * u),
        (centre - u + v, -1.0 * v),
    ):
        enter: Any = -FAR_AWAY * FAR_AWAY
        leave: Any = FAR_AWAY * FAR_AWAY
        for k in range(2):
            tiny = below(absolute(edge[k]), LEAST_LENGTH)
            inverse = 0.5 / where(tiny, LEAST_LENGTH, edge[k])
            low, high = (-half[k] - start[k]) * inverse, (half[k] - start[k]) * inverse
            enter, leave = maximum(enter, minimum(low, high)), minimum(leave, maximum(low, high))
        crosses = (1.0 - below(leave, enter)) * (1.0 - below(leave, 0.0)) * (1.0 - below(1.0, enter))
        corners.append((start + 2.0 * minimum(maximum(enter, 0.0), 1.0) * edge, crosses * below(enter, 1.0)))
        leaves = crosses * below(leave, 1.0) * below(maximum(enter, 0.0), leave)
        corners.append((start + 2.0 * minimum(maximum(leave, 0.0), 1.0) * edge, leaves))
    area = u[0] * v[1] - v[0] * u[1]
    inverse = 1.0 / where(below(absolute(area), LEAST_LENGTH), 1.0, area)
    for sx in (-1.0, 1.0):
        for sy in (-1.0, 1.0):
            px, py = sx * half[0] - centre[0], sy * half[1] - centre[1]
            a, b = (px * v[1] - py * v[0]) * inverse, (py * u[0] - px * u[1]) * inverse
            under = below(absolute(a), 1.0) * below(absolute(b), 1.0)
            corners.append((array([sx * half[0], sy * half[1], centre[2] + a * u[2] + b * v[2]]), under))
    return corners
