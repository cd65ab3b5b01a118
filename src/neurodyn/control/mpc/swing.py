# SPDX-License-Identifier: Apache-2.0
r"""Feet that swing: how high and how stiffly the drives afford it, and where they are to be on the way.

A foot of inertia $\Lambda$ that follows accelerations a takes the torques $J^T \Lambda a$. In the nominal pose, at the
greatest speed that is commanded, legs of some robots would need more than their drives give. There the height of the
swing and the stiffness of its control, both proportional to forces, are cut by the ratio; the carrying along cannot be,
and so commands are limited.
"""

from dataclasses import dataclass

import numpy as np

from neurodyn.control.mpc.commands import SPEED
from neurodyn.control.mpc.gait import Gait
from neurodyn.control.mpc.quadruped import Quadruped
from neurodyn.control.mpc.settings import MpcSettings

CLEARANCE, FREQUENCY = 0.3, 40.0
"""Height of a swing in heights of the centre of mass, and natural frequency of its control [rad/s], at most."""
OVERLOAD = 1.5
"""Torques of a swing, in greatest torques of the drives, up to which commands are followed.

In walks of ANYmal C feet as fast as .60 m/s, a load of 1.58, made 2 of 24 episodes end in a fall, .55 m/s, 1.47, none.
"""
_SAMPLES = 101


@dataclass(frozen=True)
class Swing:
    """How feet swing.

    Attributes:
        clearance: Height to which they are lifted [m].
        frequency: Natural frequency of their control [rad/s].
        speed: Greatest speed over the ground at which they are carried along [m/s].
    """

    clearance: float
    frequency: float
    speed: float = np.inf

    def limited(self, command: np.ndarray, stance: np.ndarray) -> np.ndarray:
        """Return commands scaled down to those under which no foot has to be faster than `speed`.

        Args:
            command: Velocities forward and to the left [m/s] and yaw rate [rad/s], shape [worlds, 3].
            stance: Where feet stand, from the centre of mass [m], shape [4, 3].
        """
        vx, vy, rate = command.T[..., None]
        fastest = np.hypot(vx - rate * stance[:, 1], vy + rate * stance[:, 0]).max(1)
        return command * np.minimum(1.0, self.speed / np.maximum(fastest, 1e-9))[:, None]


def affordable_swing(quadruped: Quadruped, gait: Gait, settings: MpcSettings) -> Swing:
    """Return the swing of settings; where they leave it open, that which the drives afford at commands of `SPEED`."""
    height, given = quadruped.height, (settings.clearance, settings.swing_frequency)
    share = 1.0
    if gait.duty < 1.0 and None in given:
        share = 1.0 / max(1.0, swing_load(quadruped, gait, CLEARANCE * height, SPEED))  # drives without limits: load 0
    clearance = height * (CLEARANCE * share if given[0] is None else given[0])
    frequency = FREQUENCY * share**0.5 if given[1] is None else given[1]
    if share == 1.0:
        return Swing(clearance, frequency)
    lifting, carrying = _torques(quadruped, gait, clearance)
    spare = OVERLOAD * quadruped.effort - lifting
    return Swing(clearance, frequency, max(0.0, float((spare / np.maximum(carrying, 1e-9)).min())))


def swing_load(quadruped: Quadruped, gait: Gait, clearance: float, speed: float) -> float:
    """Return the greatest torque of a swing in the nominal pose, in greatest torques of the drives.

    Args:
        quadruped: The robot.
        gait: Its gait, one that swings feet.
        clearance: Height of the swing [m].
        speed: Speed of the robot, whichever way [m/s].
    """
    lifting, carrying = _torques(quadruped, gait, clearance)
    return float(((lifting + speed * carrying) / quadruped.effort).max())


def _torques(quadruped: Quadruped, gait: Gait, clearance: float) -> tuple[np.ndarray, np.ndarray]:
    """Return sizes of torques for lifting [N m], and of those for carrying along per speed [N m s/m], [..., 4, 3]."""
    progress, still = np.linspace(0.0, 1.0, _SAMPLES), np.zeros((_SAMPLES, 3))

    def torques(way: tuple[float, float, float], height: float) -> np.ndarray:
        _, _, acceleration = swing_motion(still, still + way, progress, gait.swing, height)
        forces = np.einsum("lij,sj->sli", quadruped.foot_inertia, acceleration)
        return np.abs(np.einsum("lij,sli->slj", quadruped.jacobian, forces))

    stride = gait.period  # at 1 m/s
    ways = torques((stride, 0.0, 0.0), 0.0), torques((0.0, stride, 0.0), 0.0)
    return torques((0.0, 0.0, 0.0), clearance), np.maximum(*ways)


def swing_motion(
    lifted: np.ndarray, landing: np.ndarray, progress: np.ndarray, duration: float, clearance: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return places [m], velocities [m/s] and accelerations [m/s^2] of feet, shape [..., 3] each.

    They move over the ground with least jerk, up to `clearance` above the higher end, and down again.

    Args:
        lifted: Where they lifted [m], shape [..., 3].
        landing: Where they are to land [m], likewise.
        progress: How much of the swing is done, 0 to 1, shape [...].
        duration: Length of a swing [s].
        clearance: Height [m].
    """
    share, rate, curve = _least_jerk(progress)
    way = landing - lifted
    place = lifted + share[..., None] * way
    velocity, acceleration = rate[..., None] * way / duration, curve[..., None] * way / duration**2
    rising = progress < 0.5
    apex = np.maximum(lifted[..., 2], landing[..., 2]) + clearance
    begin = np.where(rising, lifted[..., 2], apex)
    end = np.where(rising, apex, landing[..., 2])
    share, rate, curve = _least_jerk(np.where(rising, 2.0 * progress, 2.0 * progress - 1.0))
    place[..., 2] = begin + share * (end - begin)
    velocity[..., 2] = rate * (end - begin) / (0.5 * duration)
    acceleration[..., 2] = curve * (end - begin) / (0.5 * duration) ** 2
    return place, velocity, acceleration


def _least_jerk(s: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the polynomial from 0 to 1 that begins and ends at rest without acceleration, and its derivatives."""
    return s**3 * (10 - 15 * s + 6 * s * s), 30 * s * s * (1 - s) ** 2, 60 * s * (1 - s) * (1 - 2 * s)
