# SPDX-License-Identifier: Apache-2.0
"""Swinging up and holding: a pole on a cart, and DFKI's double pendulum C.1 with one of its two drives."""

import math

import torch
from torch import Tensor

from neurodyn.dynamics.batch import Control
from neurodyn.dynamics.coordinates import wrap_angle
from neurodyn.dynamics.quantities import Quantities
from neurodyn.tasks.observations import POLICY, Memory, ObservationTerm, ObservationTerms
from neurodyn.tasks.task import Task

FORCE = 1500.0
"""Force limit on the cart [N]."""
TRACK = 4.0
"""Half the length of the rail [m]."""
CART_FASTEST = 10.0
"""Speed of the cart or the pole beyond which an episode ends [m/s or rad/s]."""


class CartpoleSwingUp(Task):
    r"""$r = 5 - \theta^2 - 0.05 x^2 - 0.1 \dot\theta^2 - 0.1 \dot x^2$, upright at 0 (NeRD, arXiv 2508.15755)."""

    name = "cartpole-swingup"
    robot = "cartpole"
    needs = ("joint_position", "joint_velocity")
    actions = ("force",)
    action_scale = (FORCE,)
    action_meaning = "force on the cart [N]"
    frames = 300

    def control(self, action: Tensor, quantities: Quantities, memory: Memory) -> Control:
        """Return the force on the cart."""
        return Control(torque=FORCE * action)

    def observation_terms(self) -> ObservationTerms:
        """Return x, theta and their rates."""
        terms = (
            ObservationTerm("position", _position, ("slider", "hinge"), sensor="encoder"),
            ObservationTerm("joint_velocity", columns=("slider_velocity", "hinge_velocity")),
        )
        return {POLICY: terms}

    def reward(self, quantities: Quantities, memory: Memory, action: Tensor) -> dict[str, Tensor]:
        """Return the reward of 5, and the costs."""
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
        """Return whether the cart left the rail, or a speed is too high."""
        x = quantities["joint_position"][:, 0]
        return (x.abs() > TRACK) | (quantities["joint_velocity"].abs() > CART_FASTEST).any(-1)

    def succeeded(self, quantities: Quantities, memory: Memory) -> Tensor:
        """Return whether the pole is upright and slow."""
        return (_position(quantities)[:, 1].abs() < 0.2) & (quantities["joint_velocity"][:, 1].abs() < 1.0)


def _position(quantities: Quantities, memory: Memory | None = None) -> Tensor:
    """Return x, and theta wrapped to [-pi, pi)."""
    x, theta = quantities["joint_position"].unbind(-1)
    return torch.stack([x, wrap_angle(theta)], dim=-1)


TORQUE = 6.0
"""Torque limit of either drive [N m]."""
FASTEST = 30.0
"""Speed of a joint beyond which an episode ends [rad/s]."""
SHARES = (0.4, 0.6)
"""Lengths of the links as shares of the pendulum's, .2 and .3 m."""


_ANGLES = ("shoulder_sine", "shoulder_cosine", "elbow_sine", "elbow_cosine")


class _SwingUp(Task):
    r"""$r = h - 0.005\,(\dot q_1^2 + \dot q_2^2) - 0.01\,a^2$, with the height $h$ of the tip, from -1 to 1 upright."""

    robot = "dfki-c1"
    needs = ("joint_position", "joint_velocity")
    actions = ("torque",)
    action_scale = (TORQUE,)
    frames = 500
    driven: int
    """Index of the driven joint."""

    def control(self, action: Tensor, quantities: Quantities, memory: Memory) -> Control:
        """Return the torques; the other drive is idle."""
        idle = torch.zeros_like(action)
        pair = (TORQUE * action, idle) if self.driven == 0 else (idle, TORQUE * action)
        return Control(torque=torch.cat(pair, -1))

    def observation_terms(self) -> ObservationTerms:
        """Return sines and cosines of the angles, and their rates."""
        terms = (
            ObservationTerm("direction", _directions, _ANGLES, sensor="encoder"),
            ObservationTerm("joint_velocity", columns=("shoulder_velocity", "elbow_velocity")),
        )
        return {POLICY: terms}

    def reward(self, quantities: Quantities, memory: Memory, action: Tensor) -> dict[str, Tensor]:
        """Return the reward of height, and the costs of speed and effort."""
        q, qd = quantities["joint_position"], quantities["joint_velocity"]
        height = -SHARES[0] * q[:, 0].cos() - SHARES[1] * q.sum(-1).cos()
        return {"height": height, "speed": -0.005 * qd.square().sum(-1), "effort": -0.01 * action.square().sum(-1)}

    def terminated(self, quantities: Quantities, memory: Memory) -> Tensor:
        """Return whether a joint is too fast."""
        return (quantities["joint_velocity"].abs() > FASTEST).any(-1)

    def succeeded(self, quantities: Quantities, memory: Memory) -> Tensor:
        """Return whether both links are upright, within .2 rad and 1 rad/s."""
        q, qd = quantities["joint_position"], quantities["joint_velocity"]
        upright = torch.stack([q[:, 0] + math.pi, q[:, 1]], -1)
        return (wrap_angle(upright).abs() < 0.2).all(-1) & (qd.abs() < 1.0).all(-1)


def _directions(quantities: Quantities, memory: Memory) -> Tensor:
    q = quantities["joint_position"]
    return torch.stack([q.sin(), q.cos()], -1).flatten(1)


class PendubotSwingUp(_SwingUp):
    """The shoulder is driven, the elbow is free."""

    name = "pendubot-swingup"
    action_meaning = "torque of the shoulder [N m]"
    driven = 0


class AcrobotSwingUp(_SwingUp):
    """The elbow is driven, the shoulder is free."""

    name = "acrobot-swingup"
    action_meaning = "torque of the elbow [N m]"
    driven = 1
