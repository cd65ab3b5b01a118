# SPDX-License-Identifier: Apache-2.0
"""Commands over time: velocities forward and to the left, and a yaw rate."""

from dataclasses import dataclass

import numpy as np

from neurodyn.core.seeds import generator

SPEED, SIDEWAYS, TURNING = 0.6, 0.3, 0.8
"""Greatest speed, greatest velocity to a side [m/s] and greatest yaw rate [rad/s] of drawn commands."""
HOLD = 3.0
"""Time for which a drawn command holds [s]."""
RAMP = (1.0, 1.0, 2.0)
"""Greatest change of a command in a second [m/s^2, m/s^2, rad/s^2]."""


@dataclass(frozen=True)
class Commands:
    """What worlds are to do; commands change along ramps.

    Attributes:
        targets: Shape [worlds, targets, 3].
        hold: Time for which each of them holds [s].
    """

    targets: np.ndarray
    hold: float = HOLD

    @classmethod
    def steady(cls, command: tuple[float, float, float], worlds: int) -> "Commands":
        """Return the same command for all worlds and all times."""
        return cls(np.tile(np.array(command, float), (worlds, 1, 1)))

    @classmethod
    def drawn(cls, worlds: int, seconds: float, seed: int, share: float = 1.0) -> "Commands":
        """Draw a command for every `HOLD` seconds.

        Args:
            worlds: Number of worlds.
            seconds: Length of an episode [s].
            seed: Seed of the commands.
            share: Factor on the greatest velocities.
        """
        rng = generator(seed, "walking commands")
        count = max(1, int(np.ceil(seconds / HOLD)))
        drawn = rng.uniform(-1.0, 1.0, (worlds, count, 3)) * (SPEED, SIDEWAYS, TURNING)
        speed = np.hypot(drawn[..., 0], drawn[..., 1])
        drawn[..., :2] *= (np.minimum(speed, SPEED) / np.maximum(speed, 1e-9))[..., None]
        return cls(share * drawn)

    def at(self, time: float) -> np.ndarray:
        """Return the targets at a time, shape [worlds, 3]."""
        return self.targets[:, min(int(time / self.hold), self.targets.shape[1] - 1)]

    def follow(self, command: np.ndarray, time: float, dt: float) -> np.ndarray:
        """Return the commands a time dt after `command`, on the way to the targets, shape [worlds, 3]."""
        most = np.array(RAMP) * dt
        return command + np.clip(self.at(time) - command, -most, most)
