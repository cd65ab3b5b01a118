# SPDX-License-Identifier: Apache-2.0
# Warp compiles these functions, with types that it infers and that neither checker knows.
# ruff: noqa: ANN201
# pyright: basic, reportOperatorIssue=false, reportIndexIssue=false, reportArgumentType=false, reportCallIssue=false
# pyright: reportAttributeAccessIssue=false, reportGeneralTypeIssues=false, reportReturnType=false
"""Signed distances to primitive shapes with the normal at the nearest surface point, as Warp functions.

Each function takes a point in the frame of the shape and returns (distance, normal): the distance is negative
inside, the normal is the gradient of the distance, so that the nearest point of the surface is
point - distance * normal. They are generic in the precision.
"""

from typing import Any

import warp as wp

from neurodyn.geometry.kinds import BOX, CAPSULE, CYLINDER, PLANE


@wp.func
def direction(vector: Any, fallback: Any):
    """Return the length of a vector and its direction; `fallback` is the direction of a vector of no length."""
    size = wp.length(vector)
    if size > vector.dtype(0.0):
        return size, vector / size
    return size, fallback


@wp.func
def primitive_distance(kind: int, point: Any, size: Any):
    """Return distance and normal of a primitive; `size` holds half edges, or radius and half length."""
    if kind == PLANE:
        return plane_distance(point)
    if kind == BOX:
        return box_distance(point, size)
    if kind == CAPSULE:
        return capsule_distance(point, size)
    if kind == CYLINDER:
        return cylinder_distance(point, size)
    return sphere_distance(point, size)


@wp.func
def plane_distance(point: Any):
    """Half space below z = 0."""
    return point[2], type(point)(point.dtype(0.0), point.dtype(0.0), point.dtype(1.0))


@wp.func
def sphere_distance(point: Any, size: Any):
    """Sphere of radius size[0]."""
    far, normal = direction(point, type(point)(point.dtype(0.0), point.dtype(0.0), point.dtype(1.0)))
    return far - size[0], normal


@wp.func
def capsule_distance(point: Any, size: Any):
    """All within the radius size[0] of the segment of half length size[1] along z."""
    axial = point[2] - wp.clamp(point[2], -size[1], size[1])
    sideways = type(point)(point.dtype(1.0), point.dtype(0.0), point.dtype(0.0))
    far, normal = direction(type(point)(point[0], point[1], axial), sideways)
    return far - size[0], normal


@wp.func
def cylinder_distance(point: Any, size: Any):
    """Cylinder of radius size[0] and half length size[1] along z."""
    zero = point.dtype(0.0)
    sideways = type(point)(point.dtype(1.0), zero, zero)
    radius, outward = direction(type(point)(point[0], point[1], zero), sideways)
    up = type(point)(zero, zero, wp.where(point[2] < zero, -point.dtype(1.0), point.dtype(1.0)))
    across = radius - size[0]
    along = wp.abs(point[2]) - size[1]
    if across > zero and along > zero:
        return direction(across * outward + along * up, up)
    if across > along:
        return across, outward
    return along, up


@wp.func
def box_distance(point: Any, size: Any):
    """Box of half edges `size`."""
    zero = point.dtype(0.0)
    one = point.dtype(1.0)
    sign = type(point)(
        wp.where(point[0] < zero, -one, one), wp.where(point[1] < zero, -one, one), wp.where(point[2] < zero, -one, one)
    )
    over = wp.cw_mul(sign, point) - size
    deepest = wp.max(over[0], wp.max(over[1], over[2]))
    if deepest > zero:
        beyond = type(point)(wp.max(over[0], zero), wp.max(over[1], zero), wp.max(over[2], zero))
        return direction(wp.cw_mul(sign, beyond), sign)
    if over[2] >= deepest:
        return deepest, type(point)(zero, zero, sign[2])
    if over[0] >= deepest:
        return deepest, type(point)(sign[0], zero, zero)
    return deepest, type(point)(zero, sign[1], zero)
