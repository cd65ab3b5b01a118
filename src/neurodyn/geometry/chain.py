# SPDX-License-Identifier: Apache-2.0
"""Forward kinematics along a chain of joints and its adjoint, as Warp functions; codes of joint and shape kinds."""

from typing import Any

import warp as wp

from neurodyn.core.description.spec import COORDINATES

JOINT_KINDS = {kind: number for number, kind in enumerate(COORDINATES)}
REVOLUTE, PRISMATIC, BALL, FREE = (wp.constant(JOINT_KINDS[k]) for k in ("revolute", "prismatic", "ball", "free"))

SHAPE_KINDS = {"plane": 0, "box": 1, "sphere": 2, "capsule": 3, "cylinder": 4, "mesh": 5, "heightfield": 6}
PLANE, BOX, SPHERE, CAPSULE, CYLINDER, MESH, HEIGHTFIELD = map(wp.constant, range(7))

FROM_ROOT, FROM_BASE, FROM_BEFORE = map(wp.constant, range(3))


# Warp compiles these functions and infers types that neither checker knows.
# ruff: noqa: ANN201, ANN202
# pyright: basic, reportOperatorIssue=false, reportIndexIssue=false, reportArgumentType=false, reportCallIssue=false
# pyright: reportAttributeAccessIssue=false, reportGeneralTypeIssues=false, reportReturnType=false


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
    r"""Step from a parent body to the child body of one joint.

    For a revolute joint with axis a at angle q, and R the rotation of a body to the world, p its origin, w its angular
    velocity:

    $$R_c = R\,F\,e^{[a]q}\,T, \quad p_c = p + R\,r_{anchor} - R_c\,r_{offset}, \quad w_c = w + R F a\,\dot q$$

    The arguments are the joint's constants (F: `frame`, T: `turn`), the index of its first coordinate in `q` (shape
    [worlds, nq]) and `qd` (shape [worlds, nv]), and the parent's rotation to the world, origin, velocity of the origin
    and angular velocity.

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
    r"""Convert a gradient in a rotation vector (joint axes on the parent's side) to one in the quaternion.

    A rotation vector w changes a unit quaternion u by $\tfrac12 w\,u$ (w as a pure quaternion), so the gradient tangent
    to the unit sphere is $2 m u$. Normalisation divides it by the norm of the raw quaternion.
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
def add_pose_gradient(
    world: int, q_start: int, q: wp.array2d[Any], joint: Any, force: Any, moment: Any, grad_q: wp.array2d[Any]
):
    """Add a child's position and rotation-vector gradients to the gradient of a free joint's coordinates."""
    _add_vector(grad_q, world, q_start, wp.quat_rotate_inv(joint, force))
    turned = quaternion_gradient(q, world, q_start + 3, wp.quat_rotate_inv(joint, moment))
    _add_quaternion(grad_q, world, q_start + 3, turned)


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
    r"""Add the gradient of a point further down the chain to the gradients of one joint's coordinates.

    A rotation a of the joint turns everything behind it. A point at arm r moves by $a \times r$. Its velocity u
    relative to the joint's child body changes by $a \times u$. The velocity due to the child body's motion changes with
    the point, by $w \times (a \times r)$.

    All arguments are in the world. `joint` is the rotation of the joint's frame in the parent, `place` the centre of
    the joint's rotation, `centre` the centre of mass of a free joint's child body, `child_velocity` the point's
    velocity if it were fixed to the child body. `point` and `velocity` are the point's position and velocity,
    `by_point` and `by_velocity` the gradients with respect to them.
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
        add_pose_gradient(world, q_start, q, joint, force, moment, grad_q)
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
