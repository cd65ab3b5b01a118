# SPDX-License-Identifier: Apache-2.0
"""Contacts of a body with a heightfield: the prisms it touches, the contacts kept, and their kernel."""

from typing import Any

import torch
import warp as wp

from neurodyn.core.description.contacts import MOST_CONTACTS, SPREAD_CONTACTS
from neurodyn.geometry import prisms
from neurodyn.geometry.chain import advance
from neurodyn.geometry.device_arrays import PRECISIONS
from neurodyn.geometry.distances import BLOCK
from neurodyn.geometry.prisms.pair import (
    APART,
    Body,
    Pair,
    column,
    point_at,
    reach_along,
    rounded_on_prism,
    upward_normal,
)
from neurodyn.geometry.prisms.polytope import box_in_prism

# Warp compiles these functions and infers types that neither checker knows.
# ruff: noqa: ANN201, ANN202, UP018, RUF046
# pyright: basic, reportOperatorIssue=false, reportIndexIssue=false, reportArgumentType=false, reportCallIssue=false
# pyright: reportAttributeAccessIssue=false, reportGeneralTypeIssues=false, reportReturnType=false
# pyright: reportAssignmentType=false, reportInvalidTypeForm=false


MOST = wp.constant(50)
"""Maximum number of prisms in contact with a body: MuJoCo's `mjMAXCONPAIR`."""

CONTACTS = wp.constant(MOST_CONTACTS)
"""Maximum number of contacts of a link."""

SPREAD = wp.constant(SPREAD_CONTACTS)
"""Number of contacts that are kept of more."""

NUMBERS = wp.constant(prisms.CONTACT_NUMBERS)
"""Numbers that describe a contact: `Pair.kind`, the radius, and six vectors, `Pair.core` to `Pair.across_too`."""

_JOINT, _SHAPE = PRECISIONS[torch.float64].joint, PRECISIONS[torch.float64].shape

_APART_FROM_OTHERS = wp.constant(wp.float64(1e-3))
_SAME = wp.constant(wp.float64(1e-12))  # smaller distances are zero: the same edge or vertex of two prisms

Numbers = wp.types.vector(length=50, dtype=wp.float64)
Places = wp.types.matrix(shape=(50, 3), dtype=wp.float64)
Cells = wp.types.vector(length=50, dtype=wp.int32)
Chosen = wp.types.vector(length=MOST_CONTACTS, dtype=wp.int32)


@wp.func
def corner(heights: wp.array[wp.float64], grid: wp.vec4i, cell: wp.vec3d, row: int, place: int):
    """Return a vertex of a heightfield; `grid` is (first height, rows, columns, first block), `cell` the cell edges."""
    height = heights[grid[0] + row * grid[2] + place]
    return wp.vec3d(_start(place, cell[0], grid[2]), _start(row, cell[1], grid[1]), height)


@wp.func
def on_prism(heights: wp.array[wp.float64], grid: wp.vec4i, cell: wp.vec3d, body: Body, number: int):
    """Return the contact of a body with the prism of an index: two prisms per cell, cells in row-major order.

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
    """Return the coordinate at which a row or column of cells begins."""
    return edge * (wp.float64(number) - wp.float64(0.5) * wp.float64(vertices - 1))


@wp.func
def _first_cell(low: wp.float64, edge: wp.float64, cells: int):
    return wp.clamp(int(wp.floor(low / edge + wp.float64(0.5) * wp.float64(cells))), 0, cells)


@wp.func
def _end_cell(high: wp.float64, edge: wp.float64, cells: int):
    return wp.clamp(int(wp.ceil(high / edge + wp.float64(0.5) * wp.float64(cells))), 0, cells)


@wp.func
def _stretch(begin: wp.float64, edge: wp.float64, radius: wp.float64, slope: wp.float64, stretch: wp.vec2d):
    """Clip an interval along an axis to the part within `radius` of a strip; an empty result has first > second.

    The strip spans [begin, begin + edge] relative to the axis' origin; the axis crosses it with `slope`.
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
def chosen_prisms(heights: wp.array[wp.float64], grid: wp.vec4i, cell: wp.vec3d, body: Body, most: int):
    """Return the indices of the prisms whose contacts with a body are kept, all of up to `most`; -1 for none."""
    zero = wp.float64(0.0)
    one = wp.float64(1.0)
    x = reach_along(body, wp.vec3d(one, zero, zero)) + body.radius
    y = reach_along(body, wp.vec3d(zero, one, zero)) + body.radius
    z = reach_along(body, wp.vec3d(zero, zero, one)) + body.radius
    axis = column(body.rotation, 2)
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
        # Only the part of a capsule above the row, then above the cell, bounds its height there.
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
                            places[count, i] = pair.position[i]
                        count += 1
    chosen = Chosen(-1)
    if count > 0 and (most == SPREAD or count > most):
        return _spread(places, numbers, count, nearest, normal)
    for i in range(count):
        chosen[i] = numbers[i]
    return chosen


@wp.func
def _spread(places: Any, numbers: Any, count: int, nearest: int, normal: wp.vec3d):
    """Return the indices of up to four contacts that are far apart, the deepest first."""
    chosen = Chosen(-1)
    taken = Chosen(-1)
    taken[0] = nearest
    chosen[0] = numbers[nearest]
    p0 = point_at(places, nearest)
    p1 = p0
    p2 = p0
    done = bool(False)
    for pick in range(1, 4):
        best = wp.float64(-1.0)
        index = int(-1)
        first = wp.cross(normal, p0 - p1)
        if pick == 3:
            first = wp.cross(normal, p0 - p2)
        second = wp.cross(normal, p1 - p2)
        for i in range(count):
            if i != taken[0] and i != taken[1] and i != taken[2]:
                p = point_at(places, i)
                apart = wp.length(p - p0)
                if pick == 2:
                    apart = wp.abs(wp.dot(p - p0, first))
                elif pick == 3:
                    apart = wp.abs(wp.dot(p - p0, first)) + wp.abs(wp.dot(p1 - p, second))
                if apart > best:
                    best = apart
                    index = i
        if index < 0 or (best > _SAME and best < _APART_FROM_OTHERS):
            done = True
        if not done:
            taken[pick] = index
            chosen[pick] = numbers[index]
            if pick == 1:
                p1 = point_at(places, index)
            elif pick == 2:
                p2 = point_at(places, index)
    return chosen


@wp.func
def _write(out: wp.array3d[wp.float64], world: int, slot: int, place: int, vector: wp.vec3d) -> None:
    for i in range(3):
        out[world, slot, 2 + 3 * place + i] = vector[i]


@wp.kernel(enable_backward=False, module="unique", module_options={"max_unroll": 1})
def prism_contacts_kernel(
    q: wp.array2d[wp.float64],
    qd: wp.array2d[wp.float64],
    pose: wp.array[wp.transformd],
    chain_start: wp.array[int],
    chain: wp.array[int],
    joints: wp.array[_JOINT],
    link_joint: wp.array[int],
    link_shapes: wp.array[int],
    link_slots: wp.array[int],
    body_pose: wp.array[wp.transformd],
    body_half: wp.array[wp.vec3d],
    body_radius: wp.array[wp.float64],
    body_contacts: wp.array[int],
    shape_start: wp.array[int],
    shapes: wp.array[_SHAPE],
    heights: wp.array[wp.float64],
    ranges: wp.array[wp.vec2d],
    out: wp.array3d[wp.float64],
):
    """Write the contacts of one link in one world: robot features in the link's frame, ground features in the world.

    Link i has the shapes from link_shapes[i] to before link_shapes[i + 1] and the contact slots from link_slots[i] to
    before link_slots[i + 1]. Contacts beyond its slots are dropped; unused slots are zero. A world has one heightfield,
    individual or shared.
    """
    world, link = wp.tid()
    zero = wp.float64(0.0)
    rotation = wp.quatd(zero, zero, zero, wp.float64(1.0))
    origin = wp.vec3d()
    speed = wp.vec3d()
    spin = wp.vec3d()
    for i in range(chain_start[link], chain_start[link + 1]):
        j = chain[i]
        rotation, origin, speed, spin = advance(joints[j], world, q, qd, rotation, origin, speed, spin)
    own = link_joint[link]
    # The link's frame is its joint's frame, not its body frame.
    origin = origin + wp.quat_rotate(rotation, joints[own].offset)
    link_rotation = wp.quat_to_matrix(rotation * wp.quat_inverse(joints[own].turn))
    field = int(0)
    if shape_start[0] == 0:
        field = shape_start[world]
    scene = pose[wp.min(world, pose.shape[0] - 1)]
    scene_rotation = wp.quat_to_matrix(wp.transform_get_rotation(scene))
    ground_rotation = scene_rotation @ shapes[field].rotation
    ground_origin = wp.transform_get_translation(scene) + scene_rotation @ shapes[field].origin
    to_ground = wp.transpose(ground_rotation)
    to_link = wp.transpose(link_rotation) @ ground_rotation
    slot = link_slots[link]
    for number in range(link_shapes[link], link_shapes[link + 1]):
        shape_pose = body_pose[number]
        body = Body()
        arm = wp.quat_rotate(rotation, wp.transform_get_translation(shape_pose) - joints[own].offset)
        body.centre = to_ground @ (origin + arm - ground_origin)
        body.rotation = to_ground @ wp.quat_to_matrix(rotation * wp.transform_get_rotation(shape_pose))
        body.half = body_half[number]
        body.radius = body_radius[number]
        if in_reach(ranges, shapes[field].grid, shapes[field].size, body):
            chosen = chosen_prisms(heights, shapes[field].grid, shapes[field].size, body, body_contacts[number])
            for i in range(CONTACTS):
                if chosen[i] >= 0 and slot < link_slots[link + 1]:
                    pair = on_prism(heights, shapes[field].grid, shapes[field].size, body, chosen[i])
                    out[world, slot, 0] = wp.float64(pair.kind)
                    out[world, slot, 1] = body.radius
                    core = ground_rotation @ pair.core + ground_origin
                    _write(out, world, slot, 0, wp.transpose(link_rotation) @ (core - origin))
                    _write(out, world, slot, 1, to_link @ pair.along)
                    _write(out, world, slot, 2, to_link @ pair.along_too)
                    _write(out, world, slot, 3, ground_rotation @ pair.ground + ground_origin)
                    _write(out, world, slot, 4, ground_rotation @ pair.across)
                    _write(out, world, slot, 5, ground_rotation @ pair.across_too)
                    slot += 1
    for rest in range(slot, link_slots[link + 1]):
        for i in range(NUMBERS):
            out[world, rest, i] = zero
