# SPDX-License-Identifier: Apache-2.0
r"""Inverse dynamics of a fixed-base tree, linear in the inertial parameters of its links, for many samples at once.

The recursive Newton-Euler algorithm with spatial vectors in the links' body frames (Featherstone, Rigid Body Dynamics
Algorithms (2008), table 5.1),

$$v_i = {}^iX_p v_p + S_i \dot q_i, \qquad a_i = {}^iX_p a_p + S_i \ddot q_i + v_i \times S_i \dot q_i, \qquad
f_i = I_i a_i + v_i \times^* I_i v_i, \qquad a_0 = -g,$$

where $f_i = A_i \pi_i$ is linear in the ten parameters of the link (Atkeson, An and Hollerbach 1986, "Estimation of
inertial parameters of manipulator loads and links"). The joint torques are therefore

$$\tau = Y(q, \dot q, \ddot q)\,\pi, \qquad \pi_i = (m, m c, I_{xx}, I_{yy}, I_{zz}, I_{xy}, I_{xz}, I_{yz})$$

with the centre of mass c and the inertia I about the origin of the body frame. Rotor inertia, friction and springs each
act on a single joint and are not part of Y.
"""

import numpy as np
import torch
from torch import Tensor

from neurodyn.core.description.mechanism import Link, Mechanism
from neurodyn.core.errors import InputError
from neurodyn.geometry.rotation import quaternion_matrix
from neurodyn.multibody.link_kinematics import pose_in_parent

LINK_PARAMETERS = 10
"""Inertial parameters of a link: mass, first moment, inertia about the origin of its body frame."""


def regressor(mechanism: Mechanism, q: np.ndarray, qd: np.ndarray, qdd: np.ndarray) -> np.ndarray:
    r"""Return the regressor Y of the joint torques, $\tau = Y \pi$, shape [N, nv, 10 links], from samples [N, nv].

    Raises:
        InputError: The mechanism has a free or ball joint.
    """
    other = next((joint for joint in mechanism.joints if not joint.scalar), None)
    if other is not None:
        raise InputError(
            f"inverse dynamics: joint {other.name!r} is {other.kind}; valid: a bolted robot of joints "
            "with one degree of freedom"
        )
    count, links = len(q), mechanism.links
    torques = np.zeros((count, len(links), LINK_PARAMETERS * len(links)))
    subspaces = [_subspace(link) for link in links]
    rotations, origins = zip(*(pose_in_parent(link.joint, q[:, k, None]) for k, link in enumerate(links)), strict=True)
    velocities: list[np.ndarray] = []
    accelerations: list[np.ndarray] = []
    for k, link in enumerate(links):
        if link.joint.parent < 0:
            velocity = np.zeros((count, 6))
            acceleration = np.tile([0.0, 0.0, 0.0, *(-np.asarray(mechanism.gravity))], (count, 1))
        else:
            velocity, acceleration = velocities[link.joint.parent], accelerations[link.joint.parent]
        rate = qd[:, k, None] * subspaces[k]
        velocity = _into_child(rotations[k], origins[k], velocity) + rate
        acceleration = _into_child(rotations[k], origins[k], acceleration) + qdd[:, k, None] * subspaces[k]
        velocities.append(velocity)
        accelerations.append(acceleration + _cross(velocity, rate))
        wrench, at = _wrench(velocity, accelerations[k]), k
        while at >= 0:  # towards the root: every joint that carries the link bears its wrench
            own = slice(LINK_PARAMETERS * k, LINK_PARAMETERS * (k + 1))
            torques[:, at, own] = np.einsum("c,ncp->np", subspaces[at], wrench)
            wrench, at = _into_parent(rotations[at], origins[at], wrench), links[at].joint.parent
    return torques


def link_parameters(mass: Tensor, com: Tensor, inertia: Tensor) -> Tensor:
    """Return the ten inertial parameters of links, shape [..., 10]; differentiable.

    Centres of mass [..., 3] are in the body frames, inertias [..., 6] about them: xx yy zz xy xz yz.
    """
    moment = mass[..., None] * com
    x, y, z = com.unbind(-1)
    steiner = torch.stack([y * y + z * z, x * x + z * z, x * x + y * y, -x * y, -x * z, -y * z], -1)
    return torch.cat([mass[..., None], moment, inertia + mass[..., None] * steiner], -1)


def _subspace(link: Link) -> np.ndarray:
    """Return the motion subspace in the body frame: angular velocity, then velocity of the body's origin, shape [6]."""
    frame = link.joint.child_frame
    axis = np.asarray(quaternion_matrix(frame[3:])) @ np.asarray(link.joint.axis)
    turn, slide = link.joint.shares
    return np.concatenate([turn * axis, turn * np.cross(frame[:3], axis) + slide * axis])


def _into_child(rotation: np.ndarray, origin: np.ndarray, motion: np.ndarray) -> np.ndarray:
    """Transform motions from the parent's frame to the child's, shape [N, 6]."""
    spin, linear = motion[:, :3], motion[:, 3:] + np.cross(motion[:, :3], origin)
    return np.concatenate([np.einsum("nji,nj->ni", rotation, x) for x in (spin, linear)], 1)


def _into_parent(rotation: np.ndarray, origin: np.ndarray, wrench: np.ndarray) -> np.ndarray:
    """Transform columns of wrenches (moment, then force) from the child's frame to the parent's, shape [N, 6, p]."""
    moment, force = rotation @ wrench[:, :3], rotation @ wrench[:, 3:]
    return np.concatenate([moment + np.cross(origin[:, :, None], force, axis=1), force], 1)


def _cross(velocity: np.ndarray, motion: np.ndarray) -> np.ndarray:
    """Return the spatial cross product of motions, shape [N, 6]."""
    spin, linear = velocity[:, :3], velocity[:, 3:]
    return np.concatenate(
        [np.cross(spin, motion[:, :3]), np.cross(linear, motion[:, :3]) + np.cross(spin, motion[:, 3:])], 1
    )


def _wrench(velocity: np.ndarray, acceleration: np.ndarray) -> np.ndarray:
    """Return A of f = A pi: moment about the origin of the body frame, then force, shape [N, 6, 10]."""
    spin, spin_rate = velocity[:, :3], acceleration[:, :3]
    linear = acceleration[:, 3:] + np.cross(spin, velocity[:, 3:])  # classical acceleration of the origin
    matrix = np.zeros((len(spin), 6, LINK_PARAMETERS))
    turning = _skew(spin)
    matrix[:, :3, 1:4] = -_skew(linear)
    matrix[:, :3, 4:] = _inertia_times(spin_rate) + turning @ _inertia_times(spin)
    matrix[:, 3:, 0] = linear
    matrix[:, 3:, 1:4] = _skew(spin_rate) + turning @ turning
    return matrix


def _skew(vector: np.ndarray) -> np.ndarray:
    """Return [v] with [v] x = v cross x, shape [N, 3, 3]."""
    x, y, z = vector.T
    o = np.zeros_like(x)
    return np.stack([[o, -z, y], [z, o, -x], [-y, x, o]]).transpose(2, 0, 1)


def _inertia_times(vector: np.ndarray) -> np.ndarray:
    """Return L(v) with L(v) (xx, yy, zz, xy, xz, yz) = I v, shape [N, 3, 6]."""
    x, y, z = vector.T
    o = np.zeros_like(x)
    return np.stack([[x, o, o, y, z, o], [o, y, o, x, o, z], [o, o, z, o, x, y]]).transpose(2, 0, 1)
