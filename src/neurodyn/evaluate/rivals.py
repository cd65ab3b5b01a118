# SPDX-License-Identifier: Apache-2.0
"""Models that are evaluated along a log beside another one, from the same starts."""

from dataclasses import dataclass
from typing import Protocol

from neurodyn.data.store import Store
from neurodyn.data.windows import Windows
from neurodyn.dynamics.interface import Dynamics
from neurodyn.dynamics.rollout_errors import RolloutErrors
from neurodyn.dynamics.rollouts import truth_of
from neurodyn.evaluate.rollouts import roll_along_log
from neurodyn.robots import Robot


class Rival(Protocol):
    """A model that predicts along a log."""

    @property
    def context(self) -> int:
        """Frames before a start that it reads."""
        ...

    def errors(self, starts: Windows) -> RolloutErrors:
        """Return its errors along windows of the evaluated log."""
        ...


@dataclass(frozen=True)
class RivalModel:
    """Dynamics of this library.

    Attributes:
        dynamics: The model.
        robot: The robot.
        store: The evaluated log, with the quantities that the model knows by run.
    """

    dynamics: Dynamics
    robot: Robot
    store: Store

    @property
    def context(self) -> int:
        """Frames before a start that it reads."""
        return self.dynamics.spec.context

    def errors(self, starts: Windows) -> RolloutErrors:
        """Return its errors along windows."""
        return RolloutErrors.of(self.robot, roll_along_log(self.dynamics, self.store, starts), truth_of(starts))
