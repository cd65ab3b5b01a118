# SPDX-License-Identifier: Apache-2.0
"""Terrain that grows as it is mastered: worlds in which a robot survives an episode go on to a higher one."""

import math
from typing import Any

import msgspec
import numpy as np
import torch
from torch import Tensor

from neurodyn.control.starts import lower_below_starts
from neurodyn.core.description.scene import Terrain
from neurodyn.core.seeds import derive_seed
from neurodyn.dynamics.batch import Environment
from neurodyn.dynamics.hybrid.model import HybridDynamics
from neurodyn.dynamics.interface import Dynamics
from neurodyn.evaluate.named_scenarios import scenario
from neurodyn.geometry.ground import Ground
from neurodyn.geometry.solids import Solid, terrain_heights
from neurodyn.tasks import Task
from neurodyn.tasks.velocity import VelocityTracking

LEVELS = 4
"""Highest level, the terrain as declared; level 0 is flat."""
_BAND, _WIDTH, _RISE = 12.0, 104.0, 1.0
"""Edges of the part of a level along x and y, and length over which its heights go over into the next [m]."""
_MARGIN = 16.0
"""Ground beyond the first and the last level [m]: no episode of 20 s, with new commands every 2 s, leaves it."""
_AROUND = (4.0, 34.0)
"""Largest distance of starts from the middle of a level along x and y [m]: over all styles of a mixed terrain alike."""
_PLACES = 128
"""Starts of each level."""


class GroundLevels:
    """A terrain in parts of growing height along x, and the part on which each world is.

    A world whose episode ends without a failure goes on to the next level, or from the last one to either of the two
    last; after a failure it goes back by one. Each episode has another place and heading.

    Attributes:
        environment: The ground; its poses are overwritten in place.
        level: Level of each world, shape [worlds].
    """

    def __init__(self, task: Task, terrain: Terrain, worlds: int, seed: int) -> None:
        """Put all worlds on level 0.

        Raises:
            InputError: The terrain has too many heights.
        """
        heights = level_heights(terrain)
        solid = Solid(
            "heightfield", np.array([0.0, 0, 0, 0, 0, 0, 1]), (terrain.cell, terrain.cell, 0.0), heights=heights
        )
        self._generator = torch.Generator().manual_seed(derive_seed(seed, "ground levels", task.name))
        self._poses = torch.stack([self._starts(level, solid) for level in range(LEVELS + 1)])
        self.level = torch.zeros(worlds, dtype=torch.long)
        self._pose = self._draw()
        self.environment = Environment(ground=Ground(shared=(solid,), pose=self._pose))

    @classmethod
    def of(cls, task: Task, name: str, dynamics: Dynamics, worlds: int, seed: int) -> "GroundLevels | None":
        """Return the levels of one of the robot's grounds, or of a file with a scene.

        None if it is not one level terrain, for tasks that run away, or if the dynamics have a ground of their own.
        """
        if not isinstance(task, VelocityTracking):
            return None
        shapes = () if (scene := scenario(task.declaration(), name, words=()).scene) is None else scene.shapes
        if len(shapes) != 1 or not isinstance(shapes[0], Terrain) or not isinstance(dynamics, HybridDynamics):
            return None
        level = shapes[0].rotation[3] ** 2 == 1.0 and torch.device(dynamics.device).type == "cpu"
        return cls(task, shapes[0], worlds, seed) if level else None

    @property
    def share(self) -> float:
        """Mean height of the worlds' terrain relative to the declared one."""
        return float(self.level.double().mean()) / LEVELS

    def renew(self, done: Tensor, failed: Tensor) -> None:
        """Move the worlds whose episode ended; arguments have shape [worlds], bool."""
        after = torch.where(failed, self.level - 1, self.level + 1).clamp_min(0)
        upper = torch.randint(LEVELS - 1, LEVELS + 1, after.shape, generator=self._generator)
        after = torch.where(after > LEVELS, upper, after)
        self.level = torch.where(done, after, self.level)
        self._pose.copy_(torch.where(done[:, None], self._draw(), self._pose))

    def state(self) -> dict[str, Any]:
        """Return levels, poses and the state of the generator."""
        return {"level": self.level.clone(), "pose": self._pose.clone(), "drawn": self._generator.get_state()}

    def load(self, saved: dict[str, Any]) -> None:
        """Restore what `state` returned."""
        self.level = saved["level"].clone()
        self._pose.copy_(saved["pose"])
        self._generator.set_state(saved["drawn"])

    def _draw(self) -> Tensor:
        """Return a pose at the level of each world, shape [worlds, 7]."""
        place = torch.randint(_PLACES, self.level.shape, generator=self._generator)
        return self._poses[self.level, place]

    def _starts(self, level: int, solid: Solid) -> Tensor:
        """Return poses of the ground with the robot's start anywhere on a level, shape [_PLACES, 7]."""
        drawn = 2.0 * torch.rand(_PLACES, 3, generator=self._generator) - 1.0
        x = _BAND * (level - LEVELS / 2) + _AROUND[0] * drawn[:, 0]
        y, turn = _AROUND[1] * drawn[:, 1], math.pi * drawn[:, 2]
        pose = torch.zeros(_PLACES, 7)
        pose[:, 0], pose[:, 1] = y * turn.sin() - x * turn.cos(), -x * turn.sin() - y * turn.cos()
        pose[:, 5], pose[:, 6] = (0.5 * turn).sin(), (0.5 * turn).cos()
        return lower_below_starts(Ground(shared=(solid,), pose=pose))


def level_heights(terrain: Terrain) -> np.ndarray:
    """Return the heights of a terrain in levels along x [m], shape [rows along y, columns along x]."""
    length = _BAND * (LEVELS + 1) + 2.0 * _MARGIN
    heights = terrain_heights(msgspec.structs.replace(terrain, size=(length, _WIDTH)))
    along = (terrain.cell * np.arange(heights.shape[1]) - _MARGIN) / _BAND
    whole = np.floor(along)
    rising = np.clip(1.0 - (1.0 - (along - whole)) * _BAND / _RISE, 0.0, 1.0)
    return heights * np.clip((whole + rising) / LEVELS, 0.0, 1.0)
