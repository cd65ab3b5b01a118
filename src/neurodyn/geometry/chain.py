# SPDX-License-Identifier: Apache-2.0
# Warp compiles these functions, with types that it infers and that neither checker knows.
# ruff: noqa: ANN201, ANN202
# pyright: basic, reportOperatorIssue=false, reportIndexIssue=false, reportArgumentType=false, reportCallIssue=false
# pyright: reportAttributeAccessIssue=false, reportGeneralTypeIssues=false, reportReturnType=false
"""Motion of a body by the chain of joints that carries it, as Warp functions.

Conventions are Newton's: a free joint has the position of the child's origin and its quaternion (scalar last),
the velocity of the child's centre of mass and its angular velocity; a ball joint has a quaternion and the
angular velocity. Velocities of both are along the axes of the joint's frame in the parent, which are the
world's for a free joint with an identity frame. Quaternions are normalised before use.
"""

from typing import Any

import warp as wp

from neurodyn.geometry.kinds import BALL, FREE, PRISMATIC, REVOLUTE


@wp.func
def unit_quaternion(q: wp.array2d[Any], world: int, start: int):
    """Return four coordinates as a unit quaternion."""
    return wp.normalize(wp.quaternion(q[world, start], q[world, start + 1], q[world, start + 2], q[world, start + 3]))


@wp.func
def vector_at(qd: wp.array2d[Any], world: int, start: int):
    """Return three coordinates as a vector."""
    return wp.vector(qd[world, start], qd[world, start + 1], qd[world, start + 2])


@wp.func
def advance(
    kind: int,
    world: int,
    q_start: int,
    qd_start: int,
    anchor: Any,
    frame: Any,
    turn: Any,
    axis: Any,
    offset: Any,
    centre: Any,
    q: wp.array2d[Any],
    qd: wp.array2d[Any],
    rotation: Any,
    origin: Any,
    velocity: Any,
    spin: Any,
):
    """Step from a parent body to the child body of one joint.

    Args:
        kind: Kind of the joint.
        world: Row of `q` and `qd`.
        q_start: First position coordinate of the joint.
        qd_start: First velocity coordinate of the joint.
        anchor: Origin of the joint's frame in the parent body.
        frame: Rotation of the joint's frame in the parent body.
        turn: Rotation from the child body to the joint's frame in it.
        axis: Axis of a revolute or prismatic joint in the joint's frame.
        offset: Origin of the joint's frame in the child body.
        centre: Centre of mass of the child body of a free joint in its frame.
        q: Positions, shape [worlds, nq].
        qd: Velocities, shape [worlds, nv].
        rotation: Rotation of the parent body, body to world.
        origin: Origin of the parent body in the world.
        velocity: Velocity of the parent body's origin.
        spin: Angular velocity of the parent body.

    Returns:
        Rotation, origin, velocity of the origin and angular velocity of the child body.
    """
    arm = wp.quat_rotate(rotation, anchor)
    joint = rotation * frame
    place = origin + arm
    if kind == REVOLUTE:
        child = joint * wp.quat_from_axis_angle(axis, q[world, q_start]) * turn
        lever = -wp.quat_rotate(child, offset)
        child_spin = spin + wp.quat_rotate(joint, axis) * qd[world, qd_start]
        return child, place + lever, velocity + wp.cross(spin, arm) + wp.cross(child_spin, lever), child_spin
    if kind == PRISMATIC:
        child = joint * turn
        along = wp.quat_rotate(joint, axis)
        lever = arm + along * q[world, q_start] - wp.quat_rotate(child, offset)
        return child, origin + lever, velocity + wp.cross(spin, lever) + along * qd[world, qd_start], spin
    if kind == BALL:
        child = joint * unit_quaternion(q, world, q_start) * turn
        lever = -wp.quat_rotate(child, offset)
        child_spin = spin + wp.quat_rotate(joint, vector_at(qd, world, qd_start))
        return child, place + lever, velocity + wp.cross(spin, arm) + wp.cross(child_spin, lever), child_spin
    child = joint * unit_quaternion(q, world, q_start + 3) * turn
    lever = arm + wp.quat_rotate(joint, vector_at(q, world, q_start)) - wp.quat_rotate(child, offset)
    own_spin = wp.quat_rotate(joint, vector_at(qd, world, qd_start + 3))
    own = wp.quat_rotate(joint, vector_at(qd, world, qd_start)) - wp.cross(own_spin, wp.quat_rotate(child, centre))
    return child, origin + lever, velocity + wp.cross(spin, lever) + own, spin + own_spin


@wp.func
def quaternion_gradient(q: wp.array2d[Any], world: int, start: int, moment: Any):
    """Turn a gradient by a rotation vector (axes of the joint's frame in the parent) into one by the quaternion.

    A rotation vector w changes a unit quaternion u by w u / 2 (w as a pure quaternion), so the gradient that is
    tangent to the unit sphere is 2 m u; normalisation divides it by the norm of the quaternion as given.
    """
    raw = wp.quaternion(q[world, start], q[world, start + 1], q[world, start + 2], q[world, start + 3])
    unit = wp.normalize(raw)
    pure = wp.quaternion(moment[0], moment[1], moment[2], moment.dtype(0.0))
    return (pure * unit) * (moment.dtype(2.0) / wp.length(raw))


@wp.func
def _add_vector(gradient: wp.array2d[Any], world: int, start: int, vector: Any):
    wp.atomic_add(gradient, world, start, vector[0])
    wp.atomic_add(gradient, world, start + 1, vector[1])
    wp.atomic_add(gradient, world, start + 2, vector[2])


@wp.func
def _add_quaternion(gradient: wp.array2d[Any], world: int, start: int, quaternion: Any):
    for i in range(4):
        wp.atomic_add(gradient, world, start + i, quaternion[i])


@wp.func
def accumulate(
    kind: int,
    world: int,
    q_start: int,
    qd_start: int,
    axis: Any,
    q: wp.array2d[Any],
    joint: Any,
    place: Any,
    centre: Any,
    parent_spin: Any,
    child_spin: Any,
    child_velocity: Any,
    point: Any,
    velocity: Any,
    by_point: Any,
    by_velocity: Any,
    grad_q: wp.array2d[Any],
    grad_qd: wp.array2d[Any],
):
    """Add to the gradients by one joint's coordinates those that follow from a point further down the chain.

    A rotation of the joint about an axis a turns everything behind it: the point moves by a x r, the velocity
    that it has relative to the joint's child body by a x u, and the velocity that the child body gives it
    follows the point, by w x (a x r).

    Args:
        kind: Kind of the joint.
        world: Row of the gradients.
        q_start: First position coordinate of the joint.
        qd_start: First velocity coordinate of the joint.
        axis: Axis of a revolute or prismatic joint in the joint's frame.
        q: Positions, shape [worlds, nq].
        joint: Rotation of the joint's frame in the parent, to world.
        place: Place about which the joint turns, in the world.
        centre: Centre of mass of a free joint's child body, in the world.
        parent_spin: Angular velocity of the parent body.
        child_spin: Angular velocity of the child body.
        child_velocity: Velocity of the point as if it were fixed to the child body.
        point: The point, in the world.
        velocity: Its velocity.
        by_point: Gradient by the point.
        by_velocity: Gradient by its velocity.
        grad_q: Gradient by `q`, shape [worlds, nq].
        grad_qd: Gradient by `qd`, shape [worlds, nv].
    """
    arm = point - place
    relative = wp.cross(velocity - child_velocity, by_velocity)
    if kind == PRISMATIC:
        along = wp.quat_rotate(joint, axis)
        wp.atomic_add(grad_q, world, q_start, wp.dot(along, by_point + wp.cross(by_velocity, child_spin)))
        wp.atomic_add(grad_qd, world, qd_start, wp.dot(along, by_velocity))
    elif kind == FREE:
        force = by_point + wp.cross(by_velocity, parent_spin)
        own_spin = child_spin - parent_spin
        moment = wp.cross(arm, force) + wp.cross(point - centre, wp.cross(by_velocity, own_spin)) + relative
        _add_vector(grad_q, world, q_start, wp.quat_rotate_inv(joint, force))
        turned = quaternion_gradient(q, world, q_start + 3, wp.quat_rotate_inv(joint, moment))
        _add_quaternion(grad_q, world, q_start + 3, turned)
        _add_vector(grad_qd, world, qd_start, wp.quat_rotate_inv(joint, by_velocity))
        spun = wp.cross(point - centre, by_velocity)
        _add_vector(grad_qd, world, qd_start + 3, wp.quat_rotate_inv(joint, spun))
    else:
        moment = wp.cross(arm, by_point + wp.cross(by_velocity, child_spin)) + relative
        spun = wp.cross(arm, by_velocity)
        if kind == REVOLUTE:
            along = wp.quat_rotate(joint, axis)
            wp.atomic_add(grad_q, world, q_start, wp.dot(along, moment))
            wp.atomic_add(grad_qd, world, qd_start, wp.dot(along, spun))
        else:
            turned = quaternion_gradient(q, world, q_start, wp.quat_rotate_inv(joint, moment))
            _add_quaternion(grad_q, world, q_start, turned)
            _add_vector(grad_qd, world, qd_start, wp.quat_rotate_inv(joint, spun))


@wp.func
def add_pose_gradient(
    world: int, q_start: int, q: wp.array2d[Any], joint: Any, force: Any, moment: Any, grad_q: wp.array2d[Any]
):
    """Add to the gradient by a free joint's position those by its child's place and rotation vector."""
    _add_vector(grad_q, world, q_start, wp.quat_rotate_inv(joint, force))
    turned = quaternion_gradient(q, world, q_start + 3, wp.quat_rotate_inv(joint, moment))
    _add_quaternion(grad_q, world, q_start + 3, turned)
