# SPDX-License-Identifier: Apache-2.0
# Warp compiles these functions, with types that it infers and that neither checker knows.
# ruff: noqa: ANN201, ANN202, UP018, RUF046
# pyright: basic, reportOperatorIssue=false, reportIndexIssue=false, reportArgumentType=false, reportCallIssue=false
# pyright: reportAttributeAccessIssue=false, reportGeneralTypeIssues=false, reportReturnType=false
"""The contacts of a body with a heightfield: with which prisms it is in touch, and which four of them count.

As MuJoCo's `mjc_ConvexHField` and its port to Warp: prisms are looked at row by row, two to a cell, until as many as a
pair may have touch; of those the deepest counts, the one that is furthest from it, the one furthest from the line
through both, and the one furthest from the edges of that triangle. Contacts that are too near to those before are not
taken, nor is any after them.
"""

from typing import Any

import warp as wp

from neurodyn.geometry.prisms.pair import APART, Body, Pair, column, reach_along, upward_normal
from neurodyn.geometry.prisms.polytope import box_in_prism
from neurodyn.geometry.prisms.rounded import rounded_on_prism
from neurodyn.geometry.surfaces import BLOCK

MOST = wp.constant(50)
"""Prisms, at most, that a body is in touch with: MuJoCo's `mjMAXCONPAIR`."""

CONTACTS = wp.constant(4)
"""Contacts, at most, of a body."""

_APART_FROM_OTHERS = wp.constant(wp.float64(1e-3))
_SAME = wp.constant(wp.float64(1e-12))  # less than this is nothing: the same edge or vertex of two prisms

Numbers = wp.types.vector(length=50, dtype=wp.float64)
Places = wp.types.matrix(shape=(50, 3), dtype=wp.float64)
Cells = wp.types.vector(length=50, dtype=wp.int32)
Chosen = wp.types.vector(length=4, dtype=wp.int32)


@wp.func
def corner(heights: wp.array[wp.float64], grid: wp.vec4i, cell: wp.vec3d, row: int, place: int):
    """Return a vertex of a heightfield of grid (first height, rows, columns, first block) and cells `cell`."""
    height = heights[grid[0] + row * grid[2] + place]
    return wp.vec3d(_start(place, cell[0], grid[2]), _start(row, cell[1], grid[1]), height)


@wp.func
def on_prism(heights: wp.array[wp.float64], grid: wp.vec4i, cell: wp.vec3d, body: Body, number: int):
    """Return how a body touches the prism of a number: two in a cell, cells along rows.

    The third component of `cell` is the lowest height.
    """
    row = number / 2 / (grid[2] - 1)
    place = number / 2 - row * (grid[2] - 1)
    b = corner(heights, grid, cell, row, place)
    c = corner(heights, grid, cell, row + 1, place + 1)
    a = corner(heights, grid, cell, row + 1, place)
    if number % 2 == 1:
        a = corner(heights, grid, cell, row, place + 1)
    up = upward_normal(a, b, c)
    if wp.dot(up, body.centre - a) - reach_along(body, up) >= body.radius:
        return Pair()
    if body.radius > wp.float64(0.0):
        return rounded_on_prism(body, a, b, c, up)
    return box_in_prism(body, a, b, c, cell[2])


@wp.func
def _start(number: int, edge: wp.float64, vertices: int):
    """Return where a row or column of cells begins."""
    return edge * (wp.float64(number) - wp.float64(0.5) * wp.float64(vertices - 1))


@wp.func
def _first_cell(low: wp.float64, edge: wp.float64, cells: int):
    return wp.clamp(int(wp.floor(low / edge + wp.float64(0.5) * wp.float64(cells))), 0, cells)


@wp.func
def _end_cell(high: wp.float64, edge: wp.float64, cells: int):
    return wp.clamp(int(wp.ceil(high / edge + wp.float64(0.5) * wp.float64(cells))), 0, cells)


@wp.func
def _stretch(begin: wp.float64, edge: wp.float64, radius: wp.float64, slope: wp.float64, stretch: wp.vec2d):
    """Return between which of two places along an axis it is nearer than a radius to a strip; the first is then less.

    The strip goes from `begin`, seen from the axis' origin, so far as `edge`; the axis crosses it with a slope.
    """
    low = begin - radius
    high = begin + edge + radius
    if slope < wp.float64(0.0):
        low = -begin - edge - radius
        high = radius - begin
    steep = wp.abs(slope)
    if steep < wp.float64(1e-9):
        if low > wp.float64(0.0) or high < wp.float64(0.0):
            return wp.vec2d(stretch[1], stretch[0] - wp.float64(1.0))
        return stretch
    return wp.vec2d(wp.max(stretch[0], low / steep), wp.min(stretch[1], high / steep))


@wp.func
def in_reach(ranges: wp.array[wp.vec2d], grid: wp.vec4i, cell: wp.vec3d, body: Body):
    """Return whether a body is lower than the highest point of some block of the heightfield below it."""
    zero = wp.float64(0.0)
    one = wp.float64(1.0)
    x = reach_along(body, wp.vec3d(one, zero, zero)) + body.radius
    y = reach_along(body, wp.vec3d(zero, one, zero)) + body.radius
    bottom = body.centre[2] - reach_along(body, wp.vec3d(zero, zero, one)) - body.radius
    across = (grid[2] + BLOCK - 2) / BLOCK
    for i in range(
        _first_cell(body.centre[1] - y, cell[1], grid[1] - 1) / BLOCK,
        (_end_cell(body.centre[1] + y, cell[1], grid[1] - 1) + BLOCK - 1) / BLOCK,
    ):
        for j in range(
            _first_cell(body.centre[0] - x, cell[0], grid[2] - 1) / BLOCK,
            (_end_cell(body.centre[0] + x, cell[0], grid[2] - 1) + BLOCK - 1) / BLOCK,
        ):
            if ranges[grid[3] + i * across + j][1] >= bottom:
                return True
    return False


@wp.func
def chosen_prisms(heights: wp.array[wp.float64], grid: wp.vec4i, cell: wp.vec3d, body: Body):
    """Return the numbers of the prisms that a body has its contacts with; -1 for none."""
    zero = wp.float64(0.0)
    one = wp.float64(1.0)
    x = reach_along(body, wp.vec3d(one, zero, zero)) + body.radius
    y = reach_along(body, wp.vec3d(zero, one, zero)) + body.radius
    z = reach_along(body, wp.vec3d(zero, zero, one)) + body.radius
    axis = column(body.turn, 2)
    slender = body.radius > zero and body.half[2] > zero
    distances = Numbers()
    places = Places()
    numbers = Cells()
    count = int(0)
    nearest = int(0)
    normal = wp.vec3d()
    for row in range(
        _first_cell(body.centre[1] - y, cell[1], grid[1] - 1), _end_cell(body.centre[1] + y, cell[1], grid[1] - 1)
    ):
        low = body.centre[0] - x
        high = body.centre[0] + x
        # Of a capsule, the part that is above of the row, and then of the cell, says how low it is there.
        part = wp.vec2d(-body.half[2], body.half[2])
        if slender:
            part = _stretch(_start(row, cell[1], grid[1]) - body.centre[1], cell[1], body.radius, axis[1], part)
            low = body.centre[0] + wp.min(part[0] * axis[0], part[1] * axis[0]) - body.radius
            high = body.centre[0] + wp.max(part[0] * axis[0], part[1] * axis[0]) + body.radius
        for place in range(_first_cell(low, cell[0], grid[2] - 1), _end_cell(high, cell[0], grid[2] - 1)):
            k = grid[0] + row * grid[2] + place
            edge = wp.max(heights[k], heights[k + grid[2] + 1])
            bottom = body.centre[2] - z
            if slender:
                here = _stretch(_start(place, cell[0], grid[2]) - body.centre[0], cell[0], body.radius, axis[0], part)
                bottom = body.centre[2] + wp.min(here[0] * axis[2], here[1] * axis[2]) - body.radius
                if here[0] > here[1]:
                    bottom = wp.float64(1e30)
            for second in range(2):
                top = wp.max(edge, heights[k + 1])
                if second == 0:
                    top = wp.max(edge, heights[k + grid[2]])
                if top >= bottom and count < MOST:
                    number = 2 * (row * (grid[2] - 1) + place) + second
                    pair = on_prism(heights, grid, cell, body, number)
                    if pair.kind != APART:
                        if count == 0 or pair.distance < distances[nearest]:
                            nearest = count
                            normal = pair.normal
                        distances[count] = pair.distance
                        numbers[count] = number
                        for i in range(3):
                            places[count, i] = pair.place[i]
                        count += 1
    return _spread(places, numbers, count, nearest, normal)


@wp.func
def _place(places: Any, index: int):
    return wp.vec3d(places[index, 0], places[index, 1], places[index, 2])


@wp.func
def _spread(places: Any, numbers: Any, count: int, nearest: int, normal: wp.vec3d):
    """Return the numbers of up to four contacts that lie apart, the deepest first."""
    wp.float64(0.0)
    chosen = Chosen(-1, -1, -1, -1)
    if count == 0:
        return chosen
    taken = Chosen(-1, -1, -1, -1)
    taken[0] = nearest
    chosen[0] = numbers[nearest]
    p0 = _place(places, nearest)
    p1 = p0
    p2 = p0
    done = bool(False)
    for turn in range(1, 4):
        best = wp.float64(-1.0)
        index = int(-1)
        first = wp.cross(normal, p0 - p1)
        if turn == 3:
            first = wp.cross(normal, p0 - p2)
        second = wp.cross(normal, p1 - p2)
        for i in range(count):
            if i != taken[0] and i != taken[1] and i != taken[2]:
                p = _place(places, i)
                apart = wp.length(p - p0)
                if turn == 2:
                    apart = wp.abs(wp.dot(p - p0, first))
                elif turn == 3:
                    apart = wp.abs(wp.dot(p - p0, first)) + wp.abs(wp.dot(p1 - p, second))
                if apart > best:
                    best = apart
                    index = i
        if index < 0 or (best > _SAME and best < _APART_FROM_OTHERS):
            done = True
        if not done:
            taken[turn] = index
            chosen[turn] = numbers[index]
            if turn == 1:
                p1 = _place(places, index)
            elif turn == 2:
                p2 = _place(places, index)
    return chosen
