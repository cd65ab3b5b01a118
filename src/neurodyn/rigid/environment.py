# SPDX-License-Identifier: Apache-2.0
# Warp compiles these functions, with types that it infers and that neither checker knows.
# ruff: noqa: ANN201
# pyright: basic, reportOperatorIssue=false, reportIndexIssue=false, reportArgumentType=false, reportCallIssue=false
# pyright: reportAttributeAccessIssue=false, reportGeneralTypeIssues=false, reportReturnType=false
"""The least signed distance over all shapes of an environment, as a Warp function."""

from typing import Any

import warp as wp

from neurodyn.rigid.kinds import HEIGHTFIELD, MESH
from neurodyn.rigid.primitives import primitive_distance
from neurodyn.rigid.surfaces import heightfield_distance, mesh_distance

FAR = wp.constant(1.0e3)
"""Distance that stands for "no ground" [m]."""


@wp.func
def shape_distance(
    shape: int,
    kind: wp.array[int],
    size: wp.array[Any],
    mesh: wp.array[wp.uint64],
    first_face: wp.array[int],
    pseudo_normals: wp.array2d[wp.vec3f],
    grid: wp.array[wp.vec4i],
    heights: wp.array[Any],
    ranges: wp.array[Any],
    point: Any,
):
    """Return distance and normal of one shape in its frame."""
    if kind[shape] == MESH:
        return mesh_distance(mesh[shape], pseudo_normals, first_face[shape], point, point.dtype(FAR))
    if kind[shape] == HEIGHTFIELD:
        return heightfield_distance(heights, ranges, grid[shape], size[shape], point, point.dtype(FAR))
    return primitive_distance(kind[shape], point, size[shape])


@wp.func
def environment_distance(
    first: int,
    last: int,
    kind: wp.array[int],
    origin: wp.array[Any],
    rotation: wp.array[Any],
    size: wp.array[Any],
    ball: wp.array[Any],
    mesh: wp.array[wp.uint64],
    first_face: wp.array[int],
    pseudo_normals: wp.array2d[wp.vec3f],
    grid: wp.array[wp.vec4i],
    heights: wp.array[Any],
    ranges: wp.array[Any],
    point: Any,
    best: Any,
    normal: Any,
):
    """Return distance and normal after a look at the shapes from `first` to before `last`.

    A shape whose bounding ball (centre, radius; a negative radius for none) is beyond the best distance so far
    is skipped.
    """
    for shape in range(first, last):
        radius = ball[shape][3]
        if radius >= point.dtype(0.0):
            centre = type(point)(ball[shape][0], ball[shape][1], ball[shape][2])
            if wp.length(point - centre) - radius >= best:
                continue
        local = (point - origin[shape]) @ rotation[shape]
        distance, gradient = shape_distance(
            shape, kind, size, mesh, first_face, pseudo_normals, grid, heights, ranges, local
        )
        if distance < best:
            best = distance
            normal = rotation[shape] @ gradient
    return best, normal
