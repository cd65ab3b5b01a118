# SPDX-License-Identifier: Apache-2.0
"""What a quadruped's controller reads of a state: body, feet, Jacobians of the legs; compiled for batches of worlds."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from neurodyn.control.mpc.quadruped import (
    LEGS,
    Quadruped,
    centre_of_mass,
    foot_jacobian,
    foot_place,
    foot_velocity,
    leg_weight,
)
from neurodyn.multibody.articulated import Tree
from neurodyn.multibody.points import link_poses
from neurodyn.multibody.trace import Scalar
from neurodyn.multibody.trace.program import Inputs, Program, Sizes
from neurodyn.multibody.vectors import array, cross

_WIDTHS = {"turn": 9, "spin": 3, "com": 3, "velocity": 3, "feet": 12, "foot_velocity": 12, "jacobian": 36, "weight": 12}


@dataclass(frozen=True)
class Reading:
    """States of a quadruped; vectors along world axes.

    Attributes:
        turn: Rotation of the base to the world, shape [worlds, 3, 3].
        spin: Angular velocity of the base [rad/s], shape [worlds, 3].
        com: Centre of mass of the robot [m], shape [worlds, 3].
        velocity: Its velocity [m/s], shape [worlds, 3].
        feet: Centres of the feet [m], shape [worlds, 4, 3].
        foot_velocity: Their velocities [m/s], likewise.
        jacobian: Velocities of feet per unit of joint rates, shape [worlds, 4, 3, 3].
        weight: Torques that hold the legs' own weight [N m], shape [worlds, 4, 3].
    """

    turn: np.ndarray
    spin: np.ndarray
    com: np.ndarray
    velocity: np.ndarray
    feet: np.ndarray
    foot_velocity: np.ndarray
    jacobian: np.ndarray
    weight: np.ndarray

    @property
    def worlds(self) -> int:
        """Number of worlds."""
        return len(self.com)

    @property
    def rpy(self) -> np.ndarray:
        """Roll, pitch and yaw of the base [rad], shape [worlds, 3]."""
        turn = self.turn
        return np.stack(
            [
                np.arctan2(turn[:, 2, 1], turn[:, 2, 2]),
                np.arcsin(np.clip(-turn[:, 2, 0], -1.0, 1.0)),
                np.arctan2(turn[:, 1, 0], turn[:, 0, 0]),
            ],
            1,
        )

    @property
    def heading_velocity(self) -> np.ndarray:
        """Velocity of the centre of mass in the heading frame [m/s], shape [worlds, 3]."""
        return np.einsum("wji,wj->wi", heading_turn(self.rpy[:, 2]), self.velocity)


def heading_turn(yaw: np.ndarray) -> np.ndarray:
    """Return rotations about the vertical, heading frame to world, shape [worlds, 3, 3]."""
    c, s, o = np.cos(yaw), np.sin(yaw), np.zeros_like(yaw)
    return np.stack([np.stack([c, -s, o], -1), np.stack([s, c, o], -1), np.stack([o, o, o + 1.0], -1)], -2)


class LegKinematics:
    """Reads states; compiled once for a mechanism."""

    def __init__(self, quadruped: Quadruped) -> None:
        """Trace the kinematics of a quadruped."""
        self.quadruped = quadruped
        mechanism = quadruped.mechanism
        self._width = sum(_WIDTHS.values())
        self._program = Program(Sizes(state=self._width, held=mechanism.nq + mechanism.nv), self._step)

    def __call__(self, q: Tensor, qd: Tensor) -> Reading:
        """Read states.

        Args:
            q: Positions in Newton's convention [rad or m], shape [worlds, nq].
            qd: Velocities [rad/s or m/s], shape [worlds, nv].
        """
        held = torch.cat([q, qd], -1).to("cpu", torch.float64)
        with torch.no_grad():
            path = self._program.rollout(held.new_zeros(len(held), self._width), frames=1, held=held[:, None])
        found, parts, at = path[:, 1].numpy(), {}, 0
        for name, width in _WIDTHS.items():
            parts[name], at = found[:, at : at + width], at + width
        count = len(held)
        return Reading(
            turn=parts["turn"].reshape(count, 3, 3),
            spin=parts["spin"],
            com=parts["com"],
            velocity=parts["velocity"],
            feet=parts["feet"].reshape(count, LEGS, 3),
            foot_velocity=parts["foot_velocity"].reshape(count, LEGS, 3),
            jacobian=parts["jacobian"].reshape(count, LEGS, 3, 3),
            weight=parts["weight"].reshape(count, LEGS, 3),
        )

    def _step(self, inputs: Inputs) -> list[Scalar]:
        mechanism, legs = self.quadruped.mechanism, self.quadruped.legs
        tree = Tree(mechanism, mechanism.quantities().__getitem__)
        q, qd = inputs.held[: mechanism.nq], inputs.held[mechanism.nq :]
        motions = tree.motions(q, qd)
        poses = link_poses(tree, motions)
        mass, centre = centre_of_mass(tree, poses)
        momentum = array([0.0, 0.0, 0.0])
        for index, (link, pose, motion) in enumerate(zip(tree.links, poses, motions, strict=True)):
            own = motion.velocity + cross(motion.spin, tree.centre(index))
            momentum = momentum + tree.quantity(f"{link.joint.name}.mass") * (pose.turn @ own)
        turn = poses[0].turn
        found = [*turn.reshape(-1), *(turn @ motions[0].spin), *centre, *(momentum * (1.0 / mass))]
        for leg in legs:
            found += list(foot_place(tree, poses, leg))
        for leg in legs:
            found += list(foot_velocity(tree, motions, poses, leg))
        for leg in legs:
            found += list(foot_jacobian(tree, poses, leg).reshape(-1))
        for leg in legs:
            found += leg_weight(tree, poses, leg)
        return found
