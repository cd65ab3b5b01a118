# SPDX-License-Identifier: Apache-2.0
"""Signed distance and outward normal of primitives, meshes and heightfields, as Warp functions."""

from typing import Any

import warp as wp

from neurodyn.geometry.chain import BOX, CAPSULE, CYLINDER, PLANE

# Warp compiles these functions and infers types that neither checker knows.
# ruff: noqa: ANN201, ANN202
# pyright: basic, reportOperatorIssue=false, reportIndexIssue=false, reportArgumentType=false, reportCallIssue=false
# pyright: reportAttributeAccessIssue=false, reportGeneralTypeIssues=false, reportReturnType=false

BLOCK = wp.constant(8)
"""Edge of a block of a heightfield, in cells."""


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
    """Points within the radius size[0] of the segment of half length size[1] along z."""
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


@wp.func
def nearest_on_triangle(point: Any, a: Any, b: Any, c: Any):
    """Return the nearest point of a triangle, and on which feature it lies.

    Features: 0-2 the vertices a, b, c; 3-5 the edges ab, bc, ca; 6 the face. The regions are those of Ericson,
    "Real-Time Collision Detection" (2005), section 5.1.5.
    """
    zero = point.dtype(0.0)
    ab = b - a
    ac = c - a
    d1 = wp.dot(ab, point - a)
    d2 = wp.dot(ac, point - a)
    if d1 <= zero and d2 <= zero:
        return a, 0
    d3 = wp.dot(ab, point - b)
    d4 = wp.dot(ac, point - b)
    if d3 >= zero and d4 <= d3:
        return b, 1
    vc = d1 * d4 - d3 * d2
    if vc <= zero and d1 >= zero and d3 <= zero:
        return a + ab * (d1 / (d1 - d3)), 3
    d5 = wp.dot(ab, point - c)
    d6 = wp.dot(ac, point - c)
    if d6 >= zero and d5 <= d6:
        return c, 2
    vb = d5 * d2 - d1 * d6
    if vb <= zero and d2 >= zero and d6 <= zero:
        return a + ac * (d2 / (d2 - d6)), 5
    va = d3 * d6 - d5 * d4
    if va <= zero and d4 - d3 >= zero and d5 - d6 >= zero:
        return b + (c - b) * ((d4 - d3) / ((d4 - d3) + (d5 - d6))), 4
    scale = point.dtype(1.0) / (va + vb + vc)
    return a + ab * (vb * scale) + ac * (vc * scale), 6


@wp.func
def _cast(template: Any, vector: wp.vec3f):
    return type(template)(template.dtype(vector[0]), template.dtype(vector[1]), template.dtype(vector[2]))


@wp.func
def mesh_distance(mesh: wp.uint64, normals: wp.array2d[wp.vec3f], first_face: int, point: Any, reach: Any):
    """Return distance and normal of a closed mesh; `reach` where nothing is within that distance.

    `normals` holds the pseudo-normals of the seven features of each face, from row `first_face` on.
    """
    single = wp.vec3f(float(point[0]), float(point[1]), float(point[2]))
    query = wp.mesh_query_point_no_sign(mesh, single, float(reach))
    if not query.result:
        return reach, type(point)()
    corner = 3 * query.face
    a = _cast(point, wp.mesh_get_point(mesh, corner))
    b = _cast(point, wp.mesh_get_point(mesh, corner + 1))
    c = _cast(point, wp.mesh_get_point(mesh, corner + 2))
    nearest, feature = nearest_on_triangle(point, a, b, c)
    pseudo = _cast(point, normals[first_face + query.face, feature])
    distance, normal = direction(point - nearest, pseudo)
    if wp.dot(normal, pseudo) < point.dtype(0.0):
        return -distance, -normal
    return distance, normal


@wp.func
def _corner(heights: wp.array[Any], grid: wp.vec4i, size: Any, row: int, column: int):
    """Return a vertex of a heightfield of grid (first height, rows, columns, first block) and cell edges `size`."""
    half = size.dtype(0.5)
    return type(size)(
        size[0] * (size.dtype(column) - half * size.dtype(grid[2] - 1)),
        size[1] * (size.dtype(row) - half * size.dtype(grid[1] - 1)),
        heights[grid[0] + row * grid[2] + column],
    )


@wp.func
def _gap(point: Any, low: Any, high: Any):
    """Return the distance from a coordinate to an interval."""
    return wp.max(low - point, wp.max(point - high, type(point)(0.0)))


@wp.func
def _search_cell(point: Any, a: Any, size: Any, b: Any, c: Any, d: Any, best: Any, nearest: Any):
    """Search one cell; return the least distance and the nearest point so far.

    `a` is the vertex of least x and y; b, c and d are the heights of the next ones along x, along y, and diagonally.
    """
    x = _gap(point[0], a[0], a[0] + size[0])
    y = _gap(point[1], a[1], a[1] + size[1])
    z = _gap(point[2], wp.min(wp.min(a[2], b), wp.min(c, d)), wp.max(wp.max(a[2], b), wp.max(c, d)))
    if x * x + y * y + z * z >= best * best:
        return best, nearest
    across = type(point)(a[0] + size[0], a[1] + size[1], d)
    candidate, _ = nearest_on_triangle(point, a, type(point)(a[0] + size[0], a[1], b), across)
    distance = wp.length(point - candidate)
    if distance < best:
        best, nearest = distance, candidate
    candidate, _ = nearest_on_triangle(point, a, across, type(point)(a[0], a[1] + size[1], c))
    distance = wp.length(point - candidate)
    if distance < best:
        best, nearest = distance, candidate
    return best, nearest


@wp.func
def _is_above(heights: wp.array[Any], grid: wp.vec4i, size: Any, point: Any, row: int, column: int):
    """Return whether a point is above the plane of the triangle that it projects to, and that plane's normal."""
    a = _corner(heights, grid, size, row, column)
    d = _corner(heights, grid, size, row + 1, column + 1)
    side = d - a
    if (point[0] - a[0]) * side[1] >= (point[1] - a[1]) * side[0]:
        b = _corner(heights, grid, size, row, column + 1)
        normal = wp.normalize(wp.cross(b - a, side))
    else:
        c = _corner(heights, grid, size, row + 1, column)
        normal = wp.normalize(wp.cross(side, c - a))
    return wp.dot(point - a, normal) >= point.dtype(0.0), normal


@wp.func
def _cell_of(coordinate: Any, half: Any, cell: Any, cells: int):
    """Return the index of the cell of a coordinate, clamped to the grid."""
    return int(wp.clamp(wp.floor((coordinate + half) / cell), type(cell)(0.0), type(cell)(cells - 1)))


@wp.func
def heightfield_distance(
    heights: wp.array[Any], ranges: wp.array[Any], grid: wp.vec4i, size: Any, point: Any, reach: Any
):
    """Return distance and normal of a heightfield; `reach` where nothing is within that distance.

    `heights`, and `ranges` (least and greatest height of each block), are of all heightfields. `grid` holds first
    height, rows, columns and first block of this one, `size` the edges of a cell along x and y.
    """
    half_x = size[0] * size.dtype(grid[2] - 1) * size.dtype(0.5)
    half_y = size[1] * size.dtype(grid[1] - 1) * size.dtype(0.5)
    column = _cell_of(point[0], half_x, size[0], grid[2] - 1)
    row = _cell_of(point[1], half_y, size[1], grid[1] - 1)
    best = wp.copy(reach)
    nearest = wp.copy(point)
    for _attempt in range(2):
        # The cell below the nearest point of the first is often better, and a good first guess shortens the search.
        i = _cell_of(nearest[1], half_y, size[1], grid[1] - 1)
        j = _cell_of(nearest[0], half_x, size[0], grid[2] - 1)
        k = grid[0] + i * grid[2] + j
        best, nearest = _search_cell(
            point, _corner(heights, grid, size, i, j), size, heights[k + 1], heights[k + grid[2]],
            heights[k + grid[2] + 1], best, nearest,
        )  # fmt: skip
    block_columns = (grid[2] + BLOCK - 2) / BLOCK
    for i in range(
        _cell_of(point[1] - best, half_y, size[1], grid[1] - 1) / BLOCK,
        _cell_of(point[1] + best, half_y, size[1], grid[1] - 1) / BLOCK + 1,
    ):
        for j in range(
            _cell_of(point[0] - best, half_x, size[0], grid[2] - 1) / BLOCK,
            _cell_of(point[0] + best, half_x, size[0], grid[2] - 1) / BLOCK + 1,
        ):
            best, nearest = _search_block(
                heights, ranges[grid[3] + i * block_columns + j], grid, size, point, i, j, best, nearest
            )
    if best >= reach:
        return reach, type(point)()
    above, upward = _is_above(heights, grid, size, point, row, column)
    outside = wp.abs(point[0]) > half_x or wp.abs(point[1]) > half_y
    distance, normal = direction(point - nearest, upward)
    if above or outside:
        return distance, normal
    return -distance, -normal


@wp.func
def _search_block(
    heights: wp.array[Any], bounds: Any, grid: wp.vec4i, size: Any, point: Any, i: int, j: int, best: Any, nearest: Any
):
    """Search the cells of one block; return the least distance and the nearest point so far."""
    half_x = size[0] * size.dtype(grid[2] - 1) * size.dtype(0.5)
    half_y = size[1] * size.dtype(grid[1] - 1) * size.dtype(0.5)
    x = _gap(point[0], size[0] * size.dtype(j * BLOCK) - half_x, size[0] * size.dtype((j + 1) * BLOCK) - half_x)
    y = _gap(point[1], size[1] * size.dtype(i * BLOCK) - half_y, size[1] * size.dtype((i + 1) * BLOCK) - half_y)
    z = _gap(point[2], bounds[0], bounds[1])
    if x * x + y * y + z * z >= best * best:
        return best, nearest
    # Cells further away than this along x or y cannot be nearer, given the heights in the block.
    across = wp.sqrt(best * best - z * z)
    for row in range(
        wp.max(i * BLOCK, _cell_of(point[1] - across, half_y, size[1], grid[1] - 1)),
        wp.min((i + 1) * BLOCK, _cell_of(point[1] + across, half_y, size[1], grid[1] - 1) + 1),
    ):
        for column in range(
            wp.max(j * BLOCK, _cell_of(point[0] - across, half_x, size[0], grid[2] - 1)),
            wp.min((j + 1) * BLOCK, _cell_of(point[0] + across, half_x, size[0], grid[2] - 1) + 1),
        ):
            k = grid[0] + row * grid[2] + column
            a = type(size)(size[0] * size.dtype(column) - half_x, size[1] * size.dtype(row) - half_y, heights[k])
            best, nearest = _search_cell(
                point, a, size, heights[k + 1], heights[k + grid[2]], heights[k + grid[2] + 1], best, nearest
            )
    return best, nearest
