# SPDX-License-Identifier: Apache-2.0
# Warp compiles these functions, with types that it infers and that neither checker knows.
# ruff: noqa: ANN201, ANN202, UP018
# pyright: basic, reportOperatorIssue=false, reportIndexIssue=false, reportArgumentType=false, reportCallIssue=false
# pyright: reportAttributeAccessIssue=false, reportGeneralTypeIssues=false, reportReturnType=false
"""A sphere or capsule against the prism below a triangle: how far apart they are, and between which features.

Where its axis stays above the triangle, the nearest points of the two say it. Where it is inside of the prism, the
direction in which the two part soonest does, which is one of few (the separating-axis theorem): that of a face of the
prism, or across the axis and an edge of the prism. Beside a wall of the prism contacts are vertical (`straight_up`).
"""

import warp as wp

from neurodyn.geometry.prisms.pair import (
    APART,
    NEAREST,
    Body,
    Pair,
    column,
    flat_pair,
    in_the_middle,
    reach_along,
    side_of,
    straight_up,
)
from neurodyn.geometry.surfaces import nearest_on_triangle

_NEAR = wp.constant(wp.float64(1e-6))  # MuJoCo's tolerance: what is nearer overlaps [m]
_SHORT = wp.constant(wp.float64(1e-9))  # a cross product of unit vectors that has no direction


@wp.func
def rounded_on_prism(body: Body, a: wp.vec3d, b: wp.vec3d, c: wp.vec3d, up: wp.vec3d):
    """Return how a sphere or capsule touches the prism below a triangle with an upward normal."""
    above = _above(body, a, b, c, up)
    if above.kind != APART:
        if above.distance < wp.float64(0.0):
            return above
        return Pair()
    parting = _parting(body, a, b, c, up)
    if parting.distance >= wp.float64(0.0):
        return Pair()
    if parting.distance > -body.radius:
        axis = column(body.turn, 2)
        end = body.centre + wp.sign(wp.dot(axis, body.centre)) * body.half[2] * axis
        return straight_up(end, body.radius, a, b, c)
    return parting


@wp.func
def _above(body: Body, a: wp.vec3d, b: wp.vec3d, c: wp.vec3d, up: wp.vec3d):
    """Return the nearest features of a segment and a triangle that it is above of; else none, `APART`."""
    zero = wp.float64(0.0)
    one = wp.float64(1.0)
    none = wp.vec3d()
    axis = column(body.turn, 2)
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
    pair.place = pair.ground + wp.float64(0.5) * pair.distance * pair.normal
    if face:
        return flat_pair(pair, none, none, b - a, c - a)
    return pair


@wp.func
def _parted(
    body: Body, best: Pair, normal: wp.vec3d, a: wp.vec3d, b: wp.vec3d, c: wp.vec3d, along: wp.vec3d,
    across: wp.vec3d, across_too: wp.vec3d,
):  # fmt: skip
    """Return the pair along a direction where it parts sooner than the best so far, without its rounding."""
    vertex = a
    if wp.dot(normal, b - vertex) > wp.float64(0.0):
        vertex = b
    if wp.dot(normal, c - vertex) > wp.float64(0.0):
        vertex = c
    distance = wp.dot(normal, body.centre - vertex) - reach_along(body, normal)
    if normal[2] < wp.float64(0.0) or distance <= best.distance:
        return best
    axis = column(body.turn, 2)
    pair = Pair()
    pair.distance = distance
    pair.normal = normal
    pair.core = body.centre - wp.sign(wp.dot(axis, normal)) * body.half[2] * axis
    pair.ground = vertex
    return flat_pair(pair, wp.vec3d(), along, across, across_too)


@wp.func
def _parting(body: Body, a: wp.vec3d, b: wp.vec3d, c: wp.vec3d, up: wp.vec3d):
    """Return the features across which a segment and a prism part soonest; both directions of a wall's edge."""
    zero = wp.float64(0.0)
    down = wp.vec3d(zero, zero, wp.float64(-1.0))
    none = wp.vec3d()
    axis = column(body.turn, 2)
    best = Pair()
    best.distance = wp.float64(-1e30)
    best = _parted(body, best, up, a, b, c, none, b - a, c - a)
    middle = (a + b + c) / wp.float64(3.0)
    for edge in range(3):
        start, stop = side_of(edge, a, b, c)
        side = wp.normalize(stop - start)
        wall = wp.normalize(wp.cross(side, down))
        if wp.dot(wall, start - middle) < zero:
            wall = -wall
        best = _parted(body, best, wall, a, b, c, none, side, down)
        normal = wp.cross(axis, side)
        if body.half[2] > zero and wp.length(normal) > _SHORT:
            normal = wp.normalize(normal)
            if normal[2] < zero:
                normal = -normal
            best = _parted(body, best, normal, a, b, c, axis, side, none)
    normal = wp.cross(axis, down)
    if body.half[2] > zero and wp.length(normal) > _SHORT:
        normal = wp.normalize(normal)
        best = _parted(body, best, normal, a, b, c, axis, down, none)
        best = _parted(body, best, -normal, a, b, c, axis, down, none)
    return in_the_middle(best, body.radius)
