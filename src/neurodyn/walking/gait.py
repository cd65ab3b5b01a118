# SPDX-License-Identifier: Apache-2.0
"""Gaits (the stance and swing times of feet), and commanded velocities over time."""

from dataclasses import dataclass

import numpy as np

from neurodyn.core.config import Config
from neurodyn.core.errors import require
from neurodyn.core.registry import Registry
from neurodyn.core.seeds import generator


class Gait(Config, frozen=True):
    """A periodic schedule of contacts; legs are front left, front right, hind left, hind right.

    Attributes:
        stance: Stance time of a foot [s].
        duty: Share of the period in stance; 1 for always.
        offsets: Phase of each leg at time zero, in periods; a foot stands from phase 0 on.
    """

    stance: float
    duty: float
    offsets: tuple[float, float, float, float]

    def __post_init__(self) -> None:
        require(self.stance > 0, "stance", self.stance, "above 0 [s]")
        require(0 < self.duty <= 1, "duty", self.duty, "above 0 and at most 1")

    @property
    def period(self) -> float:
        """Length of a cycle [s]."""
        return self.stance / self.duty

    @property
    def swing(self) -> float:
        """Swing time of a foot [s]."""
        return self.period - self.stance

    def phase(self, time: np.ndarray | float) -> np.ndarray:
        """Return the phase of each leg, 0 to 1, shape [..., 4]."""
        return (np.asarray(time)[..., None] / self.period + np.array(self.offsets)) % 1.0

    def stands(self, phase: np.ndarray) -> np.ndarray:
        """Return whether feet stand at these phases, bool, shape of `phase`."""
        return phase < self.duty

    def left(self, phase: np.ndarray) -> np.ndarray:
        """Return the time until a foot next lifts or lands [s], shape of `phase`."""
        return (np.where(self.stands(phase), self.duty, 1.0) - phase) * self.period

    def progress(self, phase: np.ndarray) -> np.ndarray:
        """Return the progress of a foot's swing, 0 to 1, shape of `phase`; 0 in stance."""
        return np.clip((phase - self.duty) / max(1.0 - self.duty, 1e-9), 0.0, 1.0)


GAITS: Registry[Gait] = Registry(
    "gait",
    stand=Gait(stance=1.0, duty=1.0, offsets=(0.0, 0.0, 0.0, 0.0)),
    trot=Gait(stance=0.3, duty=0.6, offsets=(0.0, 0.5, 0.5, 0.0)),
    walk=Gait(stance=0.6, duty=0.75, offsets=(0.0, 0.5, 0.75, 0.25)),
)
"""Gaits by name."""


SPEED, SIDEWAYS, TURNING = 0.6, 0.3, 0.8
"""Limits of drawn commands: speed, sideways velocity [m/s] and yaw rate [rad/s]."""
HOLD = 3.0
"""Time for which a drawn command holds [s]."""
RAMP = (1.0, 1.0, 2.0)
"""Largest rate of change of a command [m/s^2, m/s^2, rad/s^2]."""


@dataclass(frozen=True)
class Commands:
    """Commands of a batch of worlds, which change along ramps.

    Attributes:
        targets: Target velocities and yaw rates, shape [worlds, targets, 3].
        hold: Time for which each target holds [s].
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
            share: Factor on the velocity limits.
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
        """Return the commands a time dt after `command`, ramped towards the targets, shape [worlds, 3]."""
        most = np.array(RAMP) * dt
        return command + np.clip(self.at(time) - command, -most, most)
