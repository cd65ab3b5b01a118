# SPDX-License-Identifier: Apache-2.0
"""The drives of a robot as a compiled, differentiable function, and the PD controller of driven joints."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Float
from msgspec import UNSET
from torch import Tensor

from neurodyn.core.description.drive import ACTUATOR, Drive, require_drives, require_simulated
from neurodyn.core.description.spec import StateSpec
from neurodyn.core.errors import InputError, nearest
from neurodyn.geometry.tensors import Positions, Torques, Velocities
from neurodyn.multibody.drives.actuators import require_placed
from neurodyn.multibody.drives.drive import DrivenJoint, drive_torque
from neurodyn.multibody.scope import StepMemory
from neurodyn.multibody.trace import Graph, Scalar
from neurodyn.multibody.trace.program import TracedProgram
from neurodyn.multibody.trace.recurrence import ProgramInputs, ProgramSizes


class DriveProgram:
    """Computes torques from commands and encoder readings, step by step.

    Attributes:
        spec: Names and order of state and control; the control is the drives' command.
        step: Length of a step [s].
        memory: Numbers that the drives keep from step to step.
        joints: Driven joints.
        free: Names of the quantities passed in every call, such as "actuator.hip_1.gain".
    """

    def __init__(self, drives: Mapping[str, Drive], spec: StateSpec, step: float, free: Sequence[str] = ()) -> None:
        """Trace the drives; joints without a drive take torques.

        Raises:
            InputError: The drives do not fit the controls (see `core.description.drive.require_drives`), or a drive
                does not act by torque; or a free quantity belongs to none of them.
        """
        require_drives(drives, spec.controls, f"robot {spec.robot!r}: drives")
        require_simulated(drives, spec.robot)
        require_placed(drives, spec)
        if elsewhere := [name for name, drive in drives.items() if drive.acts_elsewhere and not drive.joints]:
            raise InputError(
                f"robot {spec.robot!r}: {elsewhere[0]!r} acts elsewhere than at joints; valid here: hybrid dynamics, "
                "or drives of joints"
            )
        if inside := [name for name, drive in drives.items() if drive.encoder == "motor"]:
            raise InputError(
                f"robot {spec.robot!r}: the encoder of {inside[0]!r} is on its motor, behind a spring; valid here: "
                "hybrid dynamics, or an encoder on the joint"
            )
        self.spec, self.step, self.free, self._drives = spec, step, tuple(free), dict(drives)
        self._constants = {
            f"{ACTUATOR}{name}.{what}": value
            for name, drive in drives.items()
            for what, value in drive.quantities().items()
        }
        for name in free:
            if name not in self._constants:
                raise InputError(f"parameter {name!r} is none of the drives; valid: {nearest(name, self._constants)}")
        alone = {name: {name: 1.0} for name in spec.controls}  # factors from a drive's torque to those of its joints
        gears = {name: drive.transmission for name, drive in drives.items() if drive.transmission is not UNSET}
        self._acts = [gears.get(name, alone[name]) for name in spec.controls]
        self.joints = tuple(dict.fromkeys(joint for row in self._acts for joint in row))
        self._columns = [[names.index(joint) for joint in self.joints] for names in (spec.q_names, spec.qd_names)]
        graph = Graph()
        self._inputs = spec.nu + 2 * len(self.joints)
        numbers = graph.inputs("p", len(self.free))
        self.memory = self._trace(graph, graph.inputs("u", self._inputs), numbers)[1].size
        sizes = ProgramSizes(state=len(self.joints) + self.memory, control=self._inputs, parameters=len(self.free))
        self._program = TracedProgram(sizes, self._step)
        bias = torch.zeros(spec.nq)
        for name, drive in drives.items():
            if not drive.acts_elsewhere:
                bias[spec.q_names.index(name)] = drive.bias
        self._bias = bias

    @property
    def columns(self) -> tuple[list[int], list[int]]:
        """Columns of the driven joints in positions and in velocities."""
        return self._columns[0], self._columns[1]

    def bias(self, q: Positions, numbers: Tensor | None = None) -> Float[Tensor, "... nq"]:
        """Return the encoder offsets in the unit, dtype and device of `q`, shape [nq], or [worlds, nq] with `numbers`.

        `numbers` are values of the free quantities, shape [worlds, free].
        """
        bias = self._bias.to(q)
        if numbers is None:
            return bias
        bias = bias.repeat(len(q), 1)
        for column, name in enumerate(self.free):
            joint, _, what = name.removeprefix(ACTUATOR).rpartition(".")
            if what == "bias":
                bias[:, self.spec.q_names.index(joint)] = numbers[:, column]
        return bias

    def __call__(
        self, command: Torques, q: Positions, qd: Velocities, memory: Tensor | None, numbers: Tensor | None = None
    ) -> tuple[Torques, Tensor | None]:
        """Return the torques of a step [N m or N], shape [worlds, joints], and the memory after it.

        `q` are encoder readings. The memory, shape [worlds, memory], is None at the start. `numbers` are values of the
        free quantities, shape [worlds, free]; None without any.
        """
        worlds, joints = len(q), len(self.joints)
        kept = q.new_zeros(worlds, self.memory) if memory is None else memory
        rows, dofs = self._columns
        control = torch.cat([command.to(q), q[:, rows], qd[:, dofs]], -1)
        state = torch.cat([q.new_zeros(worlds, joints), kept], -1)
        after = self._program.rollout(state, frames=1, control=control[:, None], parameters=numbers)[:, -1]
        return after[:, :joints], after[:, joints:] if self.memory else None

    def _step(self, inputs: ProgramInputs) -> list[Scalar]:
        torques, memory = self._trace(inputs.graph, inputs.control, inputs.parameters)
        return [*torques, *memory.after()]

    def _trace(self, graph: Graph, control: list[Any], free: Sequence[Any]) -> tuple[list[Scalar], StepMemory]:
        spec, count = self.spec, len(self.joints)
        memory, torques = StepMemory(graph, count), dict[str, Any]()
        commands, moved, rates = control[: spec.nu], control[spec.nu : spec.nu + count], control[spec.nu + count :]
        numbers = {**self._constants, **dict(zip(self.free, free, strict=True))}
        q, qd = (dict(zip(self.joints, values, strict=True)) for values in (moved, rates))
        for name, row, command in zip(spec.controls, self._acts, commands, strict=True):
            torque = command
            if name in self._drives:
                drive = self._drives[name]
                length, rate = (sum((x * values[joint] for joint, x in row.items()), start=0.0) for values in (q, qd))
                if not drive.acts_elsewhere:
                    length, rate = q[name], qd[name]
                turns = not drive.acts_elsewhere and spec.continuous[spec.q_names.index(name)]
                joint = DrivenJoint(name, length, rate, turns)
                torque = drive_torque(
                    drive, joint, torque, numbers.__getitem__, lambda _, value: value, memory, self.step,
                    round(spec.dt / self.step),
                ).torque  # fmt: skip
            for joint, factor in row.items():
                own = torque if factor == 1.0 else factor * torque
                torques[joint] = torques[joint] + own if joint in torques else own
        return [torques[joint] for joint in self.joints], memory
