# SPDX-License-Identifier: Apache-2.0
"""Dynamics of a mechanism in world axes, from Jacobians and d'Alembert's principle: no articulated bodies.

M(q) = sum_i m Jv^T Jv + Jw^T I Jw, tau = M qdd + sum_i m Jv^T (dJv/dt qd - g) + Jw^T (I dJw/dt qd + w x I w), where
Jv is the Jacobian of a link's centre of mass, Jw of its angular velocity, and time derivatives are differences along
the motion.
"""

import numpy as np
from hypothesis import strategies as st
from msgspec import UNSET

from neurodyn.core.description.contacts import ChainJoint
from neurodyn.core.description.mechanism import Link, Mechanism
from neurodyn.multibody.integrators import IntegrationStep, semi_implicit_euler

NQ = {"free": 7, "ball": 4, "revolute": 1, "prismatic": 1, "screw": 1}
NV = {"free": 6, "ball": 3, "revolute": 1, "prismatic": 1, "screw": 1}


def matrix(quaternion):
    x, y, z, w = np.asarray(quaternion) / np.linalg.norm(quaternion)
    k = hat([x, y, z])
    return np.eye(3) + 2 * w * k + 2 * k @ k


def hat(a):
    return np.array([[0, -a[2], a[1]], [a[2], 0, -a[0]], [-a[1], a[0], 0]], dtype=float)


def rotated(axis, angle):
    k = hat(axis)
    return np.eye(3) + np.sin(angle) * k + (1 - np.cos(angle)) * k @ k


def exponential(vector):
    """Return the quaternion of a rotation vector."""
    angle = np.linalg.norm(vector)
    return np.array([*(0.5 * np.sinc(angle / 2 / np.pi) * np.asarray(vector)), np.cos(angle / 2)])


def multiply(a, b):
    (u, s), (v, t) = (a[:3], a[3]), (b[:3], b[3])
    return np.array([*(s * v + t * u + np.cross(u, v)), s * t - u @ v])


def pose(frame):
    return matrix(frame[3:]), np.array(frame[:3])


class Configuration:
    """A mechanism at q: centres of mass, rotations and Jacobians of its links, in world axes."""

    def __init__(self, mechanism, q):
        self.mechanism = mechanism
        self.turns, self.origins, self.centres, self.spin_jacobians, self._fixed = [], [], [], [], []
        start, column = 0, 0
        for link in mechanism.links:
            joint = link.joint
            own = np.asarray(q[start : start + NQ[joint.kind]], dtype=float)
            self._place(link, own, column)
            start, column = start + NQ[joint.kind], column + NV[joint.kind]

    def _place(self, link, own, column):
        joint, nv = link.joint, self.mechanism.nv
        root = joint.parent < 0
        turn, origin = (np.eye(3), np.zeros(3)) if root else (self.turns[joint.parent], self.origins[joint.parent])
        base, shift = pose(joint.parent_frame)
        base_prediction, axes = origin + turn @ shift, turn @ base
        spin = np.zeros((3, nv)) if root else self.spin_jacobians[joint.parent].copy()
        # Velocity of the point of this link that is now at the joint's frame in the child.
        if joint.scalar:
            axis = axes @ np.array(joint.axis)
        if joint.kind == "revolute":
            moved, place = axes @ rotated(np.array(joint.axis), own[0]), base_prediction
            carried = np.zeros((3, nv)) if root else self.point(joint.parent, place)
            spin[:, column] += axis
        elif joint.kind == "prismatic":
            moved, place = axes, base_prediction + axis * own[0]
            carried = np.zeros((3, nv)) if root else self.point(joint.parent, place)
            carried[:, column] += axis
        elif joint.kind == "screw":
            moved, place = axes @ rotated(np.array(joint.axis), own[0]), base_prediction + joint.pitch * own[0] * axis
            carried = np.zeros((3, nv)) if root else self.point(joint.parent, place)
            carried[:, column] += joint.pitch * axis
            spin[:, column] += axis
        elif joint.kind == "ball":
            moved, place = axes @ matrix(own), base_prediction
            carried = np.zeros((3, nv)) if root else self.point(joint.parent, place)
            spin[:, column : column + 3] += axes
        else:
            moved, place = axes @ matrix(own[3:]), base_prediction + axes @ own[:3]
            spin[:, column + 3 : column + 6] += axes
            carried = np.zeros((3, nv))
        child_turn, child_origin = pose(joint.child_frame)
        body = moved @ child_turn.T
        body_origin = place - body @ child_origin
        centre = body_origin + body @ np.array(link.com)
        if joint.kind == "free":  # its coordinates are the velocity of the centre of mass
            carried[:, column : column + 3] += axes
            place = centre
        self.turns.append(body)
        self.origins.append(body_origin)
        self.centres.append(centre)
        self.spin_jacobians.append(spin)
        self._fixed.append((place, carried))

    def point(self, index, place):
        """Return the Jacobian of the velocity of a link's point that is at a place in the world."""
        known, jacobian = self._fixed[index]
        return jacobian - hat(place - known) @ self.spin_jacobians[index]

    def jacobians(self):
        return [(self.point(i, c), self.spin_jacobians[i]) for i, c in enumerate(self.centres)]

    def inertia(self, index):
        xx, yy, zz, xy, xz, yz = self.mechanism.links[index].inertia
        turn = self.turns[index]
        return turn @ np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]]) @ turn.T

    def mass_matrix(self):
        links = self.mechanism.links
        armature = np.concatenate(
            [np.full(NV[link.joint.kind], 0.0 if link.joint.kind == "free" else link.armature) for link in links]
        )
        m = np.diag(armature)
        for index, (jv, jw) in enumerate(self.jacobians()):
            m += links[index].mass * jv.T @ jv + jw.T @ self.inertia(index) @ jw
        return m

    def momentum(self, qd):
        """Return linear momentum, and angular momentum about the world's origin."""
        linear, angular = np.zeros(3), np.zeros(3)
        for index, (jv, jw) in enumerate(self.jacobians()):
            p = self.mechanism.links[index].mass * jv @ qd
            linear += p
            angular += self.inertia(index) @ jw @ qd + np.cross(self.centres[index], p)
        return linear, angular

    def energy(self, qd):
        """Return kinetic and potential energy."""
        masses = [link.mass for link in self.mechanism.links]
        gravity = np.array(self.mechanism.gravity)
        return 0.5 * qd @ self.mass_matrix() @ qd, -sum(
            m * gravity @ c for m, c in zip(masses, self.centres, strict=True)
        )


def moved(mechanism, q, qd, dt):
    """Return the positions after a short time at constant rates."""
    at, i, k, found = Configuration(mechanism, q), 0, 0, []
    for index, link in enumerate(mechanism.links):
        kind = link.joint.kind
        if link.joint.scalar:
            found.append(q[i] + dt * qd[k])
        elif kind == "ball":
            found += [*multiply(exponential(dt * np.asarray(qd[k : k + 3])), np.asarray(q[i : i + 4]))]
        else:
            axes = pose(link.joint.parent_frame)[0]
            turn, old = exponential(dt * np.asarray(qd[k + 3 : k + 6])), np.asarray(q[i + 3 : i + 7])
            back = np.array(link.joint.child_frame[:3])
            arm = axes.T @ (at.centres[index] - at.origins[index]) - axes.T @ at.turns[index] @ back
            new_arm = matrix(turn) @ arm
            found += [*(np.asarray(q[i : i + 3]) + arm + dt * np.asarray(qd[k : k + 3]) - new_arm)]
            found += [*multiply(turn, old)]
        i, k = i + NQ[kind], k + NV[kind]
    return np.array(found)


def bias(mechanism, q, qd, step=1e-5):
    """Return what M qdd lacks to the generalised force: velocity products and weight."""
    here = Configuration(mechanism, q)
    ahead, behind = (Configuration(mechanism, moved(mechanism, q, qd, s)).jacobians() for s in (step, -step))
    total = np.zeros(mechanism.nv)
    gravity = np.array(mechanism.gravity)
    for index, (jv, jw) in enumerate(here.jacobians()):
        linear, angular = ((ahead[index][i] - behind[index][i]) @ qd / (2 * step) for i in (0, 1))
        inertia, spin = here.inertia(index), jw @ qd
        total += mechanism.links[index].mass * jv.T @ (linear - gravity)
        total += jw.T @ (inertia @ angular + np.cross(spin, inertia @ spin))
    return total


def accelerations(mechanism, q, qd, torque):
    m = Configuration(mechanism, q).mass_matrix()
    return np.linalg.solve(m, torque - bias(mechanism, q, qd))


# --- mechanisms and states at random -------------------------------------------------------------------------------
def unit(rng, size):
    x = rng.normal(size=size)
    return x / np.linalg.norm(x)


def random_frame(rng):
    return tuple(float(x) for x in (*rng.uniform(-0.5, 0.5, 3), *unit(rng, 4)))


def random_link(rng, kind, parent, name):
    axis = unit(rng, 3) if NV[kind] == 1 else np.zeros(3)
    sides, turn = rng.uniform(0.05, 0.6, 3), matrix(unit(rng, 4))
    mass = float(rng.uniform(0.3, 4.0))
    inertia = (
        turn @ np.diag([sides[1] ** 2 + sides[2] ** 2, sides[0] ** 2 + sides[2] ** 2, sides[:2] @ sides[:2]]) @ turn.T
    )
    inertia = mass / 12 * inertia
    return Link(
        joint=ChainJoint(
            name=name, kind=kind, parent=parent, parent_frame=random_frame(rng), child_frame=random_frame(rng),
            axis=tuple(float(x) for x in axis), pitch=float(rng.uniform(-0.5, 0.5)) if kind == "screw" else UNSET,
        ),
        mass=mass,
        com=tuple(float(x) for x in rng.uniform(-0.3, 0.3, 3)),
        inertia=tuple(float(inertia[i, j]) for i, j in ((0, 0), (1, 1), (2, 2), (0, 1), (0, 2), (1, 2))),
        armature=0.0 if kind == "free" else float(rng.choice([0.0, 0.1])),
    )  # fmt: skip


@st.composite
def trees(draw):
    """Draw kinds of joints, their parents, and a seed for the rest."""
    kinds = draw(st.lists(st.sampled_from(["revolute", "prismatic", "screw", "ball"]), min_size=1, max_size=6))
    parents = [-1, *(draw(st.integers(-1, i)) for i in range(len(kinds) - 1))]
    kinds = [
        kind if parent >= 0 or draw(st.booleans()) else "free" for kind, parent in zip(kinds, parents, strict=True)
    ]
    return kinds, parents, draw(st.integers(0, 2**32 - 1))


def random_mechanism(rng, kinds, parents, gravity=(1.0, -2.0, -9.0)):
    links = [random_link(rng, k, p, f"{k}{i}") for i, (k, p) in enumerate(zip(kinds, parents, strict=True))]
    return Mechanism(links=tuple(links), gravity=gravity)


def random_motion(rng, mechanism):
    """Return positions (quaternions of unit length), velocities and generalised forces."""
    q = []
    for link in mechanism.links:
        kind = link.joint.kind
        q += (
            [*rng.normal(size=3), *unit(rng, 4)]
            if kind == "free"
            else [*unit(rng, 4)]
            if kind == "ball"
            else [*rng.normal(size=1)]
        )
    return np.array(q), rng.normal(size=mechanism.nv), 3 * rng.normal(size=mechanism.nv)


def close(found, expected, **tolerances):
    """Assert that numbers agree, whatever kind of arrays they are in."""
    np.testing.assert_allclose(np.array(found, float), np.array(expected, float), **tolerances)


def euler(tree, q, qd, acceleration, dt):
    """A semi-implicit Euler step under a constant acceleration."""
    return semi_implicit_euler(IntegrationStep(tree, q, qd, acceleration, dt, lambda q, qd: acceleration))
