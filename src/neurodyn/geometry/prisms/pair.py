# SPDX-License-Identifier: Apache-2.0
"""Contact of a rounded box with the prism below a triangle of a heightfield: distance and touching features."""

from typing import Any

import warp as wp

from neurodyn.geometry.distances import nearest_on_triangle

# Warp compiles these functions and infers types that neither checker knows.
# ruff: noqa: ANN201, ANN202, UP018
# pyright: basic, reportOperatorIssue=false, reportIndexIssue=false, reportArgumentType=false, reportCallIssue=false
# pyright: reportAttributeAccessIssue=false, reportGeneralTypeIssues=false, reportReturnType=false


APART = wp.constant(0)
"""No contact."""

NEAREST = wp.constant(1)
"""A point or edge of the robot above a vertex or edge of the ground: the normal goes from one to the other."""

FLAT = wp.constant(2)
"""Faces, or edges that have passed each other: the normal is across an edge of each, or across two of one."""

UPRIGHT = wp.constant(3)
"""A point of the robot vertically above or below a point of the ground: the normal stays vertical."""

_NEAR = wp.constant(wp.float64(1e-6))  # MuJoCo's tolerance: closer shapes overlap [m]
_SHORT = wp.constant(wp.float64(1e-9))  # a cross product of unit vectors below this has no direction


@wp.struct
class Body:
    """A rounded box in the frame of the heightfield."""

    centre: wp.vec3d
    rotation: wp.mat33d  # box axes as columns
    half: wp.vec3d  # half edges; a capsule has only the third
    radius: wp.float64  # of the rounding; 0 for a box


@wp.struct
class Pair:
    """A pair of touching features in the frame of the heightfield.

    The normal of a `NEAREST` pair is core - ground without its components along `along` and `across`. The normal of a
    `FLAT` pair is along (across - along) x (across_too - along_too). The normal of an `UPRIGHT` pair is `across_too`,
    and its distance is across . (core - ground).
    """

    kind: int  # which determines the normal; `APART` without contact
    distance: wp.float64  # of the surfaces, below zero
    normal: wp.vec3d  # outward from the ground
    position: wp.vec3d  # midpoint between the surfaces
    core: wp.vec3d  # a point of the robot's feature, without rounding
    along: wp.vec3d  # an edge of the robot's feature; zero for a point
    along_too: wp.vec3d  # second edge of a face
    ground: wp.vec3d  # a point of the ground's feature
    across: wp.vec3d  # an edge of the ground's feature; zero for a vertex
    across_too: wp.vec3d  # second edge of a face


@wp.func
def column(matrix: wp.mat33d, i: int):
    """Return a column of a matrix."""
    return wp.vec3d(matrix[0, i], matrix[1, i], matrix[2, i])


@wp.func
def point_at(points: Any, index: int):
    """Return a row of a matrix of points."""
    return wp.vec3d(points[index, 0], points[index, 1], points[index, 2])


@wp.func
def side_of(edge: int, a: wp.vec3d, b: wp.vec3d, c: wp.vec3d):
    """Return the two vertices of an edge of a triangle."""
    if edge == 0:
        return a, b
    if edge == 1:
        return b, c
    return c, a


@wp.func
def upward_normal(a: wp.vec3d, b: wp.vec3d, c: wp.vec3d):
    """Return the upward unit normal of a triangle."""
    normal = wp.normalize(wp.cross(b - a, c - a))
    if normal[2] < wp.float64(0.0):
        return -normal
    return normal


@wp.func
def reach_along(body: Body, normal: wp.vec3d):
    """Return the extent of a box without its rounding from its centre along a direction."""
    seen = wp.transpose(body.rotation) @ normal
    return wp.abs(seen[0]) * body.half[0] + wp.abs(seen[1]) * body.half[1] + wp.abs(seen[2]) * body.half[2]


@wp.func
def flat_pair(pair: Pair, along: wp.vec3d, along_too: wp.vec3d, across: wp.vec3d, across_too: wp.vec3d):
    """Return a flat pair with these edges, ordered such that they give its normal."""
    pair.kind = FLAT
    if wp.dot(wp.cross(across - along, across_too - along_too), pair.normal) < wp.float64(0.0):
        pair.along = along_too
        pair.along_too = along
        pair.across = across_too
        pair.across_too = across
    else:
        pair.along = along
        pair.along_too = along_too
        pair.across = across
        pair.across_too = across_too
    return pair


@wp.func
def in_the_middle(pair: Pair, radius: wp.float64):
    """Apply the rounding radius to a flat pair of cores and set the position of the contact."""
    zero = wp.float64(0.0)
    between = pair.core - pair.ground
    one = pair.across - pair.along
    other = pair.across_too - pair.along_too
    tangent = between - wp.dot(pair.normal, between) * pair.normal
    mixed = wp.dot(one, other)
    whole = wp.dot(one, one) * wp.dot(other, other) - mixed * mixed
    first = zero
    second = zero
    if whole > zero:
        first = (wp.dot(tangent, one) * wp.dot(other, other) - wp.dot(tangent, other) * mixed) / whole
        second = (wp.dot(tangent, other) * wp.dot(one, one) - wp.dot(tangent, one) * mixed) / whole
    core = pair.core + first * pair.along + second * pair.along_too
    pair.position = core - wp.float64(0.5) * (pair.distance + radius) * pair.normal
    pair.distance -= radius
    return pair


@wp.func
def straight_up(core: wp.vec3d, radius: wp.float64, a: wp.vec3d, b: wp.vec3d, c: wp.vec3d):
    """Return MuJoCo's contact if a wall of the prism is nearest: vertical, between a point and the top.

    The top is the triangle's plane if the point is above or below the triangle, otherwise the height of a vertex.
    A box point above the top is pushed down.
    """
    zero = wp.float64(0.0)
    one = wp.float64(1.0)
    whole = wp.cross(b - a, c - a)[2]
    first = wp.cross(b - core, c - core)[2] / whole
    second = wp.cross(c - core, a - core)[2] / whole
    third = one - first - second
    top = c[2]
    slope = wp.vec3d(zero, zero, one)
    if first > zero and second > zero and third > zero:
        top = first * a[2] + second * b[2] + third * c[2]
        up = upward_normal(a, b, c)
        slope = up / up[2]
    elif first > zero:
        top = a[2]
    elif second > zero:
        top = b[2]
    pair = Pair()
    pair.kind = UPRIGHT
    pair.core = core
    pair.ground = wp.vec3d(core[0], core[1], top)
    pair.normal = wp.vec3d(zero, zero, one)
    pair.across = slope
    if core[2] - radius >= top:
        if radius > zero:
            return Pair()
        pair.normal = -pair.normal
        pair.across = -pair.across
    pair.across_too = pair.normal
    gap = wp.dot(pair.normal, core - pair.ground)
    pair.distance = gap - radius
    pair.position = core - wp.float64(0.5) * (gap + radius) * pair.normal
    return pair


@wp.func
def rounded_on_prism(body: Body, a: wp.vec3d, b: wp.vec3d, c: wp.vec3d, up: wp.vec3d):
    """Return the contact of a sphere or capsule with the prism below a triangle with an upward normal."""
    above = _above(body, a, b, c, up)
    if above.kind != APART:
        if above.distance < wp.float64(0.0):
            return above
        return Pair()
    parting = _parting(body, a, b, c, up)
    if parting.distance >= wp.float64(0.0):
        return Pair()
    if parting.distance > -body.radius:
        axis = column(body.rotation, 2)
        end = body.centre + wp.sign(wp.dot(axis, body.centre)) * body.half[2] * axis
        return straight_up(end, body.radius, a, b, c)
    return parting


@wp.func
def _above(body: Body, a: wp.vec3d, b: wp.vec3d, c: wp.vec3d, up: wp.vec3d):
    """Return the nearest features of a segment and a triangle below it; `APART` if it is not above."""
    zero = wp.float64(0.0)
    one = wp.float64(1.0)
    none = wp.vec3d()
    axis = column(body.rotation, 2)
    length = wp.float64(2.0) * body.half[2]
    first = body.centre - body.half[2] * axis
    best = wp.float64(1e30)
    face = bool(False)
    pair = Pair()
    for end in range(2):
        if end == 0 or length > zero:
            core = first + wp.float64(end) * length * axis
            nearest, feature = nearest_on_triangle(core, a, b, c)
            gap = wp.length(core - nearest)
            if gap < best:
                best = gap
                pair.core = core
                pair.along = none
                pair.ground = nearest
                pair.across = none
                face = feature == 6
                if feature > 2 and feature < 6:
                    start, stop = side_of(feature - 3, a, b, c)
                    pair.across = wp.normalize(stop - start)
    if length > zero:
        for edge in range(3):
            start, stop = side_of(edge, a, b, c)
            side = stop - start
            size = wp.dot(side, side)
            between = first - start
            lean = wp.dot(axis, side)
            ahead = wp.dot(axis, between)
            beside = wp.dot(side, between)
            still = size - lean * lean
            s = zero
            if still > _SHORT * size:
                s = wp.clamp((lean * beside - ahead * size) / still, zero, length)
            t = (lean * s + beside) / size
            across = side / wp.sqrt(size)
            if t <= zero:
                t = zero
                s = wp.clamp(-ahead, zero, length)
                across = none
            elif t >= one:
                t = one
                s = wp.clamp(lean - ahead, zero, length)
                across = none
            if s > zero and s < length:
                core = first + s * axis
                nearest = start + t * side
                gap = wp.length(core - nearest)
                if gap < best:
                    best = gap
                    pair.core = core
                    pair.along = axis
                    pair.ground = nearest
                    pair.across = across
                    face = bool(False)
    if best <= _NEAR:
        return Pair()
    pair.normal = (pair.core - pair.ground) / best
    if pair.normal[2] <= zero:
        return Pair()
    pair.kind = NEAREST
    pair.distance = best - body.radius
    pair.position = pair.ground + wp.float64(0.5) * pair.distance * pair.normal
    if face:
        return flat_pair(pair, none, none, b - a, c - a)
    return pair


@wp.func
def _separate(
    body: Body, best: Pair, normal: wp.vec3d, a: wp.vec3d, b: wp.vec3d, c: wp.vec3d, along: wp.vec3d,
    across: wp.vec3d, across_too: wp.vec3d,
):  # fmt: skip
    """Return the pair along a direction if it separates the cores more than the best so far; without rounding."""
    vertex = a
    if wp.dot(normal, b - vertex) > wp.float64(0.0):
        vertex = b
    if wp.dot(normal, c - vertex) > wp.float64(0.0):
        vertex = c
    distance = wp.dot(normal, body.centre - vertex) - reach_along(body, normal)
    if normal[2] < wp.float64(0.0) or distance <= best.distance:
        return best
    axis = column(body.rotation, 2)
    pair = Pair()
    pair.distance = distance
    pair.normal = normal
    pair.core = body.centre - wp.sign(wp.dot(axis, normal)) * body.half[2] * axis
    pair.ground = vertex
    return flat_pair(pair, wp.vec3d(), along, across, across_too)


@wp.func
def _parting(body: Body, a: wp.vec3d, b: wp.vec3d, c: wp.vec3d, up: wp.vec3d):
    """Return the features along which a segment and a prism separate most; both directions of a wall's edge."""
    zero = wp.float64(0.0)
    down = wp.vec3d(zero, zero, wp.float64(-1.0))
    none = wp.vec3d()
    axis = column(body.rotation, 2)
    best = Pair()
    best.distance = wp.float64(-1e30)
    best = _separate(body, best, up, a, b, c, none, b - a, c - a)
    middle = (a + b + c) / wp.float64(3.0)
    for edge in range(3):
        start, stop = side_of(edge, a, b, c)
        side = wp.normalize(stop - start)
        wall = wp.normalize(wp.cross(side, down))
        if wp.dot(wall, start - middle) < zero:
            wall = -wall
        best = _separate(body, best, wall, a, b, c, none, side, down)
        normal = wp.cross(axis, side)
        if body.half[2] > zero and wp.length(normal) > _SHORT:
            normal = wp.normalize(normal)
            if normal[2] < zero:
                normal = -normal
            best = _separate(body, best, normal, a, b, c, axis, side, none)
    normal = wp.cross(axis, down)
    if body.half[2] > zero and wp.length(normal) > _SHORT:
        normal = wp.normalize(normal)
        best = _separate(body, best, normal, a, b, c, axis, down, none)
        best = _separate(body, best, -normal, a, b, c, axis, down, none)
    return in_the_middle(best, body.radius)
