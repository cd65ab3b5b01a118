# SPDX-License-Identifier: Apache-2.0
"""The probing kernel over (world, probe) and its adjoint, generic in the precision."""

from typing import Any

import warp as wp

from neurodyn.rigid.chain import accumulate, add_pose_gradient, advance
from neurodyn.rigid.environment import FAR, environment_distance
from neurodyn.rigid.kinds import FREE


@wp.kernel(enable_backward=False, module="unique")
def probe_kernel(
    q: wp.array2d[Any],
    qd: wp.array2d[Any],
    pose: wp.array[Any],
    base_frame: int,
    chain_start: wp.array[int],
    chain: wp.array[int],
    probe_point: wp.array[Any],
    joint_kind: wp.array[int],
    joint_q: wp.array[int],
    joint_qd: wp.array[int],
    joint_anchor: wp.array[Any],
    joint_frame: wp.array[Any],
    joint_turn: wp.array[Any],
    joint_axis: wp.array[Any],
    joint_offset: wp.array[Any],
    joint_centre: wp.array[Any],
    shape_start: wp.array[int],
    shape_kind: wp.array[int],
    shape_place: wp.array[Any],
    shape_size: wp.array[Any],
    shape_ball: wp.array[Any],
    shape_mesh: wp.array[wp.uint64],
    shape_first_face: wp.array[int],
    pseudo_normals: wp.array2d[wp.vec3f],
    shape_grid: wp.array[wp.vec4i],
    heights: wp.array[Any],
    ranges: wp.array[Any],
    distance: wp.array2d[Any],
    normal: wp.array2d[Any],
    point: wp.array2d[Any],
    position: wp.array2d[Any],
    velocity: wp.array2d[Any],
    valid: wp.array2d[wp.bool],
):
    """Measure one probe of one world.

    The chain of joints of probe p is chain[chain_start[p]:chain_start[p + 1]], from the root on. The shapes of
    world w are those before shape_start[0], which all worlds share, and those from shape_start[w] to before
    shape_start[w + 1]; where shape_start has one entry, there are none of its own. With `base_frame`, joint 0
    is free and is the root of every chain; the outputs are then along the axes of its child body.
    """
    world, probe = wp.tid()
    local = probe_point[probe]
    zero = local.dtype(0.0)
    one = local.dtype(1.0)
    rotation = wp.quaternion(zero, zero, zero, one)
    origin = type(local)()
    speed = type(local)()
    spin = type(local)()
    base_rotation = rotation
    base_origin = origin
    for i in range(chain_start[probe], chain_start[probe + 1]):
        j = chain[i]
        rotation, origin, speed, spin = advance(
            joint_kind[j], world, joint_q[j], joint_qd[j], joint_anchor[j], joint_frame[j], joint_turn[j],
            joint_axis[j], joint_offset[j], joint_centre[j], q, qd, rotation, origin, speed, spin,
        )  # fmt: skip
        if j == 0:
            base_rotation = rotation
            base_origin = origin
    arm = wp.quat_rotate(rotation, local)
    place = origin + arm
    moving = speed + wp.cross(spin, arm)

    scene = pose[wp.min(world, pose.shape[0] - 1)]
    turned = wp.transform_get_rotation(scene)
    seen = wp.quat_rotate_inv(turned, place - wp.transform_get_translation(scene))
    best = local.dtype(FAR)
    gradient = type(local)()
    best, gradient = environment_distance(
        0, shape_start[0], shape_kind, shape_place, shape_size, shape_ball, shape_mesh, shape_first_face,
        pseudo_normals, shape_grid, heights, ranges, seen, best, gradient,
    )  # fmt: skip
    if shape_start.shape[0] > 1:
        best, gradient = environment_distance(
            shape_start[world], shape_start[world + 1], shape_kind, shape_place, shape_size, shape_ball,
            shape_mesh, shape_first_face, pseudo_normals, shape_grid, heights, ranges, seen, best, gradient,
        )  # fmt: skip
    upward = wp.quat_rotate(turned, gradient)
    found = best < local.dtype(FAR)
    ground = place - best * upward

    if base_frame != 0:
        upward = wp.quat_rotate_inv(base_rotation, upward)
        ground = wp.quat_rotate_inv(base_rotation, ground - base_origin)
        place = wp.quat_rotate_inv(base_rotation, place - base_origin)
        moving = wp.quat_rotate_inv(base_rotation, moving)
    distance[world, probe] = best
    normal[world, probe] = upward
    point[world, probe] = wp.where(found, ground, type(local)())
    position[world, probe] = place
    velocity[world, probe] = moving
    valid[world, probe] = found


@wp.kernel(enable_backward=False, module="unique")
def probe_adjoint_kernel(
    q: wp.array2d[Any],
    qd: wp.array2d[Any],
    base_frame: int,
    chain_start: wp.array[int],
    chain: wp.array[int],
    probe_point: wp.array[Any],
    joint_kind: wp.array[int],
    joint_q: wp.array[int],
    joint_qd: wp.array[int],
    joint_anchor: wp.array[Any],
    joint_frame: wp.array[Any],
    joint_turn: wp.array[Any],
    joint_axis: wp.array[Any],
    joint_offset: wp.array[Any],
    joint_centre: wp.array[Any],
    normal: wp.array2d[Any],
    point: wp.array2d[Any],
    position: wp.array2d[Any],
    velocity: wp.array2d[Any],
    valid: wp.array2d[wp.bool],
    by_distance: wp.array2d[Any],
    by_normal: wp.array2d[Any],
    by_point: wp.array2d[Any],
    by_position: wp.array2d[Any],
    by_velocity: wp.array2d[Any],
    grad_q: wp.array2d[Any],
    grad_qd: wp.array2d[Any],
):
    """Add to the gradients by the state those that one probe's readings bring.

    The ground point and the normal are held fixed in the world, so the gradient of the distance by the place of
    the probe is the normal. Readings in the axes of the base depend on the base's pose besides.
    """
    world, probe = wp.tid()
    local = probe_point[probe]
    zero = local.dtype(0.0)
    rotation = wp.quaternion(zero, zero, zero, local.dtype(1.0))
    origin = type(local)()
    speed = type(local)()
    spin = type(local)()

    upward = normal[world, probe]
    place = position[world, probe]
    moving = velocity[world, probe]
    force = by_position[world, probe]
    push = by_velocity[world, probe]
    first = chain_start[probe]
    if base_frame != 0:
        j = chain[first]
        rotation, origin, speed, spin = advance(
            joint_kind[j], world, joint_q[j], joint_qd[j], joint_anchor[j], joint_frame[j], joint_turn[j],
            joint_axis[j], joint_offset[j], joint_centre[j], q, qd, rotation, origin, speed, spin,
        )  # fmt: skip
        # y' = R^T y changes by R^T (y x a) under a rotation a of the base, so its moment is (gradient x y);
        # in the base's axes gradient and y are as stored.
        moment = wp.cross(force, place) + wp.cross(push, moving) + wp.cross(by_normal[world, probe], upward)
        pull = force
        if valid[world, probe]:
            moment += wp.cross(by_point[world, probe], point[world, probe])
            pull += by_point[world, probe]
        joint_rotation = joint_frame[j]
        centre = origin + wp.quat_rotate(rotation, joint_offset[j])
        pulled = -wp.quat_rotate(rotation, pull)
        twisted = wp.quat_rotate(rotation, moment) + wp.cross(origin - centre, pulled)
        add_pose_gradient(world, joint_q[j], q, joint_rotation, pulled, twisted, grad_q)
        upward = wp.quat_rotate(rotation, upward)
        place = origin + wp.quat_rotate(rotation, place)
        moving = wp.quat_rotate(rotation, moving)
        force = wp.quat_rotate(rotation, force)
        push = wp.quat_rotate(rotation, push)
        rotation = wp.quaternion(zero, zero, zero, local.dtype(1.0))
        origin = type(local)()
        speed = type(local)()
        spin = type(local)()
    force += by_distance[world, probe] * upward

    for i in range(first, chain_start[probe + 1]):
        j = chain[i]
        joint_rotation = rotation * joint_frame[j]
        parent_spin = spin
        rotation, origin, speed, spin = advance(
            joint_kind[j], world, joint_q[j], joint_qd[j], joint_anchor[j], joint_frame[j], joint_turn[j],
            joint_axis[j], joint_offset[j], joint_centre[j], q, qd, rotation, origin, speed, spin,
        )  # fmt: skip
        accumulate(
            joint_kind[j], world, joint_q[j], joint_qd[j], joint_axis[j], q, joint_rotation,
            origin + wp.quat_rotate(rotation, joint_offset[j]), origin + wp.quat_rotate(rotation, joint_centre[j]),
            parent_spin, spin, speed + wp.cross(spin, place - origin), place, moving, force, push, grad_q, grad_qd,
        )  # fmt: skip
