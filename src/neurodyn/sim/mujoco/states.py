# SPDX-License-Identifier: Apache-2.0
"""States in MuJoCo's coordinates and back.

MuJoCo's quaternions have the scalar first; the linear velocity of a free joint is that of the body's origin instead of
the centre of mass, its angular velocity, as that of a ball joint, is in body axes.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from neurodyn.core.description.scene import Vector3
from neurodyn.core.description.spec import StateSpec
from neurodyn.data.readers.floating import rotate

_INVERSE = np.array([-1.0, -1.0, -1.0, 1.0])


class StateColumns:
    """Columns of a robot's joints in `qpos` and `qvel` of a compiled model."""

    def __init__(self, model: Any, joints: Sequence[int], spec: StateSpec, centers: Sequence[Vector3]) -> None:
        """Look the columns up.

        Args:
            model: The `mujoco.MjModel`.
            joints: Its joints, in the order of `spec`.
            spec: Layout of the states.
            centers: Point of the body behind each joint whose velocity the states of free joints hold [m].
        """
        self._size = spec.nq, spec.nv
        at = [int(model.jnt_qposadr[joint]) for joint in joints]
        rate = [int(model.jnt_dofadr[joint]) for joint in joints]
        own = list(zip(spec.joints, spec.places, at, rate, map(np.array, centers), strict=True))
        scalar = [(place, at, rate) for joint, place, at, rate, _ in own if joint.scalar]
        self._from = [place.q.start for place, _, _ in scalar]
        self._from_rate = [place.qd.start for place, _, _ in scalar]
        self._to, self._to_rate = [at for _, at, _ in scalar], [rate for _, _, rate in scalar]
        self._turning = [
            (joint.kind == "free", place, at, rate, center)
            for joint, place, at, rate, center in own
            if joint.kind in ("free", "ball")
        ]

    def write(self, qpos: np.ndarray, qvel: np.ndarray, q: np.ndarray, qd: np.ndarray) -> None:
        """Write states, shapes [n, nq] and [n, nv], into MuJoCo's arrays of n states."""
        qpos[:, self._to], qvel[:, self._to_rate] = q[:, self._from], qd[:, self._from_rate]
        for free, place, at, rate, center in self._turning:
            quaternion, spin = q[:, place.quaternion], qd[:, place.angular]
            if free:
                qpos[:, at : at + 3] = q[:, place.q.start : place.q.start + 3]
                arm = rotate(quaternion, np.broadcast_to(center, spin.shape))
                qvel[:, rate : rate + 3] = qd[:, place.linear] - np.cross(spin, arm)
                at, rate = at + 3, rate + 3
            qpos[:, at : at + 4] = quaternion[:, [3, 0, 1, 2]]
            qvel[:, rate : rate + 3] = rotate(quaternion * _INVERSE, spin)

    def read(self, qpos: np.ndarray, qvel: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the states in MuJoCo's arrays of n states, shapes [n, nq] and [n, nv]."""
        q, qd = (np.empty((len(qpos), size)) for size in self._size)
        q[:, self._from], qd[:, self._from_rate] = qpos[:, self._to], qvel[:, self._to_rate]
        for free, place, at, rate, center in self._turning:
            more = 3 * free
            quaternion = qpos[:, at + more : at + more + 4][:, [1, 2, 3, 0]]
            spin = rotate(quaternion, qvel[:, rate + more : rate + more + 3])
            q[:, place.quaternion], qd[:, place.angular] = quaternion, spin
            if free:
                q[:, place.q.start : place.q.start + 3] = qpos[:, at : at + 3]
                arm = rotate(quaternion, np.broadcast_to(center, spin.shape))
                qd[:, place.linear] = qvel[:, rate : rate + 3] + np.cross(spin, arm)
        return q, qd
