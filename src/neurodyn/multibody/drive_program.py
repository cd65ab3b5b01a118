# SPDX-License-Identifier: Apache-2.0
"""The drives of a robot as a compiled, differentiable function, for dynamics whose control is torque."""

from collections.abc import Mapping
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from neurodyn.core.description.drive import Drive, require_drives, require_simulated
from neurodyn.core.description.spec import StateSpec
from neurodyn.geometry.tensors import Positions, Torques, Velocities
from neurodyn.multibody.drive import DrivenJoint, drive_torque
from neurodyn.multibody.memory import StepMemory
from neurodyn.multibody.trace import Graph, Scalar
from neurodyn.multibody.trace.program import TracedProgram
from neurodyn.multibody.trace.recurrence import ProgramInputs, ProgramSizes


class DriveProgram:
    """Computes torques from commands and encoder readings, step by step.

    Attributes:
        spec: Names and order of state and control; the control is the drives' command.
        step: Length of a step [s].
        memory: Numbers that the drives keep from step to step.
    """

    def __init__(self, drives: Mapping[str, Drive], spec: StateSpec, step: float) -> None:
        """Trace the drives; joints without a drive take torques.

        Raises:
            InputError: The drives do not fit the controls (see `core.description.drive.require_drives`), or a drive
                does not act by torque.
        """
        require_drives(drives, spec.controls, f"robot {spec.robot!r}: drives")
        require_simulated(drives, spec.robot)
        self.spec, self.step, self._drives = spec, step, dict(drives)
        self._rows = [spec.q_names.index(name) for name in spec.controls]
        graph = Graph()
        self.memory = self._traced(graph, graph.inputs("u", 3 * spec.nu))[1].size
        sizes = ProgramSizes(state=spec.nu + self.memory, control=3 * spec.nu)
        self._program = TracedProgram(sizes, self._step)
        bias = torch.zeros(spec.nq)
        for name, drive in drives.items():
            bias[spec.q_names.index(name)] = drive.bias
        self._bias = bias

    @property
    def columns(self) -> tuple[list[int], list[int]]:
        """Columns of the driven joints in positions and in velocities."""
        return self._rows, list(self.spec.control_dofs)

    def bias(self, q: Positions) -> Float[Tensor, " nq"]:
        """Return the encoder offsets, shape [nq], in the unit, dtype and device of `q`."""
        return self._bias.to(q)

    def __call__(
        self, command: Torques, q: Positions, qd: Velocities, memory: Tensor | None
    ) -> tuple[Torques, Tensor | None]:
        """Return the torques of a step [N m or N], shape [worlds, nu], and the memory after it.

        `q` are encoder readings. The memory, shape [worlds, memory], is None at the start.
        """
        worlds, nu = len(q), self.spec.nu
        kept = q.new_zeros(worlds, self.memory) if memory is None else memory
        control = torch.cat([command.to(q), q[:, self._rows], qd[:, list(self.spec.control_dofs)]], -1)
        state = torch.cat([q.new_zeros(worlds, nu), kept], -1)
        after = self._program.rollout(state, frames=1, control=control[:, None])[:, -1]
        return after[:, :nu], after[:, nu:] if self.memory else None

    def _step(self, inputs: ProgramInputs) -> list[Scalar]:
        torques, memory = self._traced(inputs.graph, inputs.control)
        return [*torques, *memory.after()]

    def _traced(self, graph: Graph, control: list[Any]) -> tuple[list[Scalar], StepMemory]:
        spec, memory, torques = self.spec, StepMemory(graph, self.spec.nu), []
        commands, q, qd = (control[i * spec.nu : (i + 1) * spec.nu] for i in range(3))
        numbers = {
            f"actuator.{name}.{what}": value
            for name, drive in self._drives.items()
            for what, value in drive.quantities().items()
        }
        for k, name in enumerate(spec.controls):
            torque = commands[k]
            if name in self._drives:
                joint = DrivenJoint(name, q[k], qd[k], spec.continuous[self._rows[k]])
                torque = drive_torque(
                    self._drives[name], joint, torque, numbers.__getitem__, lambda _, value: value, memory, self.step
                )
            torques.append(torque)
        return torques, memory
