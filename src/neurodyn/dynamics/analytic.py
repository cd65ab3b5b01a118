# SPDX-License-Identifier: Apache-2.0
"""Analytic dynamics: the teacher, a solver of Newton under graph capture, behind the common interface."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from neurodyn.dynamics.control import frame_torque
from neurodyn.dynamics.interface import Control, Environment, State, Step, Trajectory, Window, present_state
from neurodyn.robots import Robot

if TYPE_CHECKING:
    from neurodyn.sim.teacher import Teacher


class AnalyticDynamics:
    """Newton's solver as the robot declares it. The state is complete, so the carry is empty.

    The simulation worlds are scratch space: every step writes all of their state first, so nothing is
    remembered from one call to the next.

    Attributes:
        spec: Names, order, units and dt of state and control.
        robot: The declared robot.
    """

    differentiable = False

    def __init__(self, robot: Robot, *, substeps: int | None = None, device: str = "cpu") -> None:
        self.robot = robot
        self.spec = robot.spec
        self._substeps = substeps
        self._device = device
        self._teachers: dict[tuple[int, tuple[float, ...] | None], Teacher] = {}

    def begin(self, context: State | Window, environment: Environment | None = None) -> "Teacher":
        """Return the carry: the simulation worlds in the environment that is asked for."""
        gravity = None if environment is None or environment.gravity is None else environment.gravity
        key = None if gravity is None else tuple(gravity.flatten().tolist())
        worlds = present_state(context).worlds
        if (worlds, key) not in self._teachers:
            from neurodyn.sim.teacher import Teacher

            self._teachers[worlds, key] = Teacher(
                self.robot, worlds, substeps=self._substeps, device=self._device, gravity=key
            )
        return self._teachers[worlds, key]

    @torch.no_grad()
    def step(self, carry: "Teacher", state: State, control: Control) -> tuple["Teacher", Step]:
        """Simulate one frame from `state` under the torques at its start."""
        q, qd = carry.step(state.q, state.qd, frame_torque(self.spec, state, control))
        return carry, Step(State(q, qd))

    def reset(self, carry: "Teacher", context: State | Window, mask: Tensor) -> "Teacher":
        """Return the carry as it is: the state is complete and nothing is remembered."""
        return carry

    @torch.no_grad()
    def rollout(self, context: State | Window, controls: Tensor, environment: Environment | None = None) -> Trajectory:
        """Simulate T frames under torques `controls` [N m or N], shape [worlds, T, nu]."""
        state = present_state(context)
        q, qd = self.begin(context, environment).rollout(state.q, state.qd, controls)
        return Trajectory(q, qd)
