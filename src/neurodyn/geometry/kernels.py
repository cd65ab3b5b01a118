# SPDX-License-Identifier: Apache-2.0
"""Warp kernels of proximity and contact features over (world, contact point) with adjoints, generic in precision."""

from typing import Any

import warp as wp

from neurodyn.geometry.chain import FROM_BASE, FROM_ROOT, HEIGHTFIELD, MESH, accumulate, add_pose_gradient, advance
from neurodyn.geometry.distances import heightfield_distance, mesh_distance, primitive_distance

# Warp compiles these functions and infers types that neither checker knows.
# ruff: noqa: ANN201
# pyright: basic, reportOperatorIssue=false, reportIndexIssue=false, reportArgumentType=false, reportCallIssue=false
# pyright: reportAttributeAccessIssue=false, reportGeneralTypeIssues=false, reportReturnType=false
# pyright: reportAssignmentType=false

FAR = wp.constant(1.0e3)
"""Distance reported without any ground [m]."""


@wp.func
def contact_depths(distance: Any, approach: Any, valid: bool, sight: Any):
    """Return nearness, depth, and predicted depth one frame ahead along the normal; zero beyond the margin.

    Depths are scaled so that 1 is a tenth of the margin.
    """
    zero = distance.dtype(0.0)
    gap = distance - sight[0]
    if valid and gap < sight[1]:
        scale = distance.dtype(10.0) / sight[1]
        ahead = gap + sight[2] * approach
        return type(sight)(
            distance.dtype(1.0) - gap / sight[1], wp.max(-gap, zero) * scale, wp.max(-ahead, zero) * scale
        )
    return type(sight)(zero, zero, zero)


@wp.kernel(enable_backward=False, module="unique")
def feature_adjoint_kernel(
    sight: wp.array[Any],
    distance: wp.array2d[Any],
    normal: wp.array2d[Any],
    position: wp.array2d[Any],
    velocity: wp.array2d[Any],
    valid: wp.array2d[wp.bool],
    by_features: wp.array2d[Any],
    by_distance: wp.array2d[Any],
    by_normal: wp.array2d[Any],
    by_position: wp.array2d[Any],
    by_velocity: wp.array2d[Any],
):
    """Write the gradients with respect to the readings of one contact point in one world from those of its features.

    The outputs are zero on entry.
    """
    world, contact_point = wp.tid()
    zero = distance.dtype(0.0)
    one = distance.dtype(1.0)
    upward = normal[world, contact_point]
    moving = velocity[world, contact_point]
    far = distance[world, contact_point]
    own = sight[contact_point]
    gap = far - own[0]
    if not (valid[world, contact_point] and gap < own[1]):
        return
    depths = contact_depths(far, wp.dot(upward, moving), True, own)
    fading = wp.min(depths[0], one)
    scale = distance.dtype(10.0) / own[1]
    first = 6 * contact_point
    by_depths = by_features[world, first]
    by_ahead_normal = by_features[world, first + 1]
    by_fading_normal = by_features[world, first + 3]
    by_fading_velocity = by_features[world, first + 4]
    by_fading_point = by_features[world, first + 5]
    by_near = by_depths[0]
    if depths[0] <= one:
        by_near += wp.dot(by_fading_normal, upward) + wp.dot(by_fading_velocity, moving)
        by_near += wp.dot(by_fading_point, position[world, contact_point] - far * upward)
    by_far = -by_near / own[1]
    if gap < zero:
        by_far -= scale * by_depths[1]
    by_upward = fading * by_fading_normal - (far * fading) * by_fading_point
    by_moving = fading * by_fading_velocity
    if depths[2] > zero:
        by_ahead = scale * (by_depths[2] + wp.dot(by_ahead_normal, upward))
        by_far -= by_ahead
        by_upward += depths[2] * by_ahead_normal - (own[2] * by_ahead) * moving
        by_moving += by_features[world, first + 2] - (own[2] * by_ahead) * upward
    by_distance[world, contact_point] = by_far - fading * wp.dot(by_fading_point, upward)
    by_normal[world, contact_point] = by_upward
    by_position[world, contact_point] = fading * by_fading_point
    by_velocity[world, contact_point] = by_moving


@wp.kernel(enable_backward=False, module="unique")
def proximity_kernel(
    q: wp.array2d[Any],
    qd: wp.array2d[Any],
    pose: wp.array[Any],
    base_frame: int,
    group: int,
    start: wp.array[int],
    chain_start: wp.array[int],
    chain: wp.array[int],
    contact_point_point: wp.array[Any],
    joints: wp.array[Any],
    shape_start: wp.array[int],
    shapes: wp.array[Any],
    pseudo_normals: wp.array2d[wp.vec3f],
    heights: wp.array[Any],
    ranges: wp.array[Any],
    distance: wp.array2d[Any],
    normal: wp.array2d[Any],
    point: wp.array2d[Any],
    position: wp.array2d[Any],
    velocity: wp.array2d[Any],
    valid: wp.array2d[wp.bool],
    sight: wp.array[Any],
    features: wp.array2d[Any],
):
    """Measure the contact points of one group in one world.

    The joints chain[chain_start[p]:chain_start[p + 1]] lead to contact point p. They start at the root, at the body of
    joint 0 or at the body of the previous contact point (start[p]); this group has visited the latter two.
    World w has the shapes before shape_start[0], which all worlds share, and those from shape_start[w] to before
    shape_start[w + 1]. If shape_start has one entry, all shapes are shared. With `base_frame`, joint 0 is free and the
    first of every group, and outputs are along the axes of its child body.

    Readings (`distance` to `valid`) and contact features (six vectors per contact point) are written if their arrays
    have rows.
    """
    world, part = wp.tid()
    zero = distance.dtype(0.0)
    one = distance.dtype(1.0)
    far = distance.dtype(FAR)
    still = type(contact_point_point[0])()
    upright = wp.quaternion(zero, zero, zero, one)
    # Copied one by one: in Warp a tuple assignment only creates aliases.
    rotation = wp.copy(upright)
    origin = wp.copy(still)
    speed = wp.copy(still)
    spin = wp.copy(still)
    base_rotation = wp.copy(upright)
    base_origin = wp.copy(still)
    base_speed = wp.copy(still)
    base_spin = wp.copy(still)
    # Matrices, because each is applied several times.
    to_base = wp.quat_to_matrix(upright)
    scene = pose[wp.min(world, pose.shape[0] - 1)]
    scene_rotation = wp.quat_to_matrix(wp.transform_get_rotation(scene))
    scene_origin = wp.transform_get_translation(scene)
    shape_count = int(shape_start[0])
    if shape_start.shape[0] > 1:
        shape_count += shape_start[world + 1] - shape_start[world]
    for contact_point in range(part * group, wp.min((part + 1) * group, contact_point_point.shape[0])):
        if start[contact_point] == FROM_ROOT:
            rotation = wp.copy(upright)
            origin = wp.copy(still)
            speed = wp.copy(still)
            spin = wp.copy(still)
        elif start[contact_point] == FROM_BASE:
            rotation = wp.copy(base_rotation)
            origin = wp.copy(base_origin)
            speed = wp.copy(base_speed)
            spin = wp.copy(base_spin)
        for i in range(chain_start[contact_point], chain_start[contact_point + 1]):
            j = chain[i]
            rotation, origin, speed, spin = advance(joints[j], world, q, qd, rotation, origin, speed, spin)
            if j == 0:
                base_rotation = wp.copy(rotation)
                base_origin = wp.copy(origin)
                base_speed = wp.copy(speed)
                base_spin = wp.copy(spin)
                to_base = wp.transpose(wp.quat_to_matrix(rotation))
        arm = wp.quat_rotate(rotation, contact_point_point[contact_point])
        place = origin + arm
        moving = speed + wp.cross(spin, arm)

        seen = (place - scene_origin) @ scene_rotation
        # Written out, because functions take arrays by value, which would cost more than a plane does.
        best = wp.copy(far)
        gradient = wp.copy(still)
        for number in range(shape_count):
            shape = number
            if number >= shape_start[0]:
                shape = number - shape_start[0] + shape_start[world]
            ball = shapes[shape].ball
            reach = wp.length(seen - type(seen)(ball[0], ball[1], ball[2])) - ball[3]
            if ball[3] >= zero and reach >= best:
                continue
            shape_axes = shapes[shape].rotation
            local = (seen - shapes[shape].origin) @ shape_axes
            gap, outward = primitive_distance(shapes[shape].kind, local, shapes[shape].size)
            if shapes[shape].kind == MESH:
                gap, outward = mesh_distance(shapes[shape].mesh, pseudo_normals, shapes[shape].first_face, local, far)
            elif shapes[shape].kind == HEIGHTFIELD:
                gap, outward = heightfield_distance(heights, ranges, shapes[shape].grid, shapes[shape].size, local, far)
            if gap < best:
                best = gap
                gradient = shape_axes @ outward
        hit = best < far
        upward = scene_rotation @ gradient
        if base_frame != 0:
            upward = to_base @ upward
            place = to_base @ (place - base_origin)
            moving = to_base @ moving
        ground = place - best * upward
        if distance.shape[0] > 0:
            distance[world, contact_point] = best
            normal[world, contact_point] = upward
            point[world, contact_point] = wp.where(hit, ground, still)
            position[world, contact_point] = place
            velocity[world, contact_point] = moving
            valid[world, contact_point] = hit
        if features.shape[0] > 0:
            depths = contact_depths(best, wp.dot(upward, moving), hit, sight[contact_point])
            fading = wp.min(depths[0], one)
            first = 6 * contact_point
            features[world, first] = depths
            features[world, first + 1] = depths[2] * upward
            features[world, first + 2] = wp.where(depths[2] > zero, moving, still)
            features[world, first + 3] = fading * upward
            features[world, first + 4] = fading * moving
            features[world, first + 5] = fading * ground


@wp.kernel(enable_backward=False, module="unique")
def proximity_adjoint_kernel(
    q: wp.array2d[Any],
    qd: wp.array2d[Any],
    base_frame: int,
    group: int,
    chain_start: wp.array[int],
    chain: wp.array[int],
    contact_point_point: wp.array[Any],
    joints: wp.array[Any],
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
    """Add the gradients of the readings of one group of contact points in one world to the state's gradients.

    The ground point and the normal are held fixed in the world, so the gradient of the distance with respect to the
    contact point's position is the normal. Readings in base axes also depend on the base pose.
    """
    world, part = wp.tid()
    zero = by_distance.dtype(0.0)
    still = type(contact_point_point[0])()
    upright = wp.quaternion(zero, zero, zero, by_distance.dtype(1.0))
    for contact_point in range(part * group, wp.min((part + 1) * group, contact_point_point.shape[0])):
        rotation = wp.copy(upright)
        origin = wp.copy(still)
        speed = wp.copy(still)
        spin = wp.copy(still)
        upward = normal[world, contact_point]
        place = position[world, contact_point]
        moving = velocity[world, contact_point]
        force = by_position[world, contact_point]
        push = by_velocity[world, contact_point]
        first = chain_start[contact_point]
        if base_frame != 0:
            j = chain[first]
            rotation, origin, speed, spin = advance(joints[j], world, q, qd, rotation, origin, speed, spin)
            # y' = R^T y changes by R^T (y x a) under a rotation a of the base, so its moment is (gradient x y);
            # in the base's axes gradient and y are as stored.
            moment = wp.cross(force, place) + wp.cross(push, moving) + wp.cross(by_normal[world, contact_point], upward)
            pull = force
            if valid[world, contact_point]:
                moment += wp.cross(by_point[world, contact_point], point[world, contact_point])
                pull += by_point[world, contact_point]
            joint_rotation = joints[j].frame
            centre = origin + wp.quat_rotate(rotation, joints[j].offset)
            pulled = -wp.quat_rotate(rotation, pull)
            twisted = wp.quat_rotate(rotation, moment) + wp.cross(origin - centre, pulled)
            add_pose_gradient(world, joints[j].q, q, joint_rotation, pulled, twisted, grad_q)
            upward = wp.quat_rotate(rotation, upward)
            place = origin + wp.quat_rotate(rotation, place)
            moving = wp.quat_rotate(rotation, moving)
            force = wp.quat_rotate(rotation, force)
            push = wp.quat_rotate(rotation, push)
            rotation = wp.copy(upright)
            origin = wp.copy(still)
            speed = wp.copy(still)
            spin = wp.copy(still)
        force += by_distance[world, contact_point] * upward

        for i in range(first, chain_start[contact_point + 1]):
            j = chain[i]
            joint_rotation = rotation * joints[j].frame
            parent_spin = spin
            rotation, origin, speed, spin = advance(joints[j], world, q, qd, rotation, origin, speed, spin)
            turning, mass = wp.quat_rotate(rotation, joints[j].offset), wp.quat_rotate(rotation, joints[j].centre)
            accumulate(
                joints[j], world, q, joint_rotation, origin + turning, origin + mass, parent_spin, spin,
                speed + wp.cross(spin, place - origin), place, moving, force, push, grad_q, grad_qd,
            )  # fmt: skip
