# SPDX-License-Identifier: Apache-2.0
"""The articulated-body algorithm on floats or traced values."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from neurodyn.core.description.mechanism import INERTIA_ENTRIES, Link, Mechanism
from neurodyn.core.description.spec import places
from neurodyn.geometry.rotation import quaternion_matrix
from neurodyn.multibody.vectors import (
    EYE,
    ZERO,
    Matrix,
    Vector,
    array,
    axis_rotation,
    cross,
    dot,
    mirror,
    normalise,
    skew,
    symmetric_inverse,
)

Wrench = tuple[Vector, Vector]
"""Moment about the origin of a link's frame, and force, in that frame."""

Wrenches = dict[int, Wrench]
"""Wrenches by the index of their link."""


@dataclass
class Articulated:
    """Articulated inertia [[rotational, coupling], [coupling^T, linear]] and bias force in a link's frame."""

    rotational: Matrix
    coupling: Matrix
    linear: Matrix
    moment: Vector
    force: Vector


class SingleJoint:
    r"""A joint with one degree of freedom and motion subspace S = [angular; linear].

    $$U = I^A S, \qquad D = S^T U + \text{armature}, \qquad u = \tau - S^T p^A$$
    """

    def __init__(self, subspace: tuple[Vector, Vector], body: Articulated, torque: Any, armature: Any) -> None:
        self.angular, self.linear = angular, linear = subspace
        self.torque = torque
        self.plain = isinstance(armature, float) and armature == 0.0
        self.upper = body.rotational @ angular + body.coupling @ linear
        self.lower = body.coupling.T @ angular + body.linear @ linear
        inertia = dot(angular, self.upper) + dot(linear, self.lower)
        self.inverse = 1.0 / (inertia + armature)
        self.rest = torque - (dot(angular, body.moment) + dot(linear, body.force))

    def reduce(self, body: Articulated) -> Articulated:
        """Return the inertia and bias transmitted to the parent, without the velocity-product term."""
        upper, lower, u = self.inverse * self.upper, self.inverse * self.lower, self.rest
        reduced = Articulated(
            mirror(body.rotational - np.outer(upper, self.upper)),
            body.coupling - np.outer(upper, self.lower),
            mirror(body.linear - np.outer(lower, self.lower)),
            body.moment + u * upper,
            body.force + u * lower,
        )
        if self.plain:
            self._release(reduced)
        return reduced

    def _release(self, reduced: Articulated) -> None:
        """Set to exactly zero the inertia along a joint without rotor inertia, which offers no resistance there."""
        turns = self.linear is ZERO
        if not turns and self.angular is not ZERO:
            return  # a screw
        for k, share in enumerate(self.angular if turns else self.linear):
            if not (isinstance(share, float) and abs(share) == 1.0):
                continue
            square = reduced.rotational if turns else reduced.linear
            for i in range(3):
                square[i][k] = square[k][i] = 0.0
                if turns:
                    reduced.coupling[k][i] = 0.0
                else:
                    reduced.coupling[i][k] = 0.0
            (reduced.moment if turns else reduced.force)[k] = share * self.torque

    def __call__(self, spin: Vector, linear: Vector) -> tuple[list[Any], Vector, Vector]:
        """Return the joint acceleration and its contribution to the link's angular and linear acceleration.

        Arguments are the angular and linear acceleration that the parent imparts.
        """
        rate = self.inverse * (self.rest - dot(self.upper, spin) - dot(self.lower, linear))
        return [rate], rate * self.angular, rate * self.linear


class PrescribedJoint:
    """A joint with one degree of freedom and prescribed acceleration."""

    def __init__(self, subspace: tuple[Vector, Vector], body: Articulated, rate: Any) -> None:
        self.rate = rate
        self.spin, self.linear = spin, linear = rate * subspace[0], rate * subspace[1]
        self.moment = body.rotational @ spin + body.coupling @ linear
        self.force = body.coupling.T @ spin + body.linear @ linear

    def reduce(self, body: Articulated) -> Articulated:
        """Return the inertia and bias transmitted to the parent; see `SingleJoint.reduce`."""
        return Articulated(
            body.rotational, body.coupling, body.linear, body.moment + self.moment, body.force + self.force
        )

    def __call__(self, spin: Vector, linear: Vector) -> tuple[list[Any], Vector, Vector]:
        """Return the joint acceleration and its contribution to the link's acceleration; see `SingleJoint.__call__`."""
        return [self.rate], self.spin, self.linear


class BallJoint:
    """A ball joint: the equations of `SingleJoint` with S = [1; 0]."""

    def __init__(self, body: Articulated, torque: Vector, armature: Any) -> None:
        self.rotational, self.coupling = body.rotational, body.coupling
        self.inverse = symmetric_inverse(body.rotational + armature * EYE)
        self.rest = torque - body.moment

    def reduce(self, body: Articulated) -> Articulated:
        """Return the inertia and bias transmitted to the parent; see `SingleJoint.reduce`."""
        k = body.rotational @ self.inverse
        j = body.coupling.T @ self.inverse
        return Articulated(
            mirror(body.rotational - k @ body.rotational),
            body.coupling - k @ body.coupling,
            mirror(body.linear - j @ body.coupling),
            body.moment + k @ self.rest,
            body.force + j @ self.rest,
        )

    def __call__(self, spin: Vector, linear: Vector) -> tuple[list[Any], Vector, Vector]:
        """Return the joint acceleration and its contribution to the link's acceleration; see `SingleJoint.__call__`."""
        own = self.inverse @ (self.rest - (self.rotational @ spin + self.coupling @ linear))
        return [*own], own, ZERO


class FreeJoint:
    r"""A floating base: $[I, H; H^T, M] [\dot w; \dot v] = rest$, by the Schur complement of M, gravity included."""

    def __init__(self, body: Articulated, torque: Vector) -> None:
        self.body = body
        self.rest = torque[:3] - body.moment, torque[3:] - body.force

    def __call__(self, spin: Vector, linear: Vector) -> tuple[list[Any], Vector, Vector]:
        """Return the joint acceleration and its contribution to the link's acceleration; see `SingleJoint.__call__`."""
        body, (moment, force) = self.body, self.rest
        light = symmetric_inverse(body.linear)
        k = body.coupling @ light
        schur = body.rotational - k @ body.coupling.T
        own_spin = symmetric_inverse(schur) @ (moment - k @ force)
        total = light @ (force - body.coupling.T @ own_spin)
        # The forces give the total acceleration; subtract what the parent imparts (minus gravity).
        return [*own_spin, *(total - linear)], own_spin - spin, total - linear


Quantity = Callable[[str], Any]
"""Returns a quantity by name: a number, or a traced value if it is a parameter."""


@dataclass
class RelativeMotion:
    r"""Pose of a link relative to its parent, and its velocity in its own frame."""

    rotation: Matrix  # from the link's frame to its parent's (the world's at the root)
    offset: Vector  # origin of the link's frame in its parent's frame
    spin: Vector
    velocity: Vector  # of the frame's origin
    spin_bias: Vector  # angular part of the velocity product v x S qd
    velocity_bias: Vector


class Tree:
    """A mechanism with the values of its quantities and constants expressed in the links' joint frames.

    Attributes:
        mechanism: The mechanism.
        links: Its links.
        quantity: Returns a quantity by name.
        dofs: Velocity coordinate of each joint with one degree of freedom, by name.
        index_of: Indices of the links by the joint that moves them.
    """

    def __init__(self, mechanism: Mechanism, quantity: Quantity, *, prescribed: bool = False) -> None:
        """Express a mechanism's constants in its links' frames.

        Args:
            mechanism: The mechanism.
            quantity: Returns a quantity by name.
            prescribed: Whether "torques" of joints of one degree of freedom are their accelerations.
        """
        self._prescribed = prescribed
        self.mechanism = mechanism
        self.links = mechanism.links
        self.quantity = quantity
        self._child_rotation = [array(quaternion_matrix(link.joint.child_frame[3:])) for link in self.links]
        self._places = places(mechanism.joints)
        joints = zip(self._places, mechanism.joints, strict=True)
        self.dofs = {joint.name: place.qd.start for place, joint in joints if joint.scalar}
        self.index_of = {link.joint.name: index for index, link in enumerate(self.links)}

    def q_of(self, index: int, q: list[Any]) -> list[Any]:
        """Return the position coordinates of a link's joint."""
        return q[self._places[index].q]

    def v_of(self, index: int, qd: list[Any]) -> list[Any]:
        """Return the velocity coordinates of a link's joint."""
        return qd[self._places[index].qd]

    def vector(self, name: str, parts: str = "xyz") -> Vector:
        """Return a vector-valued quantity."""
        return array([self.quantity(f"{name}.{part}") for part in parts])

    def axis(self, index: int) -> Vector:
        """Return the unit axis of a joint with one degree of freedom in the link's frame."""
        return normalise(self.vector(f"{self.links[index].joint.name}.axis"))

    def subspace(self, index: int) -> tuple[Vector, Vector]:
        """Return angular and linear velocity across a joint at a rate of 1, in the link's frame; see `axis`."""
        axis = self.axis(index)
        turn, slide = self.links[index].joint.shares
        return axis if turn else ZERO, axis if slide == 1.0 else slide * axis if slide else ZERO

    def in_link_frame(self, index: int, point: Vector) -> Vector:
        """Transform a point from a link's body frame to its joint frame."""
        frame = self.links[index].joint.child_frame
        return self._child_rotation[index].T @ (point - array(frame[:3]))

    def in_body_frame(self, index: int, point: Vector) -> Vector:
        """Transform a point from a link's joint frame to its body frame; the inverse of `in_link_frame`."""
        frame = self.links[index].joint.child_frame
        return array(frame[:3]) + self._child_rotation[index] @ point

    def rotate_to_body(self, index: int, direction: Vector) -> Vector:
        """Rotate a direction from a link's joint frame to its body frame."""
        return self._child_rotation[index] @ direction

    def rotate_to_link(self, index: int, direction: Vector) -> Vector:
        """Rotate a direction from a link's body frame to its joint frame."""
        return self._child_rotation[index].T @ direction

    def centre(self, index: int) -> Vector:
        """Return the centre of mass in the link's frame."""
        return self.in_link_frame(index, self.vector(f"{self.links[index].joint.name}.com"))

    def reference(self, index: int) -> Vector:
        """Return the point of a free joint whose velocity is in `qd`: the nominal centre of mass, in the link's frame.

        States and logs refer to this point of the base. It stays as declared while masses are identified.
        """
        return self.in_link_frame(index, array(self.links[index].com))

    def centripetal(self, q: list[Any], qd: list[Any]) -> dict[int, Any]:
        """Return the centripetal acceleration of free joints' reference points, by velocity coordinate.

        Empty unless `SoftConstraints.free_point` is "origin" and the reference point lies elsewhere.
        """
        result: dict[int, Any] = {}
        if self.mechanism.constraints.free_point != "origin":
            return result
        for index, link in enumerate(self.links):
            if link.joint.kind == "free" and any(self.reference(index)):
                spin, arm = array(self.v_of(index, qd)[3:]), self.arm(index, q)
                result |= zip(range(len(qd))[self._places[index].qd], cross(spin, cross(spin, arm)), strict=False)
        return result

    def arm(self, index: int, q: list[Any]) -> Vector:
        """Return the reference point of a free joint relative to the origin of its link, in the axes of its `qd`."""
        return array(quaternion_matrix(self.q_of(index, q)[3:])) @ self.reference(index)

    def inertia(self, index: int) -> Matrix:
        """Return the inertia about the centre of mass in axes of the link's frame."""
        name, parts = f"{self.links[index].joint.name}.inertia", INERTIA_ENTRIES
        xx, yy, zz, xy, xz, yz = (self.quantity(f"{name}.{part}") for part in parts)
        rotation = self._child_rotation[index]
        return rotation.T @ (array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]]) @ rotation)

    def base(self, index: int) -> tuple[Matrix, Vector]:
        """Return rotation and origin of a joint's zero position in the parent link's frame (or the world)."""
        joint = self.links[index].joint
        rotation, origin = array(quaternion_matrix(joint.parent_frame[3:])), self.vector(f"{joint.name}.origin")
        if joint.parent < 0:
            return rotation, origin
        return self._child_rotation[joint.parent].T @ rotation, self.in_link_frame(joint.parent, origin)

    def motions(self, q: list[Any], qd: list[Any]) -> list[RelativeMotion]:
        """Return the motion of every link (first pass); q and qd in Newton's convention, quaternions of unit length."""
        motions: list[RelativeMotion] = []
        for index, link in enumerate(self.links):
            rest_rotation, rest_origin = self.base(index)
            rotation, shift, spin, velocity = self._joint_motion(index, link, self.q_of(index, q), self.v_of(index, qd))
            offset = rest_origin + rest_rotation @ shift
            rotation = rest_rotation @ rotation
            bias = (ZERO, ZERO)
            if link.joint.parent >= 0:
                parent = motions[link.joint.parent]
                carried_spin = rotation.T @ parent.spin
                carried = rotation.T @ (parent.velocity + cross(parent.spin, offset))
                own_spin, own = spin, velocity
                spin, velocity = carried_spin + spin, carried + velocity
                bias = cross(spin, own_spin), cross(spin, own) + cross(velocity, own_spin)
            motions.append(RelativeMotion(rotation, offset, spin, velocity, *bias))
        return motions

    def _joint_motion(
        self, index: int, link: Link, q: list[Any], qd: list[Any]
    ) -> tuple[Matrix, Vector, Vector, Vector]:
        """Return rotation, translation, angular and linear velocity across a joint; velocities in the link's frame."""
        if link.joint.scalar:
            angular, linear = self.subspace(index)
            rotation = axis_rotation(angular, q[0]) if link.joint.shares[0] else EYE
            return rotation, q[0] * linear, qd[0] * angular, qd[0] * linear
        rotation = array(quaternion_matrix(q[-4:]))
        spin = rotation.T @ array(qd[-3:])
        if link.joint.kind == "ball":
            return rotation, ZERO, spin, ZERO
        return rotation, array(q[:3]), spin, rotation.T @ array(qd[:3]) - cross(spin, self.reference(index))

    def accelerations(
        self, motions: list[RelativeMotion], q: list[Any], torque: list[Any], wrenches: Wrenches | None = None
    ) -> list[Any]:
        """Return the time derivative of `qd` in Newton's convention (second and third pass).

        Torques of free and ball joints are along the axes of the joint's frame in the parent; the force of a free joint
        acts at its reference point. `wrenches` are external.
        """
        bodies = [self._body(index, motion, (wrenches or {}).get(index)) for index, motion in enumerate(motions)]
        solved: list[Any] = [None] * len(bodies)
        for index in range(len(bodies) - 1, -1, -1):
            motion, parent = motions[index], self.links[index].joint.parent
            own = self._own_torque(index, motion, array(self.v_of(index, torque)))
            solved[index] = self._joint_equation(index, bodies[index], own)
            if parent >= 0:
                _carry(bodies[parent], solved[index].reduce(bodies[index]), motion)
        return self._outward(motions, solved)

    def _own_torque(self, index: int, motion: RelativeMotion, torque: Vector) -> Vector:
        """Transform a joint's generalised forces to the coordinates of the dynamics."""
        joint = self.links[index].joint
        if joint.scalar:
            return torque
        rotation = self._joint_rotation(index, motion)
        if joint.kind == "ball":
            return rotation.T @ torque
        force, moment = rotation.T @ torque[:3], rotation.T @ torque[3:]
        return array([*(moment + cross(self.reference(index), force)), *force])

    def _joint_rotation(self, index: int, motion: RelativeMotion) -> Matrix:
        """Return the rotation across a joint, from the link's frame to the joint's frame in the parent."""
        return self.base(index)[0].T @ motion.rotation

    def _body(self, index: int, motion: RelativeMotion, wrench: Wrench | None) -> Articulated:
        mass, c = self.quantity(f"{self.links[index].joint.name}.mass"), self.centre(index)
        coupling = skew(mass * c)
        steiner = mass * dot(c, c) * EYE - np.outer(mass * c, c)
        rotational = self.inertia(index) + steiner
        w, v = motion.spin, motion.velocity
        momentum = mass * (v + cross(w, c))
        angular = rotational @ w + cross(mass * c, v)
        moment, force = cross(w, angular) + cross(v, momentum), cross(w, momentum)
        if wrench is not None:
            moment, force = moment - wrench[0], force - wrench[1]
        return Articulated(rotational, coupling, mass * EYE, moment, force)

    def spatial_accelerations(self, motions: list[RelativeMotion], rates: list[Any]) -> list[tuple[Vector, Vector]]:
        """Return the spatial acceleration of each link minus gravity, angular and linear, in the link's frame.

        `rates` is the time derivative of `qd` in Newton's convention.
        """
        gravity, accelerations = self.vector("gravity"), list[tuple[Vector, Vector]]()
        for index, motion in enumerate(motions):
            spin, linear = self._impart(index, motion, gravity, accelerations)
            own_spin, own_linear = self._own_acceleration(index, motion, self.v_of(index, rates))
            accelerations.append((spin + own_spin, linear + own_linear))
        return accelerations

    def _impart(
        self, index: int, motion: RelativeMotion, gravity: Vector, accelerations: list[tuple[Vector, Vector]]
    ) -> tuple[Vector, Vector]:
        """Return the spatial acceleration minus gravity that a link gets from its parent, in the link's frame."""
        parent = self.links[index].joint.parent
        if parent < 0:
            return ZERO, -1.0 * (motion.rotation.T @ gravity)
        above, linear_above = accelerations[parent]
        spin = motion.rotation.T @ above
        linear = motion.rotation.T @ (linear_above + cross(above, motion.offset))
        return spin + motion.spin_bias, linear + motion.velocity_bias

    def _own_acceleration(self, index: int, motion: RelativeMotion, rates: list[Any]) -> tuple[Vector, Vector]:
        """Transform accelerations from Newton's coordinates to those of the dynamics; the inverse of `_rates`."""
        joint = self.links[index].joint
        if joint.scalar:
            angular, linear = self.subspace(index)
            return rates[0] * angular, rates[0] * linear
        rotation = self._joint_rotation(index, motion)
        angular = rotation.T @ array(rates[-3:])
        if joint.kind == "ball":
            return angular, ZERO
        w, c = motion.spin, self.reference(index)
        linear = rotation.T @ array(rates[:3]) - (cross(angular, c) + cross(w, cross(w, c)))
        return angular, linear - cross(w, motion.velocity)

    def inertial_wrench(self, index: int, motion: RelativeMotion, acceleration: tuple[Vector, Vector]) -> Wrench:
        """Return moment (about the frame's origin) and force that give a link this acceleration (see `carried`)."""
        body, (spin, linear) = self._body(index, motion, None), acceleration
        moment = body.rotational @ spin + body.coupling @ linear + body.moment
        return moment, body.coupling.T @ spin + body.linear @ linear + body.force

    def _outward(self, motions: list[RelativeMotion], solved: list[Any]) -> list[Any]:
        gravity, accelerations = self.vector("gravity"), list[tuple[Vector, Vector]]()
        result: list[Any] = []
        for index, motion in enumerate(motions):
            spin, linear = self._impart(index, motion, gravity, accelerations)
            own, own_spin, own_linear = solved[index](spin, linear)
            accelerations.append((spin + own_spin, linear + own_linear))
            result += self._rates(index, motion, own)
        return result

    def _rates(self, index: int, motion: RelativeMotion, own: list[Any]) -> list[Any]:
        """Transform accelerations from the coordinates of the dynamics to Newton's."""
        joint = self.links[index].joint
        if joint.scalar:
            return own
        rotation = self._joint_rotation(index, motion)
        if joint.kind == "ball":
            return [*(rotation @ array(own))]
        # `own` is a spatial acceleration minus gravity, so the origin's acceleration lacks w x v.
        angular, w, c = array(own[:3]), motion.spin, self.reference(index)
        centre = (array(own[3:]) + cross(w, motion.velocity)) + (cross(angular, c) + cross(w, cross(w, c)))
        return [*(rotation @ centre), *(rotation @ angular)]

    def _joint_equation(self, index: int, body: Articulated, torque: Vector) -> Any:
        """Return the joint's equation of motion, to be solved once the parent's acceleration is known."""
        joint = self.links[index].joint
        if joint.kind == "free":
            return FreeJoint(body, torque)
        if self._prescribed and joint.scalar:
            return PrescribedJoint(self.subspace(index), body, torque[0])
        armature = self.quantity(f"{joint.name}.armature")
        if joint.kind == "ball":
            return BallJoint(body, torque, armature)
        return SingleJoint(self.subspace(index), body, torque[0], armature)


def _carry(parent: Articulated, child: Articulated, motion: RelativeMotion) -> None:
    """Add a child's reduced inertia $I^a$ and bias $p^a$ to its parent's, in the parent's frame."""
    c, d = motion.spin_bias, motion.velocity_bias
    moment = child.moment + (child.rotational @ c + child.coupling @ d)
    force = child.force + (child.coupling.T @ c + child.linear @ d)
    rotation, arm = motion.rotation, skew(motion.offset)
    rotational, coupling, linear = (
        rotation @ (m @ rotation.T) for m in (child.rotational, child.coupling, child.linear)
    )
    rotational, linear = mirror(rotational), mirror(linear)
    lever = arm @ linear
    # [[1, r x], [0, 1]] [[I, H], [H^T, M]] [[1, 0], [-r x, 1]]
    moved = coupling + lever
    turned = (rotational + arm @ coupling.T) - moved @ arm
    parent.rotational = parent.rotational + mirror(turned)
    parent.coupling = parent.coupling + moved
    parent.linear = parent.linear + linear
    force = rotation @ force
    parent.moment = parent.moment + (rotation @ moment + cross(motion.offset, force))
    parent.force = parent.force + force
