# SPDX-License-Identifier: Apache-2.0
# Warp compiles these functions, with types that it infers and that neither checker knows.
# ruff: noqa: ANN201, UP018, RUF046
# pyright: basic, reportOperatorIssue=false, reportIndexIssue=false, reportArgumentType=false, reportCallIssue=false
# pyright: reportAttributeAccessIssue=false, reportGeneralTypeIssues=false, reportReturnType=false, reportAssignmentType=false
"""The kernel over (world, link) that finds the contacts of a robot's shapes with a heightfield."""

import warp as wp

from neurodyn.geometry.chain import advance
from neurodyn.geometry.prisms.contacts import CONTACTS, chosen_prisms, in_reach, on_prism
from neurodyn.geometry.prisms.pair import Body

NUMBERS = wp.constant(20)
"""Numbers that describe a contact: `Pair.kind`, the radius, and six vectors, `Pair.core` to `Pair.across_too`."""


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
    joint_kind: wp.array[int],
    joint_q: wp.array[int],
    joint_qd: wp.array[int],
    joint_anchor: wp.array[wp.vec3d],
    joint_frame: wp.array[wp.quatd],
    joint_turn: wp.array[wp.quatd],
    joint_axis: wp.array[wp.vec3d],
    joint_offset: wp.array[wp.vec3d],
    joint_centre: wp.array[wp.vec3d],
    link_joint: wp.array[int],
    link_shapes: wp.array[int],
    link_slots: wp.array[int],
    body_place: wp.array[wp.transformd],
    body_half: wp.array[wp.vec3d],
    body_radius: wp.array[wp.float64],
    shape_start: wp.array[int],
    shape_origin: wp.array[wp.vec3d],
    shape_rotation: wp.array[wp.mat33d],
    shape_size: wp.array[wp.vec3d],
    shape_grid: wp.array[wp.vec4i],
    heights: wp.array[wp.float64],
    ranges: wp.array[wp.vec2d],
    out: wp.array3d[wp.float64],
):
    """Write the contacts of one link of one world: the robot's features in the link's frame, the ground's in the world.

    The link has the shapes link_shapes[link] to before link_shapes[link + 1], and likewise slots for contacts; of more
    contacts than slots the last are left out, and slots without one hold zeros. A world has one heightfield, its own or
    one that all share.
    """
    world, link = wp.tid()
    zero = wp.float64(0.0)
    rotation = wp.quatd(zero, zero, zero, wp.float64(1.0))
    origin = wp.vec3d()
    speed = wp.vec3d()
    spin = wp.vec3d()
    for i in range(chain_start[link], chain_start[link + 1]):
        j = chain[i]
        rotation, origin, speed, spin = advance(
            joint_kind[j], world, joint_q[j], joint_qd[j], joint_anchor[j], joint_frame[j], joint_turn[j],
            joint_axis[j], joint_offset[j], joint_centre[j], q, qd, rotation, origin, speed, spin,
        )  # fmt: skip
    own = link_joint[link]
    # The link's frame is that of its joint, which is not its body's.
    origin = origin + wp.quat_rotate(rotation, joint_offset[own])
    turn = wp.quat_to_matrix(rotation * wp.quat_inverse(joint_turn[own]))
    field = int(0)
    if shape_start[0] == 0:
        field = shape_start[world]
    scene = pose[wp.min(world, pose.shape[0] - 1)]
    scene_turn = wp.quat_to_matrix(wp.transform_get_rotation(scene))
    ground_turn = scene_turn @ shape_rotation[field]
    ground_origin = wp.transform_get_translation(scene) + scene_turn @ shape_origin[field]
    to_ground = wp.transpose(ground_turn)
    to_link = wp.transpose(turn) @ ground_turn
    slot = link_slots[link]
    for number in range(link_shapes[link], link_shapes[link + 1]):
        place = body_place[number]
        body = Body()
        arm = wp.quat_rotate(rotation, wp.transform_get_translation(place) - joint_offset[own])
        body.centre = to_ground @ (origin + arm - ground_origin)
        body.turn = to_ground @ wp.quat_to_matrix(rotation * wp.transform_get_rotation(place))
        body.half = body_half[number]
        body.radius = body_radius[number]
        if in_reach(ranges, shape_grid[field], shape_size[field], body):
            chosen = chosen_prisms(heights, shape_grid[field], shape_size[field], body)
            for i in range(CONTACTS):
                if chosen[i] >= 0 and slot < link_slots[link + 1]:
                    pair = on_prism(heights, shape_grid[field], shape_size[field], body, chosen[i])
                    out[world, slot, 0] = wp.float64(pair.kind)
                    out[world, slot, 1] = body.radius
                    core = ground_turn @ pair.core + ground_origin
                    _write(out, world, slot, 0, wp.transpose(turn) @ (core - origin))
                    _write(out, world, slot, 1, to_link @ pair.along)
                    _write(out, world, slot, 2, to_link @ pair.along_too)
                    _write(out, world, slot, 3, ground_turn @ pair.ground + ground_origin)
                    _write(out, world, slot, 4, ground_turn @ pair.across)
                    _write(out, world, slot, 5, ground_turn @ pair.across_too)
                    slot += 1
    for rest in range(slot, link_slots[link + 1]):
        for i in range(NUMBERS):
            out[world, rest, i] = zero
