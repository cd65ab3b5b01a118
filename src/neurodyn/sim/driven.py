# SPDX-License-Identifier: Apache-2.0
"""The reference simulator of a robot with drives: they turn commands into torques before every solver step."""

from typing import Any

import msgspec
import torch
from torch import Tensor

from neurodyn.core.errors import InputError
from neurodyn.geometry.launching import on_warp_stream
from neurodyn.multibody.drive_program import DriveProgram
from neurodyn.robots import Robot
from neurodyn.sim.reference import ReferenceSimulator


class DrivenSimulator(ReferenceSimulator):
    """A `ReferenceSimulator` that takes commands; positions are what encoders read.

    Attributes:
        memory: What the drives keep, shape [worlds, memory]; None where nothing has happened yet.
    """

    def __init__(self, robot: Robot, worlds: int, *, substeps: int | None = None, **options: Any) -> None:
        """Build the worlds; arguments as of `ReferenceSimulator`."""
        steps = robot.simulator.substeps if substeps is None else substeps
        if steps < 1:
            raise InputError(f"substeps is {steps}; valid: at least 1")
        single = msgspec.structs.replace(robot.simulator, substeps=1)
        part = msgspec.structs.replace(robot, drives={}, dt=robot.dt / steps, simulator=single)
        super().__init__(part, worlds, **options)
        self.robot, self.substeps = robot, steps
        self._drives = DriveProgram(robot.drives, robot.spec, part.dt)

    def begin(self, memory: Tensor | None = None) -> None:
        """Forget what the drives keep, or take up what they kept before."""
        self.memory = memory

    @torch.no_grad()
    def step_(self, q: Tensor, qd: Tensor, torque: Tensor) -> tuple[Tensor, Tensor]:
        """Advance all worlds by one frame under commands; returns views, as `ReferenceSimulator.step_`."""
        command = torque.detach().to(self._q_in)
        q, qd, bias = q.to(self._q_in), qd.to(self._qd_in), self._drives.bias(self._q_in)
        for _ in range(self.substeps):
            acting, self.memory = self._drives(command, q, qd, self.memory)
            with on_warp_stream(self.device):
                self._q_in.copy_(q - bias)
                self._qd_in.copy_(qd)
                self._force[:, self._dofs] = acting.to(self._force)
                self.replay()
            q, qd = self._q_out + bias, self._qd_out
        return q, qd


def simulator(robot: Robot, worlds: int, **options: Any) -> ReferenceSimulator:
    """Return the reference simulator of a robot, which takes what its drives do; options as of the class."""
    kind = DrivenSimulator if robot.drives else ReferenceSimulator
    return kind(robot, worlds, **options)
