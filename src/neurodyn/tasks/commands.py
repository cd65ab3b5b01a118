# SPDX-License-Identifier: Apache-2.0
"""Commands of a task beside what the robot does: velocities to hold, and goals to reach."""

from dataclasses import dataclass

import torch
from torch import Tensor

LEAST_COMMAND = 0.05
"""Size of a velocity below which it commands the robot to stand [m/s or rad/s]."""


@dataclass(frozen=True)
class VelocityCommand:
    """A commanded velocity and the robot's, in one frame.

    Attributes:
        asked: Size of the command, shape [worlds]; below `LEAST_COMMAND` the robot is to stand, and it does not count.
        along: Component of the robot's velocity along the command, shape [worlds].
        moved: Size of the robot's velocity, shape [worlds].
        command: The command, shape [worlds, axes].
        off: The robot's velocity less the command, shape [worlds, axes].
    """

    asked: Tensor
    along: Tensor
    moved: Tensor
    command: Tensor
    off: Tensor

    @classmethod
    def of(cls, asked: Tensor, velocity: Tensor) -> "VelocityCommand":
        """Compare velocities with their commands, shape [worlds, axes] each."""
        size = torch.linalg.vector_norm(asked, dim=-1)
        along = (asked * velocity).sum(-1) / size.clamp_min(LEAST_COMMAND)
        return cls(size, along, torch.linalg.vector_norm(velocity, dim=-1), asked, velocity - asked)


@dataclass(frozen=True)
class GoalCommand:
    """Distance to a commanded goal in one frame, shape [worlds]."""

    distance: Tensor


Command = VelocityCommand | GoalCommand
"""A command and what the robot does."""

SPEED, TURNING, GOAL = "speed [m/s]", "turning [rad/s]", "way to the goal [m]"
"""Names of commands, with their units."""
