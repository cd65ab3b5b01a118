# SPDX-License-Identifier: Apache-2.0
"""State of a quadruped as read by its controller: body, feet and leg Jacobians; and the inputs of a force law."""

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from neurodyn.multibody.articulated import Tree
from neurodyn.multibody.points import link_poses
from neurodyn.multibody.trace import Scalar
from neurodyn.multibody.trace.program import TracedProgram
from neurodyn.multibody.trace.recurrence import ProgramInputs, ProgramSizes
from neurodyn.multibody.vectors import array, cross
from neurodyn.walking.gait import Gait
from neurodyn.walking.quadruped import (
    LEGS,
    Quadruped,
    centre_of_mass,
    foot_jacobian,
    foot_position,
    foot_velocity,
    leg_weight,
)

_READINGS = {
    "rotation": (3, 3), "spin": (3,), "com": (3,), "velocity": (3,), "feet": (LEGS, 3), "foot_velocity": (LEGS, 3),
    "jacobian": (LEGS, 3, 3), "weight": (LEGS, 3),
}  # fmt: skip
"""Fields of a `QuadrupedState`, in the order in which they are computed."""


@dataclass(frozen=True)
class QuadrupedState:
    """States of a quadruped; vectors in world axes.

    Attributes:
        rotation: Rotation from the base to the world, shape [worlds, 3, 3].
        spin: Angular velocity of the base [rad/s], shape [worlds, 3].
        com: Centre of mass of the robot [m], shape [worlds, 3].
        velocity: Velocity of the centre of mass [m/s], shape [worlds, 3].
        feet: Centres of the feet [m], shape [worlds, 4, 3].
        foot_velocity: Velocities of these centres [m/s], shape [worlds, 4, 3].
        jacobian: Velocities of feet per unit of joint rates, shape [worlds, 4, 3, 3].
        weight: Torques that hold the legs' own weight [N m], shape [worlds, 4, 3].
    """

    rotation: np.ndarray
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
        rotation = self.rotation
        return np.stack(
            [
                np.arctan2(rotation[:, 2, 1], rotation[:, 2, 2]),
                np.arcsin(np.clip(-rotation[:, 2, 0], -1.0, 1.0)),
                np.arctan2(rotation[:, 1, 0], rotation[:, 0, 0]),
            ],
            1,
        )

    @property
    def heading_velocity(self) -> np.ndarray:
        """Velocity of the centre of mass in the heading frame [m/s], shape [worlds, 3]."""
        return np.einsum("wji,wj->wi", heading_rotation(self.rpy[:, 2]), self.velocity)


def rotate(angle: np.ndarray, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return plane vectors (x, y) rotated by an angle [rad]."""
    c, s = np.cos(angle), np.sin(angle)
    return c * x - s * y, s * x + c * y


def heading_rotation(yaw: np.ndarray) -> np.ndarray:
    """Return rotations about the vertical, heading frame to world, shape [worlds, 3, 3]."""
    c, s, o = np.cos(yaw), np.sin(yaw), np.zeros_like(yaw)
    return np.stack([np.stack([c, -s, o], -1), np.stack([s, c, o], -1), np.stack([o, o, o + 1.0], -1)], -2)


class LegKinematics:
    """Computes readings of states; compiled once for a mechanism."""

    def __init__(self, quadruped: Quadruped) -> None:
        """Trace the kinematics of a quadruped."""
        self.quadruped = quadruped
        mechanism = quadruped.mechanism
        self._width = sum(map(math.prod, _READINGS.values()))
        self._program = TracedProgram(ProgramSizes(state=self._width, held=mechanism.nq + mechanism.nv), self._step)

    def __call__(self, q: Tensor, qd: Tensor) -> QuadrupedState:
        """Return the readings of states.

        Args:
            q: Positions in Newton's convention [rad or m], shape [worlds, nq].
            qd: Velocities [rad/s or m/s], shape [worlds, nv].
        """
        coordinates = torch.cat([q, qd], -1).to("cpu", torch.float64)
        with torch.no_grad():
            path = self._program.rollout(
                coordinates.new_zeros(len(coordinates), self._width), frames=1, held=coordinates[:, None]
            )
        readings, parts, column = path[:, 1].numpy(), {}, 0
        for name, shape in _READINGS.items():
            width = math.prod(shape)
            parts[name], column = readings[:, column : column + width].reshape(len(coordinates), *shape), column + width
        return QuadrupedState(**parts)

    def _step(self, inputs: ProgramInputs) -> list[Scalar]:
        """Return the readings of one world, entry by entry in the order of `_READINGS`."""
        mechanism, legs = self.quadruped.mechanism, self.quadruped.legs
        q, qd = inputs.held[: mechanism.nq], inputs.held[mechanism.nq :]
        tree = Tree(mechanism, mechanism.quantities().__getitem__)
        motions = tree.motions(q, qd)
        poses = link_poses(tree, motions)
        mass, centre = centre_of_mass(tree, poses)
        momentum = array([0.0, 0.0, 0.0])
        for index, (link, pose, motion) in enumerate(zip(tree.links, poses, motions, strict=True)):
            velocity = motion.velocity + cross(motion.spin, tree.centre(index))
            momentum = momentum + tree.quantity(f"{link.joint.name}.mass") * (pose.rotation @ velocity)
        rotation = poses[0].rotation
        return [
            *rotation.reshape(-1), *(rotation @ motions[0].spin), *centre, *(momentum * (1.0 / mass)),
            *(x for leg in legs for x in foot_position(tree, poses, leg)),
            *(x for leg in legs for x in foot_velocity(tree, motions, poses, leg)),
            *(x for leg in legs for x in foot_jacobian(tree, poses, leg).reshape(-1)),
            *(x for leg in legs for x in leg_weight(tree, poses, leg)),
        ]  # fmt: skip


FORCE_INPUTS = 41
"""Length of `ForceInputs.features`."""
CONTACT = slice(25, 29)
"""Entries of the features for feet in stance."""


@dataclass(frozen=True)
class ForceInputs:
    """Inputs of a force law, for a batch of worlds; vectors in the heading frame.

    Attributes:
        tilt: Roll and pitch [rad], shape [worlds, 2].
        yaw: Heading reference minus heading of the base [rad], shape [worlds].
        height: Height of the centre of mass minus its reference [m], shape [worlds].
        spin: Angular velocity of the base [rad/s], shape [worlds, 3].
        velocity: Velocity of the centre of mass [m/s], shape [worlds, 3].
        command: Velocities forward and to the left [m/s] and yaw rate [rad/s], shape [worlds, 3].
        feet: Foot positions from the centre of mass [m], shape [worlds, 4, 3].
        phase: Phases of the legs, shape [worlds, 4].
        gait: The gait.
    """

    tilt: np.ndarray
    yaw: np.ndarray
    height: np.ndarray
    spin: np.ndarray
    velocity: np.ndarray
    command: np.ndarray
    feet: np.ndarray
    phase: np.ndarray
    gait: Gait

    @property
    def worlds(self) -> int:
        """Number of worlds."""
        return len(self.yaw)

    @property
    def contact(self) -> np.ndarray:
        """Which feet stand, bool, shape [worlds, 4]."""
        return self.gait.stands(self.phase)

    def features(self) -> np.ndarray:
        """Return all inputs as features of an imitating network, shape [worlds, 41], float32."""
        gait, phase, contact = self.gait, self.phase, self.contact
        left, angle = gait.left(phase), 2.0 * np.pi * phase
        # One concatenation: filling in the entries one by one takes longer than all the rest.
        return np.concatenate(
            (self.tilt, self.yaw[:, None], self.height[:, None], self.spin, self.velocity, self.command,
             self.feet.reshape(-1, 12), contact, left, np.sin(angle), np.cos(angle)),
            1, dtype=np.float32, casting="same_kind",
        )  # fmt: skip


def footholds(
    quadruped: Quadruped, gait: Gait, gain: float, velocity: np.ndarray, command: np.ndarray, ahead: np.ndarray
) -> np.ndarray:
    r"""Return landing positions of feet after a time (Raibert 1986), from the centre of mass then [m], [worlds, 4, 3].

    $$p = R_z(\omega t) h + \tfrac{T}{2}(v^{cmd} + \omega \times h) + k\,(v - v^{cmd})$$

    with the nominal position h of a foot and the stance time T.

    Args:
        quadruped: The robot.
        gait: Its gait.
        gain: k [s].
        velocity: v of the centre of mass, heading frame [m/s], shape [worlds, 3].
        command: Velocities forward and to the left, yaw rate, shape [worlds, 3].
        ahead: t by leg [s], shape [worlds, 4].
    """
    wanted, rate = command[:, None, :2], command[:, None, 2:]
    x, y = rotate(rate[..., 0] * ahead, *quadruped.stance[:, :2].T)
    position = np.stack([x, y], -1)
    swept = wanted + rate * np.stack([-y, x], -1)
    position = position + 0.5 * gait.stance * swept + gain * (velocity[:, None, :2] - wanted)
    return np.concatenate([position, np.full((*position.shape[:2], 1), -quadruped.height)], -1)


def force_inputs(
    quadruped: Quadruped,
    reading: QuadrupedState,
    gait: Gait,
    time: np.ndarray,
    command: np.ndarray,
    heading: np.ndarray,
    ground: np.ndarray,
) -> ForceInputs:
    """Return the inputs of a force law.

    Args:
        quadruped: The robot.
        reading: Its states.
        gait: Its gait.
        time: Time since the gait began [s], shape [worlds].
        command: See `ForceInputs`.
        heading: Heading reference [rad], shape [worlds].
        ground: Height of the ground under the robot [m], shape [worlds].
    """
    rpy = reading.rpy
    rotation = heading_rotation(rpy[:, 2])
    return ForceInputs(
        tilt=rpy[:, :2],
        yaw=(heading - rpy[:, 2] + np.pi) % (2 * np.pi) - np.pi,
        height=reading.com[:, 2] - ground - quadruped.height,
        spin=np.einsum("wji,wj->wi", rotation, reading.spin),
        velocity=reading.heading_velocity,
        command=command,
        feet=np.einsum("wji,wlj->wli", rotation, reading.feet - reading.com[:, None]),
        phase=gait.phase(time),
        gait=gait,
    )
