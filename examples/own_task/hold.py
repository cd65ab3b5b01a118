# SPDX-License-Identifier: Apache-2.0
"""A task of your own: move the joints of an arm to commanded angles, and hold them there.

    neurodyn policy train examples/own_task/hold.py:Hold --dynamics analytic --out runs/hold
    neurodyn policy play runs/hold --task examples/own_task/hold.py:Hold --out hold.html

A task reads named quantities and is independent of the dynamics, so the same file trains in a simulator, in a neural
model and in a world model of the robot.
"""

from pathlib import Path

import torch
from torch import Tensor

from neurodyn.dynamics import Control, Quantities
from neurodyn.tasks import Memory, ObservationTerm, Task

TORQUE = 2.0
"""Torque of an action of 1 [N m]."""


class Hold(Task):
    """r = exp(-|q - q*|^2) - .01 |action|^2, with q* drawn at the start of an episode."""

    robot = str(Path(__file__).resolve().parent.parent / "own_robot")
    needs = ("joint_position", "joint_velocity")
    actions = ("shoulder", "elbow")
    action_scale = (TORQUE, TORQUE)
    action_meaning = "torque of the joint [N m]"
    frames = 200

    def commands(self, worlds: int, generator: torch.Generator) -> Tensor:
        """Draw the commanded angles [rad], shape [worlds, 2]."""
        return 2.0 * torch.rand(worlds, 2, generator=generator) - 1.0

    def control(self, action: Tensor, quantities: Quantities, memory: Memory) -> Control:
        """Return torques."""
        return Control(torque=TORQUE * action)

    def observation_terms(self) -> dict[str, tuple[ObservationTerm, ...]]:
        """Return angles, their rates, and the command."""
        terms = (
            ObservationTerm("joint_position", columns=("shoulder", "elbow")),
            ObservationTerm("joint_velocity", columns=("shoulder_velocity", "elbow_velocity"), noise=0.05),
            ObservationTerm("asked", lambda now, memory: memory.command, ("shoulder_asked", "elbow_asked")),
        )
        return {"policy": terms}

    def reward(self, quantities: Quantities, memory: Memory, action: Tensor) -> dict[str, Tensor]:
        """Return the reward for nearness and the cost of effort."""
        away = (quantities["joint_position"] - memory.command).square().sum(-1)
        return {"near": torch.exp(-away), "effort": -0.01 * action.square().sum(-1)}

    def terminated(self, quantities: Quantities, memory: Memory) -> Tensor:
        """Return which worlds have a joint that is far too fast."""
        return (quantities["joint_velocity"].abs() > 50.0).any(-1)
