# SPDX-License-Identifier: Apache-2.0
"""A planar runner that runs along x."""

import torch
from torch import Tensor

from neurodyn.dynamics.batch import Control
from neurodyn.dynamics.quantities import Quantities
from neurodyn.geometry.tensors import constant
from neurodyn.tasks.task import Memory, Task

_LEGS = ("hind_hip", "hind_knee", "hind_ankle", "front_hip", "front_knee", "front_ankle")
_JOINTS = ("x", "z", "pitch", *_LEGS)
EFFORT = 0.1
"""Cost of a full effort of all joints."""


class PlanarRun(Task):
    r"""$r = \dot x + \cos\theta - 0.1\,\overline{a^2}$ with the pitch of the trunk and the mean of squared actions.

    Nothing ends an episode early.
    """

    name = "planar-run"
    robot = "planar-runner"
    needs = ("joint_position", "joint_velocity")
    observations = (*_JOINTS[1:], *(f"{joint}_velocity" for joint in _JOINTS))
    actions = _LEGS
    action_scale = (90.0, 70.0, 40.0, 90.0, 70.0, 40.0)
    action_meaning = "joint torque [N m]"
    frames = 300

    def control(self, action: Tensor, quantities: Quantities, memory: Memory) -> Control:
        """Return joint torques."""
        return Control(torque=action * constant(self.action_scale, action))

    def observe(self, quantities: Quantities, memory: Memory) -> Tensor:
        """Return all joints but how far it has run, and the rates of all."""
        return torch.cat([quantities["joint_position"][:, 1:], quantities["joint_velocity"]], dim=-1)

    def reward(self, quantities: Quantities, memory: Memory, action: Tensor) -> dict[str, Tensor]:
        """Return progress, how level the trunk is, and what effort costs."""
        return {
            "progress": quantities["joint_velocity"][:, 0],
            "level": quantities["joint_position"][:, 2].cos(),
            "effort": -EFFORT * action.square().mean(-1),
        }

    def terminated(self, quantities: Quantities, memory: Memory) -> Tensor:
        """Return that nobody failed: on its back it earns less than by standing."""
        return torch.zeros_like(quantities["joint_velocity"][:, 0], dtype=torch.bool)
