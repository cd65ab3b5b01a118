# SPDX-License-Identifier: Apache-2.0
r"""Forward dynamics of a tree by the articulated-body algorithm, on floats or traced values.

Featherstone, Rigid Body Dynamics Algorithms (2008), table 7.1. With the spatial velocity $v_i$, the joint's motion
subspace $S_i$ and the transform ${}^iX_{p}$ from the parent p of link i, three passes over the links compute

$$v_i = {}^iX_p v_p + S_i \dot q_i, \qquad c_i = v_i \times S_i \dot q_i \qquad \text{(outward)}$$

$$U_i = I^A_i S_i, \quad D_i = S_i^T U_i, \quad u_i = \tau_i - S_i^T p^A_i, \quad
I^a_i = I^A_i - U_i D_i^{-1} U_i^T, \quad p^a_i = p^A_i + I^a_i c_i + U_i D_i^{-1} u_i \qquad \text{(inward)}$$

$$a'_i = {}^iX_p a_p + c_i, \qquad \ddot q_i = D_i^{-1}(u_i - U_i^T a'_i), \qquad a_i = a'_i + S_i \ddot q_i
\qquad \text{(outward, } a_0 = -g)$$

Every link has a frame at its joint: the origin and axes of the joint's frame in the child body. Velocities,
accelerations and forces of links are in these frames, and the dynamics' own velocity coordinates are constant there;
Newton's coordinates (`geometry.chain`) are converted into them and back.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from neurodyn.core.joint_kinds import places
from neurodyn.core.mechanism import Link, Mechanism
from neurodyn.geometry.rotation import quaternion_matrix
from neurodyn.multibody.joint_equations import ZERO, Articulated, BallJoint, FreeJoint, SingleJoint
from neurodyn.multibody.vectors import (
    IDENTITY,
    Matrix,
    Vector,
    add,
    apply,
    apply_transposed,
    axis_rotation,
    cross,
    dot,
    minus,
    mirrored,
    normalised,
    outer,
    plus,
    product,
    scale,
    skew,
    subtract,
    transpose,
)

Quantity = Callable[[str], Any]
"""The value of a quantity by its name: a number, or a traced value where it is a parameter."""


@dataclass
class LinkMotion:
    r"""Pose and velocity of a link relative to its parent; vectors in the link's frame unless said otherwise.

    Attributes:
        turn: Rotation from the link's frame to its parent's (the world's at the root).
        offset: Origin of the link's frame in its parent's frame.
        spin: Angular velocity.
        velocity: Velocity of the frame's origin.
        spin_bias: Angular part of the velocity product $c = v \times S \dot q$.
        velocity_bias: Linear part of it.
    """

    turn: Matrix
    offset: Vector
    spin: Vector
    velocity: Vector
    spin_bias: Vector
    velocity_bias: Vector


class Tree:
    """A mechanism with the values of its quantities, and constants folded with the frames of its links."""

    def __init__(self, mechanism: Mechanism, quantity: Quantity) -> None:
        self.mechanism = mechanism
        self.links = mechanism.links
        self.quantity = quantity
        self._child_turn = [quaternion_matrix(list(link.joint.child_frame[3:])) for link in self.links]
        self._places = places(mechanism.joints)

    def q_of(self, index: int, q: list[Any]) -> list[Any]:
        """Return the position coordinates of a link's joint."""
        return q[self._places[index].q]

    def v_of(self, index: int, qd: list[Any]) -> list[Any]:
        """Return the velocity coordinates of a link's joint."""
        return qd[self._places[index].qd]

    def single_dofs(self) -> list[tuple[int, str]]:
        """Return velocity coordinate and name of the links with one degree of freedom."""
        pairs = zip(self._places, self.mechanism.joints, strict=True)
        return [(place.qd.start, joint.name) for place, joint in pairs if joint.scalar]

    def vector(self, name: str, parts: str = "xyz") -> Vector:
        """Return a quantity that is a vector."""
        return [self.quantity(f"{name}.{part}") for part in parts]

    def axis(self, index: int) -> Vector:
        """Return the unit axis of a revolute or prismatic joint, in the link's frame."""
        joint = self.links[index].joint
        return normalised(self.vector(f"{joint.name}.axis"))

    def in_link_frame(self, index: int, point: Vector) -> Vector:
        """Turn a place in a link's body frame into one in its joint's frame."""
        frame = self.links[index].joint.child_frame
        return apply_transposed(self._child_turn[index], subtract(point, list(frame[:3])))

    def centre(self, index: int) -> Vector:
        """Return the centre of mass in the link's frame."""
        return self.in_link_frame(index, self.vector(f"{self.links[index].joint.name}.com"))

    def inertia(self, index: int) -> Matrix:
        """Return the inertia about the centre of mass, along the axes of the link's frame."""
        xx, yy, zz, xy, xz, yz = (
            self.quantity(f"{self.links[index].joint.name}.inertia.{part}")
            for part in ("xx", "yy", "zz", "xy", "xz", "yz")
        )
        turn = self._child_turn[index]
        return product(transpose(turn), product([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]], turn))

    def base(self, index: int) -> tuple[Matrix, Vector]:
        """Return rotation and origin of a joint's frame at rest, in the frame of the parent link (or the world)."""
        joint = self.links[index].joint
        turn, origin = quaternion_matrix(list(joint.parent_frame[3:])), self.vector(f"{joint.name}.origin")
        if joint.parent < 0:
            return turn, origin
        return product(transpose(self._child_turn[joint.parent]), turn), self.in_link_frame(joint.parent, origin)

    def motions(self, q: list[Any], qd: list[Any]) -> list[LinkMotion]:
        """Return the motion of every link (first pass of the algorithm).

        Args:
            q: Positions in Newton's convention, `mechanism.nq` scalars; quaternions of unit length.
            qd: Velocities, `mechanism.nv` scalars.
        """
        motions: list[LinkMotion] = []
        for index, link in enumerate(self.links):
            rest_turn, rest_origin = self.base(index)
            turn, shift, spin, velocity = self._joint_motion(index, link, self.q_of(index, q), self.v_of(index, qd))
            offset = add(rest_origin, apply(rest_turn, shift))
            turn = product(rest_turn, turn)
            bias = (ZERO, ZERO)
            if link.joint.parent >= 0:
                parent = motions[link.joint.parent]
                carried_spin = apply_transposed(turn, parent.spin)
                carried = apply_transposed(turn, add(parent.velocity, cross(parent.spin, offset)))
                own_spin, own = spin, velocity
                spin, velocity = add(carried_spin, spin), add(carried, velocity)
                bias = cross(spin, own_spin), add(cross(spin, own), cross(velocity, own_spin))
            motions.append(LinkMotion(turn, offset, spin, velocity, *bias))
        return motions

    def _joint_motion(
        self, index: int, link: Link, q: list[Any], qd: list[Any]
    ) -> tuple[Matrix, Vector, Vector, Vector]:
        """Return a joint's rotation and shift, and its own angular and linear velocity in the link's frame."""
        kind = link.joint.kind
        if kind == "revolute":
            axis = self.axis(index)
            return axis_rotation(axis, q[0]), ZERO, scale(qd[0], axis), ZERO
        if kind == "prismatic":
            axis = self.axis(index)
            return IDENTITY, scale(q[0], axis), ZERO, scale(qd[0], axis)
        turn = quaternion_matrix(q[-4:])
        spin = apply_transposed(turn, qd[-3:])
        if kind == "ball":
            return turn, ZERO, spin, ZERO
        shift = q[:3]
        return turn, shift, spin, subtract(apply_transposed(turn, qd[:3]), cross(spin, self.centre(index)))

    def accelerations(
        self,
        motions: list[LinkMotion],
        q: list[Any],
        torque: list[Any],
        wrenches: dict[int, tuple[Vector, Vector]] | None = None,
    ) -> list[Any]:
        """Return the time derivative of `qd` in Newton's convention (second and third pass).

        Args:
            motions: What `motions` returned.
            q: Positions.
            torque: Generalised forces of actuators, friction, springs and limits, `mechanism.nv` scalars. Those of free
                and ball joints are along the axes of the joint's frame in the parent; the force of a free joint acts at
                the centre of mass.
            wrenches: External moment (about the origin of the link's frame) and force by link index, in its frame.
        """
        bodies = [self._body(index, motion, (wrenches or {}).get(index)) for index, motion in enumerate(motions)]
        solved: list[Any] = [None] * len(bodies)
        for index in range(len(bodies) - 1, -1, -1):
            motion, parent = motions[index], self.links[index].joint.parent
            own = self._own_torque(index, motion, self.v_of(index, torque))
            solved[index] = self._joint_equation(index, bodies[index], own)
            if parent >= 0:
                _carry(bodies[parent], _reduced(bodies[index], solved[index], motion), motion)
        return self._outward(motions, q, solved)

    def _own_torque(self, index: int, motion: LinkMotion, torque: list[Any]) -> list[Any]:
        """Turn generalised forces of a joint into those of the dynamics' own coordinates."""
        joint = self.links[index].joint
        if joint.scalar:
            return torque
        turn = self._joint_turn(index, motion)
        if joint.kind == "ball":
            return apply_transposed(turn, torque)
        force, moment = apply_transposed(turn, torque[:3]), apply_transposed(turn, torque[3:])
        return [*add(moment, cross(self.centre(index), force)), *force]

    def _joint_turn(self, index: int, motion: LinkMotion) -> Matrix:
        """Return the rotation of a joint alone, from the link's frame to the joint's frame in the parent."""
        return product(transpose(self.base(index)[0]), motion.turn)

    def _body(self, index: int, motion: LinkMotion, wrench: tuple[Vector, Vector] | None) -> Articulated:
        mass, c = self.quantity(f"{self.links[index].joint.name}.mass"), self.centre(index)
        coupling = skew(scale(mass, c))
        steiner = minus([[mass * dot(c, c) * x for x in row] for row in IDENTITY], outer(scale(mass, c), c))
        rotational = plus(self.inertia(index), steiner)
        w, v = motion.spin, motion.velocity
        momentum = scale(mass, add(v, cross(w, c)))
        angular = add(apply(rotational, w), cross(scale(mass, c), v))
        moment, force = add(cross(w, angular), cross(v, momentum)), cross(w, momentum)
        if wrench is not None:
            moment, force = subtract(moment, wrench[0]), subtract(force, wrench[1])
        return Articulated(rotational, coupling, [[mass * x for x in row] for row in IDENTITY], moment, force)

    def _outward(self, motions: list[LinkMotion], q: list[Any], solved: list[Any]) -> list[Any]:
        gravity = self.vector("gravity")
        spins: list[Vector] = []
        linears: list[Vector] = []
        result: list[Any] = []
        for index, motion in enumerate(motions):
            parent = self.links[index].joint.parent
            if parent < 0:
                spin, linear = ZERO, scale(-1.0, apply_transposed(motion.turn, gravity))
            else:
                spin = apply_transposed(motion.turn, spins[parent])
                linear = apply_transposed(motion.turn, add(linears[parent], cross(spins[parent], motion.offset)))
                spin, linear = add(spin, motion.spin_bias), add(linear, motion.velocity_bias)
            own, own_spin, own_linear = solved[index](spin, linear)
            spins.append(add(spin, own_spin))
            linears.append(add(linear, own_linear))
            result += self._rates(index, motion, own, spins[-1], linears[-1])
        return result

    def _rates(self, index: int, motion: LinkMotion, own: list[Any], spin: Vector, linear: Vector) -> list[Any]:
        """Turn accelerations of the dynamics' own coordinates into those of Newton's."""
        joint = self.links[index].joint
        if joint.scalar:
            return own
        turn = self._joint_turn(index, motion)
        if joint.kind == "ball":
            return apply(turn, own)
        # own is the spatial acceleration with gravity taken out: that of the origin lacks w x v.
        angular, w, c = own[:3], motion.spin, self.centre(index)
        centre = add(add(own[3:], cross(w, motion.velocity)), add(cross(angular, c), cross(w, cross(w, c))))
        return [*apply(turn, centre), *apply(turn, angular)]

    def _joint_equation(self, index: int, body: Articulated, torque: list[Any]) -> Any:
        """Return the joint's part of the equations of motion, ready for the acceleration that the parent gives."""
        joint = self.links[index].joint
        if joint.kind == "free":
            return FreeJoint(body, torque)
        armature = self.quantity(f"{joint.name}.armature")
        if joint.kind == "ball":
            return BallJoint(body, torque, armature)
        return SingleJoint(joint.kind, self.axis(index), body, torque[0], armature)


def _reduced(body: Articulated, solved: Any, motion: LinkMotion) -> Articulated:
    """Return the inertia and bias that the parent feels, $I^a$ and $p^a$."""
    reduced = solved.reduce(body)
    c, d = motion.spin_bias, motion.velocity_bias
    reduced.moment = add(reduced.moment, add(apply(reduced.rotational, c), apply(reduced.coupling, d)))
    reduced.force = add(reduced.force, add(apply_transposed(reduced.coupling, c), apply(reduced.linear, d)))
    return reduced


def _carry(parent: Articulated, child: Articulated, motion: LinkMotion) -> None:
    """Add a child's reduced inertia and bias to its parent's, in the parent's frame."""
    turn, back, arm = motion.turn, transpose(motion.turn), skew(motion.offset)
    rotational, coupling, linear = (
        product(turn, product(m, back)) for m in (child.rotational, child.coupling, child.linear)
    )
    rotational, linear = mirrored(rotational), mirrored(linear)
    lever = product(arm, linear)
    # [[1, r x], [0, 1]] [[I, H], [H^T, M]] [[1, 0], [-r x, 1]]
    moved = plus(coupling, lever)
    turned = minus(plus(rotational, product(arm, transpose(coupling))), product(moved, arm))
    parent.rotational = plus(parent.rotational, mirrored(turned))
    parent.coupling = plus(parent.coupling, moved)
    parent.linear = plus(parent.linear, linear)
    force = apply(turn, child.force)
    parent.moment = add(parent.moment, add(apply(turn, child.moment), cross(motion.offset, force)))
    parent.force = add(parent.force, force)
