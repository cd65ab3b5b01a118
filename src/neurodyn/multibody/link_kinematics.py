# SPDX-License-Identifier: Apache-2.0
"""Forward kinematics and mass matrices of trees of links for batches of positions, on plain arrays (float64).

Compiled programs are made of the traced form, `multibody.articulated.Tree.motions`; contact points have a compiled one,
`geometry.chain.advance`.
"""

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from neurodyn.core.description.contacts import ChainJoint
from neurodyn.core.description.mechanism import Link
from neurodyn.core.description.spec import places
from neurodyn.geometry.rotation import quaternion_matrix


def pose_in_parent(joint: ChainJoint, q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    r"""Return rotation, shape [n, 3, 3], and origin [m], shape [n, 3], of a link's frame in its parent's or the world.

    $$R = F\,R_J(q)\,T^{-1}, \qquad p = p_F + F\,t_J(q) - R\,p_T$$

    with the joint's frames F in the parent and T in the link, and its rotation $R_J$ and translation $t_J$.

    Args:
        joint: The joint that carries the link.
        q: Its positions, shape [n, nq of the joint]; quaternions need not have unit length.
    """
    rest, child, axis = _rotation(joint.parent_frame), _rotation(joint.child_frame), np.array(joint.axis)
    turn, shift = np.broadcast_to(np.eye(3), (len(q), 3, 3)), np.zeros((len(q), 3))
    if joint.scalar:
        turn, shift = _rotation_about(axis, joint.shares[0] * q[:, 0]), joint.shares[1] * q * axis
    else:
        unit = q[:, -4:] / np.linalg.norm(q[:, -4:], axis=1, keepdims=True)
        turn = np.array(quaternion_matrix(unit.T)).transpose(2, 0, 1)
        shift = q[:, :3] if joint.kind == "free" else shift
    rotation = rest @ turn @ child.T
    return rotation, np.array(joint.parent_frame[:3]) + shift @ rest.T - rotation @ np.array(joint.child_frame[:3])


def _rotation_about(axis: np.ndarray, angle: np.ndarray) -> np.ndarray:
    """Return rotations about an axis by angles [rad], shapes [3], [n] and [n, 3, 3] (Rodrigues' formula)."""
    x, y, z = axis
    skew = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    sine, cosine = np.sin(angle)[:, None, None], np.cos(angle)[:, None, None]
    return np.eye(3) + sine * skew + (1 - cosine) * (skew @ skew)


def _rotation(frame: Sequence[float]) -> np.ndarray:
    return np.array(quaternion_matrix(np.asarray(frame[3:], dtype=float)))


class LinkKinematics:
    """Poses of links in a batch of positions, in world axes.

    Attributes:
        rotations: Rotations of the link frames, shape [n, links, 3, 3].
        origins: Their origins [m], shape [n, links, 3].
    """

    def __init__(self, links: Sequence[Link], q: np.ndarray, base_com: Sequence[float] | None = None) -> None:
        """Compute the poses.

        Args:
            links: The links, parents first.
            q: Positions in Newton's convention [rad or m], shape [n, nq].
            base_com: Point of a floating base whose velocity is the base's linear velocity [m]; None for its centre of
                mass.
        """
        self._links, self._places = links, places(link.joint for link in links)
        self._base_com = links[0].com if base_com is None else base_com
        q = np.asarray(q, dtype=float)
        self.rotations, self.origins = np.empty((len(q), len(links), 3, 3)), np.empty((len(q), len(links), 3))
        for index, (link, place) in enumerate(zip(links, self._places, strict=True)):
            rotation, origin = pose_in_parent(link.joint, q[:, place.q])
            if (parent := link.joint.parent) >= 0:
                above = self.rotations[:, parent]
                origin = self.origins[:, parent] + np.einsum("nij,nj->ni", above, origin)
                rotation = above @ rotation
            self.rotations[:, index], self.origins[:, index] = rotation, origin

    def points(self, links: Sequence[int], points: np.ndarray) -> np.ndarray:
        """Return points of links, shape [points, 3] in the links' frames, in the world [m], shape [n, points, 3]."""
        carriers = list(links)
        return self.origins[:, carriers] + np.einsum("npij,pj->npi", self.rotations[:, carriers], points)

    @cached_property
    def centres(self) -> np.ndarray:
        """Centres of mass of the links [m], shape [n, links, 3]."""
        return self.points(range(len(self._links)), np.array([link.com for link in self._links]))

    def axis(self, joint: int) -> np.ndarray:
        """Return the axis of a joint with one degree of freedom, shape [n, 3]."""
        frame = self._links[joint].joint.child_frame
        return self.rotations[:, joint] @ (_rotation(frame) @ np.array(self._links[joint].joint.axis))

    def mass_matrix(self) -> np.ndarray:
        r"""Return $M = \sum_i m_i J_i^T J_i + \Omega_i^T R_i I_i R_i^T \Omega_i$ plus armature, shape [n, nv, nv]."""
        linear, angular = self._motions()
        count, size = len(self.rotations), self._places[-1].qd.stop
        total = np.zeros((count, size, size))
        for index, link in enumerate(self._links):
            dofs, carrier = [], index
            while carrier >= 0:
                place = self._places[carrier].qd
                dofs, carrier = [*range(place.start, place.stop), *dofs], self._links[carrier].joint.parent
            spin, turn = angular[:, :, dofs], self.rotations[:, index]
            rate = linear[:, :, dofs] + np.cross(spin, self.centres[:, index, :, None], axis=1)
            xx, yy, zz, xy, xz, yz = link.inertia
            inertia = turn @ np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]]) @ turn.transpose(0, 2, 1)
            own = link.mass * rate.transpose(0, 2, 1) @ rate + spin.transpose(0, 2, 1) @ inertia @ spin
            total[np.ix_(range(count), dofs, dofs)] += own
            if link.joint.kind != "free":
                own_dofs = range(self._places[index].qd.start, self._places[index].qd.stop)
                total[:, own_dofs, own_dofs] += link.armature
        return total

    def _motions(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the motion of each coordinate: velocity at the world's origin, and spin, shape [n, 3, nv]."""
        count, size = len(self.rotations), self._places[-1].qd.stop
        linear, angular = np.zeros((count, 3, size)), np.zeros((count, 3, size))
        for index, (link, place) in enumerate(zip(self._links, self._places, strict=True)):
            joint, turn = link.joint, self.rotations[:, index]
            centre, columns = np.array(joint.child_frame[:3]), place.angular
            slide: np.ndarray | float = 0.0
            if joint.scalar:
                axis, columns = self.axis(index)[:, :, None], place.qd
                axes, slide = joint.shares[0] * axis, joint.shares[1] * axis
            else:  # velocities are in the joint's axes on the parent's side
                above = self.rotations[:, joint.parent] if joint.parent >= 0 else np.eye(3)
                axes = np.broadcast_to(above @ _rotation(joint.parent_frame), (count, 3, 3))
            if joint.kind == "free":
                linear[:, :, place.linear] = axes
                centre = np.array(self._base_com if index == 0 else link.com)
            at = self.origins[:, index] + turn @ centre
            angular[:, :, columns], linear[:, :, columns] = axes, np.cross(at[:, :, None], axes, axis=1) + slide
        return linear, angular
