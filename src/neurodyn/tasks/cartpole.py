# SPDX-License-Identifier: Apache-2.0
"""Swinging a pole up on a cart, and holding it there."""

import math

import torch
from torch import Tensor

from neurodyn.dynamics.batch import Control
from neurodyn.dynamics.quantities import Quantities
from neurodyn.tasks.task import Memory, Task

FORCE = 1500.0
"""Greatest force on the cart [N]."""
TRACK = 4.0
"""Half the length of the rail [m]."""
FASTEST = 10.0
"""Speed of either joint at which an episode ends [m/s or rad/s]."""


class CartpoleSwingUp(Task):
    r"""$r = 5 - \theta^2 - 0.05 x^2 - 0.1 \dot\theta^2 - 0.1 \dot x^2$, upright at 0 (NeRD, arXiv 2508.15755)."""

    name = "cartpole-swingup"
    robot = "cartpole"
    needs = ("joint_position", "joint_velocity")
    observations = ("slider", "hinge", "slider_velocity", "hinge_velocity")
    actions = ("force",)
    action_scale = (FORCE,)
    action_meaning = "force on the cart [N]"
    frames = 300

    def control(self, action: Tensor, quantities: Quantities, memory: Memory) -> Control:
        """Return the force on the cart."""
        return Control(torque=FORCE * action)

    def observe(self, quantities: Quantities, memory: Memory) -> Tensor:
        """Return x, theta and their rates."""
        return torch.cat([_position(quantities), quantities["joint_velocity"]], dim=-1)

    def reward(self, quantities: Quantities, memory: Memory, action: Tensor) -> dict[str, Tensor]:
        """Return 5, and what is subtracted from it."""
        x, theta = _position(quantities).unbind(-1)
        xdot, thetadot = quantities["joint_velocity"].unbind(-1)
        return {
            "alive": torch.full_like(x, 5.0),
            "angle": -theta.square(),
            "position": -0.05 * x.square(),
            "spin": -0.1 * thetadot.square(),
            "speed": -0.1 * xdot.square(),
        }

    def terminated(self, quantities: Quantities, memory: Memory) -> Tensor:
        """Return where the cart left the rail, or where something is too fast."""
        x = quantities["joint_position"][:, 0]
        return (x.abs() > TRACK) | (quantities["joint_velocity"].abs() > FASTEST).any(-1)

    def succeeded(self, quantities: Quantities, memory: Memory) -> Tensor:
        """Return where the pole stands."""
        return (_position(quantities)[:, 1].abs() < 0.2) & (quantities["joint_velocity"][:, 1].abs() < 1.0)


def _position(quantities: Quantities) -> Tensor:
    """Return x and theta, which is taken into [-pi, pi)."""
    x, theta = quantities["joint_position"].unbind(-1)
    return torch.stack([x, torch.remainder(theta + math.pi, 2 * math.pi) - math.pi], dim=-1)
