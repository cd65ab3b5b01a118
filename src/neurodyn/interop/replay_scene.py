# SPDX-License-Identifier: Apache-2.0
"""What players of exported files get and return."""

from dataclasses import dataclass

from neurodyn.data.windows import Windows
from neurodyn.dynamics.batch import Trajectory
from neurodyn.robots import Robot


class NotReplayedError(Exception):
    """A target cannot be replayed here; the message says why."""


@dataclass(frozen=True)
class ReplayScene:
    """What a player needs besides a file.

    Attributes:
        robot: The declaration, with the drives that it declares for a log of targets.
        windows: Windows with the past in which actuators settle.
        step: Time step of the model [s].
        com: Point of a floating base whose velocity the states hold, in the base's frame [m].
    """

    robot: Robot
    windows: Windows
    step: float
    com: tuple[float, float, float] = (0.0, 0.0, 0.0)


@dataclass(frozen=True)
class Played:
    """Roll-outs of an exported file, and of the original (None without one), and the simulator that computed them."""

    simulator: str
    exported: Trajectory
    original: Trajectory | None
