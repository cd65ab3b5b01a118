# SPDX-License-Identifier: Apache-2.0
"""The worn ant as robots in the field are: encoders and an IMU, without motion capture.

neurodyn policy train ant-run --observe sensors --dynamics hybrid --out policies/sensed
neurodyn policy play policies/sensed --on examples/sensed_ant.py:SensedAnt --out sensed.html
neurodyn policy log policies/sensed random --robot examples/sensed_ant.py:SensedAnt --noise .4 --out logs/sensed.h5

It also returns its true state, to score episodes by it, too. A robot leaves it out.
"""

import mujoco
import numpy as np

from worn_ant import ElasticAnt, WornAnt


class SensedAnt(WornAnt):
    """The worn ant with an IMU in its centre: rates and forces with noise and a bias per run, and an attitude."""

    base = "unmeasured"

    def reset(self):
        """Drop the ant, and draw the biases of its IMU."""
        super().reset()
        self.bias = self.random.normal(size=3) * 0.01, self.random.normal(size=3) * 0.1
        self.before = np.zeros(3)

    def observe(self):
        """Return joints and IMU, in its axes, and the true state."""
        qpos, qvel = self.data.qpos, self.data.qvel
        turn, spin, seen = np.zeros(9), np.zeros(3), np.zeros(4)
        mujoco.mju_quat2Mat(turn, qpos[3:7])
        mujoco.mju_rotVecQuat(spin, qvel[3:6], qpos[3:7])
        force = turn.reshape(3, 3).T @ ((qvel[:3] - self.before) * self.rate + [0.0, 0.0, 9.81])
        self.before = qvel[:3].copy()
        tilt = np.array([1.0, *(0.5 * 0.008 * self.random.normal(size=3))])
        mujoco.mju_mulQuat(seen, tilt / np.linalg.norm(tilt), qpos[3:7])
        return {
            "q": self._noisy([qpos[self.q]], ["joints"]),
            "qd": self._noisy([qvel[self.v]], ["rates"]),
            "angular_velocity": qvel[3:6] + self.bias[0] + 0.02 * self.random.normal(size=3),
            "specific_force": force + self.bias[1] + 0.2 * self.random.normal(size=3),
            "orientation": [*seen[1:], seen[0]],
            "truth": [*qpos[:3], *qpos[4:7], qpos[3], *qpos[self.q], *qvel[:3], *spin, *qvel[self.v]],
        }


class ElasticSensedAnt(SensedAnt, ElasticAnt):
    """The same of the ant whose lower legs bend."""
