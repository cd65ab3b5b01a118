# SPDX-License-Identifier: Apache-2.0
"""The drives of a robot as a compiled, differentiable function, for dynamics whose control is torque."""

from collections.abc import Mapping
from typing import Any

import torch
from jaxtyping import Float
from msgspec import UNSET
from torch import Tensor

from neurodyn.core.description.drive import Drive, require_drives, require_simulated
from neurodyn.core.description.spec import StateSpec
from neurodyn.core.errors import InputError
from neurodyn.geometry.tensors import Positions, Torques, Velocities
from neurodyn.multibody.drives.actuators import require_placed
from neurodyn.multibody.drives.drive import DrivenJoint, drive_torque
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
        joints: Joints on which they act.
    """

    def __init__(self, drives: Mapping[str, Drive], spec: StateSpec, step: float) -> None:
        """Trace the drives; joints without a drive take torques.

        Raises:
            InputError: The drives do not fit the controls (see `core.description.drive.require_drives`), or a drive
                does not act by torque.
        """
        require_drives(drives, spec.controls, f"robot {spec.robot!r}: drives")
        require_simulated(drives, spec.robot)
        require_placed(drives, spec)
        if found := [name for name, drive in drives.items() if drive.wrench is not UNSET]:
            raise InputError(
                f"robot {spec.robot!r}: {found[0]!r} acts at a point of a link; valid here: hybrid dynamics, or drives "
                "of joints"
            )
        self.spec, self.step, self._drives = spec, step, dict(drives)
        self._acts = [_acting(drives.get(name), name) for name in spec.controls]
        self.joints = tuple(dict.fromkeys(joint for row in self._acts for joint in row))
        self._columns = [[names.index(joint) for joint in self.joints] for names in (spec.q_names, spec.qd_names)]
        graph = Graph()
        self._inputs = spec.nu + 2 * len(self.joints)
        self.memory = self._traced(graph, graph.inputs("u", self._inputs))[1].size
        sizes = ProgramSizes(state=len(self.joints) + self.memory, control=self._inputs)
        self._program = TracedProgram(sizes, self._step)
        bias = torch.zeros(spec.nq)
        for name, drive in drives.items():
            if not drive.placed:
                bias[spec.q_names.index(name)] = drive.bias
        self._bias = bias

    @property
    def columns(self) -> tuple[list[int], list[int]]:
        """Columns of the driven joints in positions and in velocities."""
        return self._columns[0], self._columns[1]

    def bias(self, q: Positions) -> Float[Tensor, " nq"]:
        """Return the encoder offsets, shape [nq], in the unit, dtype and device of `q`."""
        return self._bias.to(q)

    def __call__(
        self, command: Torques, q: Positions, qd: Velocities, memory: Tensor | None
    ) -> tuple[Torques, Tensor | None]:
        """Return the torques of a step [N m or N], shape [worlds, joints], and the memory after it.

        `q` are encoder readings. The memory, shape [worlds, memory], is None at the start.
        """
        worlds, joints = len(q), len(self.joints)
        kept = q.new_zeros(worlds, self.memory) if memory is None else memory
        rows, dofs = self._columns
        control = torch.cat([command.to(q), q[:, rows], qd[:, dofs]], -1)
        state = torch.cat([q.new_zeros(worlds, joints), kept], -1)
        after = self._program.rollout(state, frames=1, control=control[:, None])[:, -1]
        return after[:, :joints], after[:, joints:] if self.memory else None

    def _step(self, inputs: ProgramInputs) -> list[Scalar]:
        torques, memory = self._traced(inputs.graph, inputs.control)
        return [*torques, *memory.after()]

    def _traced(self, graph: Graph, control: list[Any]) -> tuple[list[Scalar], StepMemory]:
        spec, count = self.spec, len(self.joints)
        memory, torques = StepMemory(graph, count), dict[str, Any]()
        commands, moved, rates = control[: spec.nu], control[spec.nu : spec.nu + count], control[spec.nu + count :]
        numbers = {
            f"actuator.{name}.{what}": value
            for name, drive in self._drives.items()
            for what, value in drive.quantities().items()
        }
        q, qd = (dict(zip(self.joints, values, strict=True)) for values in (moved, rates))
        for name, row, command in zip(spec.controls, self._acts, commands, strict=True):
            torque = command
            if name in self._drives:
                drive = self._drives[name]
                length, rate = (sum((x * values[joint] for joint, x in row.items()), start=0.0) for values in (q, qd))
                if not drive.placed:
                    length, rate = q[name], qd[name]
                turns = not drive.placed and spec.continuous[spec.q_names.index(name)]
                joint = DrivenJoint(name, length, rate, turns)
                torque = drive_torque(
                    drive, joint, torque, numbers.__getitem__, lambda _, value: value, memory, self.step
                ).torque
            for joint, factor in row.items():
                own = torque if factor == 1.0 else factor * torque
                torques[joint] = torques[joint] + own if joint in torques else own
        return [torques[joint] for joint in self.joints], memory


def _acting(drive: Drive | None, name: str) -> dict[str, float]:
    """Return the factor from a drive's torque to that of each joint that it acts on."""
    return {name: 1.0} if drive is None or drive.transmission is UNSET else drive.transmission
