# SPDX-License-Identifier: Apache-2.0
"""What forces are decided from: state, command and gait, in the heading frame."""

from dataclasses import dataclass

import numpy as np

from neurodyn.control.mpc.gait import Gait
from neurodyn.control.mpc.kinematics import Reading, heading_turn
from neurodyn.control.mpc.quadruped import Quadruped

FEATURES = 41
"""Numbers of `Situation.features`."""
CONTACT = slice(25, 29)
"""Which of them say what feet stand."""


@dataclass(frozen=True)
class Situation:
    """A batch of worlds in which forces are to be decided; vectors along the axes of the heading frame.

    Attributes:
        tilt: Roll and pitch [rad], shape [worlds, 2].
        yaw: Heading that is wanted, from that of the base [rad], shape [worlds].
        height: Height of the centre of mass above that which is wanted [m], shape [worlds].
        spin: Angular velocity of the base [rad/s], shape [worlds, 3].
        velocity: Velocity of the centre of mass [m/s], shape [worlds, 3].
        command: Velocities forward and to the left [m/s] and yaw rate [rad/s], shape [worlds, 3].
        feet: Feet from the centre of mass [m], shape [worlds, 4, 3].
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
        """Return all of it as numbers, shape [worlds, 41], float32: what a network imitates forces from."""
        gait, phase, contact = self.gait, self.phase, self.contact
        left = (np.where(contact, gait.duty, 1.0) - phase) * gait.period
        angle = 2.0 * np.pi * phase
        # One concatenation: numbers put into their places one by one take longer than all the rest.
        return np.concatenate(
            (self.tilt, self.yaw[:, None], self.height[:, None], self.spin, self.velocity, self.command,
             self.feet.reshape(-1, 12), contact, left, np.sin(angle), np.cos(angle)),
            1, dtype=np.float32, casting="same_kind",
        )  # fmt: skip


def footholds(
    quadruped: Quadruped, gait: Gait, gain: float, velocity: np.ndarray, command: np.ndarray, ahead: np.ndarray
) -> np.ndarray:
    r"""Return where feet should land after a time (Raibert 1986), from the centre of mass there [m], [worlds, 4, 3].

    $$p = R_z(\omega t) h + \tfrac{T}{2}(v^{cmd} + \omega \times h) + k\,(v - v^{cmd})$$

    with the place h of a foot in the nominal stance and the time T of stance.

    Args:
        quadruped: The robot.
        gait: Its gait.
        gain: k [s].
        velocity: v of the centre of mass, heading frame [m/s], shape [worlds, 3].
        command: Velocities forward and to the left, yaw rate, shape [worlds, 3].
        ahead: t by leg [s], shape [worlds, 4].
    """
    wanted, rate = command[:, None, :2], command[:, None, 2:]
    angle = rate[..., 0] * ahead
    c, s, home = np.cos(angle), np.sin(angle), quadruped.stance
    x, y = c * home[:, 0] - s * home[:, 1], s * home[:, 0] + c * home[:, 1]
    place = np.stack([x, y], -1)
    swept = wanted + rate * np.stack([-y, x], -1)
    place = place + 0.5 * gait.stance * swept + gain * (velocity[:, None, :2] - wanted)
    return np.concatenate([place, np.full((*place.shape[:2], 1), -quadruped.height)], -1)


def situation(
    quadruped: Quadruped,
    reading: Reading,
    gait: Gait,
    time: np.ndarray,
    command: np.ndarray,
    heading: np.ndarray,
    ground: np.ndarray,
) -> Situation:
    """Return what forces are decided from.

    Args:
        quadruped: The robot.
        reading: Its states.
        gait: Its gait.
        time: Time since the gait began [s], shape [worlds].
        command: Velocities forward and to the left [m/s], yaw rate [rad/s], shape [worlds, 3].
        heading: Heading that is wanted [rad], shape [worlds].
        ground: Height of the ground under the robot [m], shape [worlds].
    """
    rpy = reading.rpy
    turn = heading_turn(rpy[:, 2])
    return Situation(
        tilt=rpy[:, :2],
        yaw=(heading - rpy[:, 2] + np.pi) % (2 * np.pi) - np.pi,
        height=reading.com[:, 2] - ground - quadruped.height,
        spin=np.einsum("wji,wj->wi", turn, reading.spin),
        velocity=reading.heading_velocity,
        command=command,
        feet=np.einsum("wji,wlj->wli", turn, reading.feet - reading.com[:, None]),
        phase=gait.phase(time),
        gait=gait,
    )
