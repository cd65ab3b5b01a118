# SPDX-License-Identifier: Apache-2.0
"""Gaits: when which foot stands and when it swings."""

import numpy as np

from neurodyn.core.config import Config
from neurodyn.core.errors import require
from neurodyn.core.registry import Registry


class Gait(Config, frozen=True):
    """A periodic schedule of contacts; legs are front left, front right, hind left, hind right.

    Attributes:
        stance: Time for which a foot stands [s].
        duty: Share of the period for which it stands; 1 for always.
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
        """Time for which a foot swings [s]."""
        return self.period - self.stance

    def phase(self, time: np.ndarray | float) -> np.ndarray:
        """Return the phase of each leg, 0 to 1, shape [..., 4]."""
        return (np.asarray(time)[..., None] / self.period + np.array(self.offsets)) % 1.0

    def stands(self, phase: np.ndarray) -> np.ndarray:
        """Return whether feet stand at these phases, bool, as `phase`."""
        return phase < self.duty

    def left(self, phase: np.ndarray) -> np.ndarray:
        """Return the time until a foot next lifts or lands [s], as `phase`."""
        return (np.where(self.stands(phase), self.duty, 1.0) - phase) * self.period

    def progress(self, phase: np.ndarray) -> np.ndarray:
        """Return how much of its swing a foot has done, 0 to 1, as `phase`; 0 while it stands."""
        return np.clip((phase - self.duty) / max(1.0 - self.duty, 1e-9), 0.0, 1.0)


GAITS: Registry[Gait] = Registry(
    "gait",
    stand=Gait(stance=1.0, duty=1.0, offsets=(0.0, 0.0, 0.0, 0.0)),
    trot=Gait(stance=0.3, duty=0.6, offsets=(0.0, 0.5, 0.5, 0.0)),
    walk=Gait(stance=0.6, duty=0.75, offsets=(0.0, 0.5, 0.75, 0.25)),
)
"""Gaits by name."""
