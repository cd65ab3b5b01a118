# SPDX-License-Identifier: Apache-2.0
"""Swinging DFKI's double pendulum C.1 up by one of its two drives, and holding it there."""

import math

import torch
from torch import Tensor

from neurodyn.dynamics.batch import Control
from neurodyn.dynamics.quantities import Quantities
from neurodyn.tasks.task import Memory, Task

TORQUE = 6.0
"""Greatest torque of either drive [N m]."""
FASTEST = 30.0
"""Speed of a joint at which an episode ends [rad/s]."""
SHARES = (0.4, 0.6)
"""Lengths of the links as shares of that of the pendulum, .2 and .3 m."""


class _SwingUp(Task):
    r"""$r = h - 0.005\,(\dot q_1^2 + \dot q_2^2) - 0.01\,a^2$, with the height $h$ of the tip, from -1 to 1 upright."""

    robot = "dfki-c1"
    needs = ("joint_position", "joint_velocity")
    observations = (
        "shoulder_sine", "shoulder_cosine", "elbow_sine", "elbow_cosine", "shoulder_velocity", "elbow_velocity"
    )  # fmt: skip
    actions = ("torque",)
    action_scale = (TORQUE,)
    frames = 500
    driven: int
    """Place of the joint that is driven."""

    def control(self, action: Tensor, quantities: Quantities, memory: Memory) -> Control:
        """Return the torques; the other drive is idle."""
        idle = torch.zeros_like(action)
        pair = (TORQUE * action, idle) if self.driven == 0 else (idle, TORQUE * action)
        return Control(torque=torch.cat(pair, -1))

    def observe(self, quantities: Quantities, memory: Memory) -> Tensor:
        """Return sines and cosines of the angles, and their rates."""
        q, qd = quantities["joint_position"], quantities["joint_velocity"]
        return torch.cat([torch.stack([q.sin(), q.cos()], -1).flatten(1), qd], -1)

    def reward(self, quantities: Quantities, memory: Memory, action: Tensor) -> dict[str, Tensor]:
        """Return what height earns, and speed and effort cost."""
        q, qd = quantities["joint_position"], quantities["joint_velocity"]
        height = -SHARES[0] * q[:, 0].cos() - SHARES[1] * q.sum(-1).cos()
        return {
            "height": height,
            "speed": -0.005 * qd.square().sum(-1),
            "effort": -0.01 * action.square().sum(-1),
        }

    def terminated(self, quantities: Quantities, memory: Memory) -> Tensor:
        """Return where a joint is too fast."""
        return (quantities["joint_velocity"].abs() > FASTEST).any(-1)

    def succeeded(self, quantities: Quantities, memory: Memory) -> Tensor:
        """Return where both links stand, within .2 rad and 1 rad/s."""
        q, qd = quantities["joint_position"], quantities["joint_velocity"]
        upright = torch.stack([q[:, 0] + math.pi, q[:, 1]], -1)
        away = torch.remainder(upright + math.pi, 2 * math.pi) - math.pi
        return (away.abs() < 0.2).all(-1) & (qd.abs() < 1.0).all(-1)


class PendubotSwingUp(_SwingUp):
    """The shoulder drives, the elbow is free."""

    name = "pendubot-swingup"
    action_meaning = "torque of the shoulder [N m]"
    driven = 0


class AcrobotSwingUp(_SwingUp):
    """The elbow drives, the shoulder is free."""

    name = "acrobot-swingup"
    action_meaning = "torque of the elbow [N m]"
    driven = 1
