# SPDX-License-Identifier: Apache-2.0
"""Forward kinematics along a chain of joints and its adjoint, as Warp functions; codes of joint and shape kinds."""

from typing import Any

import warp as wp

from neurodyn.core.description.spec import JointKind

JOINT_KINDS: dict[JointKind, int] = {"revolute": 0, "prismatic": 1, "ball": 2, "free": 3, "screw": 4}
"""Codes of joints by `ChainJoint.moves_like`."""
REVOLUTE, PRISMATIC, BALL, FREE, SCREW = (wp.constant(number) for number in JOINT_KINDS.values())

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
    joint: Any,
    world: int,
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

    The arguments are the joint (`device_arrays.Precision`; F: `frame`, T: `turn`), positions, shape [worlds, nq],
    velocities, shape [worlds, nv], and the parent's rotation to the world, origin, velocity of the origin and angular
    velocity.

    Returns:
        Rotation, origin, velocity of the origin and angular velocity of the child body.
    """
    arm = wp.quat_rotate(rotation, joint.anchor)
    rest = rotation * joint.frame
    place = origin + arm
    if joint.kind == REVOLUTE:
        child = rest * wp.quat_from_axis_angle(joint.axis, q[world, joint.q]) * joint.turn
        lever = -wp.quat_rotate(child, joint.offset)
        child_spin = spin + wp.quat_rotate(rest, joint.axis) * qd[world, joint.qd]
        return child, place + lever, velocity + wp.cross(spin, arm) + wp.cross(child_spin, lever), child_spin
    if joint.kind == PRISMATIC:
        child = rest * joint.turn
        along = wp.quat_rotate(rest, joint.axis)
        lever = arm + along * q[world, joint.q] - wp.quat_rotate(child, joint.offset)
        return child, origin + lever, velocity + wp.cross(spin, lever) + along * qd[world, joint.qd], spin
    if joint.kind == SCREW:
        child = rest * wp.quat_from_axis_angle(joint.axis, q[world, joint.q]) * joint.turn
        along = wp.quat_rotate(rest, joint.slide)
        arm = arm + along * q[world, joint.q]
        lever = -wp.quat_rotate(child, joint.offset)
        child_spin = spin + wp.quat_rotate(rest, joint.axis) * qd[world, joint.qd]
        carried = velocity + wp.cross(spin, arm) + along * qd[world, joint.qd]
        return child, origin + arm + lever, carried + wp.cross(child_spin, lever), child_spin
    if joint.kind == BALL:
        child = rest * unit_quaternion(q, world, joint.q) * joint.turn
        lever = -wp.quat_rotate(child, joint.offset)
        child_spin = spin + wp.quat_rotate(rest, vector_at(qd, world, joint.qd))
        return child, place + lever, velocity + wp.cross(spin, arm) + wp.cross(child_spin, lever), child_spin
    child = rest * unit_quaternion(q, world, joint.q + 3) * joint.turn
    lever = arm + wp.quat_rotate(rest, vector_at(q, world, joint.q)) - wp.quat_rotate(child, joint.offset)
    own_spin = wp.quat_rotate(rest, vector_at(qd, world, joint.qd + 3))
    own = wp.quat_rotate(rest, vector_at(qd, world, joint.qd)) - wp.cross(own_spin, wp.quat_rotate(child, joint.centre))
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
    joint: Any,
    world: int,
    q: wp.array2d[Any],
    turn: Any,
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

    All arguments are in the world. `turn` is the rotation of the joint's frame in the parent, `place` the centre of
    the joint's rotation, `centre` the centre of mass of a free joint's child body, `child_velocity` the point's
    velocity if it were fixed to the child body. `point` and `velocity` are the point's position and velocity,
    `by_point` and `by_velocity` the gradients with respect to them.
    """
    arm = point - place
    relative = wp.cross(velocity - child_velocity, by_velocity)
    if joint.kind == PRISMATIC:
        along = wp.quat_rotate(turn, joint.axis)
        wp.atomic_add(grad_q, world, joint.q, wp.dot(along, by_point + wp.cross(by_velocity, child_spin)))
        wp.atomic_add(grad_qd, world, joint.qd, wp.dot(along, by_velocity))
    elif joint.kind == FREE:
        force = by_point + wp.cross(by_velocity, parent_spin)
        own_spin = child_spin - parent_spin
        moment = wp.cross(arm, force) + wp.cross(point - centre, wp.cross(by_velocity, own_spin)) + relative
        add_pose_gradient(world, joint.q, q, turn, force, moment, grad_q)
        _add_vector(grad_qd, world, joint.qd, wp.quat_rotate_inv(turn, by_velocity))
        spun = wp.cross(point - centre, by_velocity)
        _add_vector(grad_qd, world, joint.qd + 3, wp.quat_rotate_inv(turn, spun))
    else:
        moment = wp.cross(arm, by_point + wp.cross(by_velocity, child_spin)) + relative
        spun = wp.cross(arm, by_velocity)
        if joint.kind == REVOLUTE:
            along = wp.quat_rotate(turn, joint.axis)
            wp.atomic_add(grad_q, world, joint.q, wp.dot(along, moment))
            wp.atomic_add(grad_qd, world, joint.qd, wp.dot(along, spun))
        elif joint.kind == SCREW:
            along, slide = wp.quat_rotate(turn, joint.axis), wp.quat_rotate(turn, joint.slide)
            force = by_point + wp.cross(by_velocity, child_spin)
            wp.atomic_add(grad_q, world, joint.q, wp.dot(along, moment) + wp.dot(slide, force))
            wp.atomic_add(grad_qd, world, joint.qd, wp.dot(along, spun) + wp.dot(slide, by_velocity))
        else:
            turned = quaternion_gradient(q, world, joint.q, wp.quat_rotate_inv(turn, moment))
            _add_quaternion(grad_q, world, joint.q, turned)
            _add_vector(grad_qd, world, joint.qd, wp.quat_rotate_inv(turn, spun))
