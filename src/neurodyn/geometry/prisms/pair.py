# SPDX-License-Identifier: Apache-2.0
# Warp compiles these functions, with types that it infers and that neither checker knows.
# ruff: noqa: ANN201
# pyright: basic, reportOperatorIssue=false, reportIndexIssue=false, reportArgumentType=false, reportCallIssue=false
# pyright: reportAttributeAccessIssue=false, reportGeneralTypeIssues=false, reportReturnType=false
"""What touches: a rounded box of the robot and the prism below a triangle of a heightfield, and features of both.

A sphere is a point with a radius, a capsule a segment with one, a box has none: all are a box with half edges, some of
them zero, and everything within a radius of it.
"""

import warp as wp

APART = wp.constant(0)
"""No contact."""

NEAREST = wp.constant(1)
"""A point or edge of the robot above a vertex or edge of the ground: the normal goes from one to the other."""

FLAT = wp.constant(2)
"""Faces, or edges that have passed each other: the normal is across an edge of each, or across two of one."""

UPRIGHT = wp.constant(3)
"""A point of the robot vertically above or below a point of the ground: the normal stays vertical."""


@wp.struct
class Body:
    """A rounded box, in the frame of the heightfield.

    Attributes:
        centre: Its centre.
        turn: Its axes, in columns.
        half: Half edges; a capsule has its third one alone.
        radius: What it is rounded by; 0 of a box.
    """

    centre: wp.vec3d
    turn: wp.mat33d
    half: wp.vec3d
    radius: wp.float64


@wp.struct
class Pair:
    """Features that touch, in the frame of the heightfield.

    Where they are `NEAREST`, the normal is what is left of core - ground across `along` and `across`; where they are
    `FLAT`, it is along (across - along) x (across_too - along_too); where they are `UPRIGHT`, it is `across_too`, and
    their distance across . (core - ground).

    Attributes:
        kind: How the normal follows from them; `APART` where nothing touches.
        distance: Signed distance of the surfaces, below zero.
        normal: Outward normal of the ground.
        place: Middle between the surfaces.
        core: A point of the robot's feature, below its rounding.
        along: An edge of the robot's feature; zero of a point.
        along_too: Another one, of a face.
        ground: A point of the ground's feature.
        across: An edge of the ground's feature; zero of a vertex.
        across_too: Another one, of a face.
    """

    kind: int
    distance: wp.float64
    normal: wp.vec3d
    place: wp.vec3d
    core: wp.vec3d
    along: wp.vec3d
    along_too: wp.vec3d
    ground: wp.vec3d
    across: wp.vec3d
    across_too: wp.vec3d


@wp.func
def column(turn: wp.mat33d, i: int):
    """Return a column of a matrix."""
    return wp.vec3d(turn[0, i], turn[1, i], turn[2, i])


@wp.func
def side_of(edge: int, a: wp.vec3d, b: wp.vec3d, c: wp.vec3d):
    """Return where an edge of a triangle begins, and where it ends."""
    if edge == 0:
        return a, b
    if edge == 1:
        return b, c
    return c, a


@wp.func
def upward_normal(a: wp.vec3d, b: wp.vec3d, c: wp.vec3d):
    """Return the unit normal of a triangle that points up."""
    normal = wp.normalize(wp.cross(b - a, c - a))
    if normal[2] < wp.float64(0.0):
        return -normal
    return normal


@wp.func
def reach_along(body: Body, normal: wp.vec3d):
    """Return how far a box without its rounding reaches from its centre along a direction."""
    seen = wp.transpose(body.turn) @ normal
    return wp.abs(seen[0]) * body.half[0] + wp.abs(seen[1]) * body.half[1] + wp.abs(seen[2]) * body.half[2]


@wp.func
def flat_pair(pair: Pair, along: wp.vec3d, along_too: wp.vec3d, across: wp.vec3d, across_too: wp.vec3d):
    """Return a pair with these edges, in the order that gives its normal."""
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
    """Return a flat pair of cores with the rounding taken into account, and the place of the contact."""
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
    pair.place = core - wp.float64(0.5) * (pair.distance + radius) * pair.normal
    pair.distance -= radius
    return pair


@wp.func
def straight_up(core: wp.vec3d, radius: wp.float64, a: wp.vec3d, b: wp.vec3d, c: wp.vec3d):
    """Return what MuJoCo makes of a wall of the prism that is nearest: the vertical between a point and the top.

    The top is the triangle's plane where the point is above or below the triangle, else the height of a vertex. A point
    of a box that is above it is pushed down.
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
    pair.place = core - wp.float64(0.5) * (gap + radius) * pair.normal
    return pair
