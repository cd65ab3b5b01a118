# SPDX-License-Identifier: Apache-2.0
"""Poses and mass matrices of a robot as built, for batches of states, in float64 and without a simulator."""

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from neurodyn.core.description.spec import places
from neurodyn.geometry.rotation import quaternion_matrix
from neurodyn.sim.articulation import Articulation
from neurodyn.sim.bodies import inertia_tensor


class LinkKinematics:
    """Poses of the links of a robot in a batch of positions, shape [n, nq]; all in world axes.

    Attributes:
        turns: Rotations of the link frames, shape [n, links, 3, 3].
        origins: Their origins [m], shape [n, links, 3].
    """

    def __init__(self, built: Articulation, q: np.ndarray) -> None:
        self._built, self._columns = built, places(built.joints)
        q = np.asarray(q, dtype=float)
        count = len(built.links)
        self.turns, self.origins = np.empty((len(q), count, 3, 3)), np.empty((len(q), count, 3))
        self._joint_turns, self._joint_origins = np.empty_like(self.turns), np.empty_like(self.origins)
        for index, (joint, place) in enumerate(zip(built.joints, self._columns, strict=True)):
            own = q[:, place.q]
            turn, shift = np.broadcast_to(np.eye(3), (len(q), 3, 3)), np.zeros((len(q), 3))
            axis = np.array(joint.axis)
            if joint.kind == "revolute":
                turn = _about(axis, own[:, 0])
            elif joint.kind == "prismatic":
                shift = own * axis
            else:
                turn = _matrices(own[:, -4:])
                shift = own[:, :3] if joint.kind == "free" else shift
            frame, inner = _matrix(joint.parent_frame), _matrix(joint.child_frame)
            above, start = frame[:3, :3], frame[:3, 3]
            if joint.parent >= 0:
                parent = self.turns[:, joint.parent]
                above, start = parent @ above, self.origins[:, joint.parent] + parent @ start
            above = np.broadcast_to(above, (len(q), 3, 3))
            self._joint_turns[:, index] = above
            self._joint_origins[:, index] = at = start + np.einsum("nij,nj->ni", above, shift)
            self.turns[:, index] = turned = above @ turn @ inner[:3, :3].T
            self.origins[:, index] = at - turned @ inner[:3, 3]

    @cached_property
    def centres(self) -> np.ndarray:
        """Centres of mass of the links [m], shape [n, links, 3]."""
        com = np.array([link.com for link in self._built.links])
        return self.origins + np.einsum("nlij,lj->nli", self.turns, com)

    def axis(self, joint: int) -> np.ndarray:
        """Return the axis of a joint with one degree of freedom, shape [n, 3]."""
        return self._joint_turns[:, joint] @ np.array(self._built.joints[joint].axis)

    def mass_matrix(self) -> np.ndarray:
        r"""Return $M = \sum_i m_i J_i^T J_i + \Omega_i^T R_i I_i R_i^T \Omega_i$ plus armature, shape [n, nv, nv]."""
        links, columns = self._built.links, self._columns
        linear, angular = self._motions()
        total = np.zeros((len(self.turns), columns[-1].qd.stop, columns[-1].qd.stop))
        for index, link in enumerate(links):
            dofs = self._dofs(index)
            spin = angular[:, :, dofs]
            away = self.centres[:, index, :, None]
            rate = linear[:, :, dofs] + np.cross(spin, away, axis=1)
            inertia = self.turns[:, index] @ inertia_tensor(link.inertia) @ self.turns[:, index].transpose(0, 2, 1)
            own = link.mass * rate.transpose(0, 2, 1) @ rate + spin.transpose(0, 2, 1) @ inertia @ spin
            total[np.ix_(range(len(total)), dofs, dofs)] += own
            if link.joint.kind != "free":
                own_dofs = range(columns[index].qd.start, columns[index].qd.stop)
                total[:, own_dofs, own_dofs] += link.armature
        return total

    def _dofs(self, link: int) -> list[int]:
        """Return the velocity coordinates that move a link."""
        found: list[int] = []
        while link >= 0:
            found = [*range(self._columns[link].qd.start, self._columns[link].qd.stop), *found]
            link = self._built.joints[link].parent
        return found

    def _motions(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the motion of each coordinate: velocity at the world's origin, and spin, shape [n, 3, nv]."""
        count, nv = len(self.turns), self._columns[-1].qd.stop
        linear, angular = np.zeros((count, 3, nv)), np.zeros((count, 3, nv))
        for index, (joint, place) in enumerate(zip(self._built.joints, self._columns, strict=True)):
            if joint.kind == "prismatic":
                linear[:, :, place.qd.start] = self.axis(index)
                continue
            if joint.kind == "revolute":
                axes, at = self.axis(index)[:, :, None], self._joint_origins[:, index]
            else:
                axes = (
                    np.broadcast_to(np.eye(3), (count, 3, 3)) if joint.kind == "free" else self._joint_turns[:, index]
                )
                at = self._joint_origins[:, index]
            if joint.kind == "free":
                linear[:, :, place.linear] = np.eye(3)
                at = self.origins[:, index] + self.turns[:, index] @ np.array(self._built.base_com)
            angular[:, :, place.angular if not joint.scalar else place.qd] = axes
            linear[:, :, place.angular if not joint.scalar else place.qd] = np.cross(at[:, :, None], axes, axis=1)
        return linear, angular


def _matrix(pose: Sequence[float]) -> np.ndarray:
    whole = np.eye(4)
    whole[:3, :3], whole[:3, 3] = quaternion_matrix(np.array(pose[3:])), pose[:3]
    return whole


def _matrices(quaternions: np.ndarray) -> np.ndarray:
    """Return rotation matrices of quaternions, shapes [n, 4] (scalar last) and [n, 3, 3]."""
    unit = quaternions / np.linalg.norm(quaternions, axis=1, keepdims=True)
    return np.array(quaternion_matrix(unit.T)).transpose(2, 0, 1)


def _about(axis: np.ndarray, angle: np.ndarray) -> np.ndarray:
    """Return rotations about an axis by angles [rad], shapes [3], [n] and [n, 3, 3] (Rodrigues)."""
    x, y, z = axis
    skew = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    sine, cosine = np.sin(angle)[:, None, None], np.cos(angle)[:, None, None]
    return np.eye(3) + sine * skew + (1 - cosine) * (skew @ skew)
