# SPDX-License-Identifier: Apache-2.0
"""From a Newton control to the torques of one frame.

Newton's law for the drive of a joint, evaluated once, at the start of the frame:

    tau = joint_f + clamp(ke (target_q - q) + kd (target_qd - qd), -effort_limit, effort_limit)

Gains alone decide whether a drive acts, as in SolverFeatherstone (`joint_target_mode` is not read); the limit
acts on the drive and not on `joint_f`, as in SolverMuJoCo (SolverFeatherstone has no such limit). Angles count turns:
the error of a drive is not wrapped, however far the target is.

One kernel reads all of it, so that a frame can be captured in a graph. What the model cannot feel makes the torques of
its world NaN, and is noted where the host finds it without waiting for a device.
"""

from typing import TYPE_CHECKING, Any

import numpy as np
import warp as wp
from torch import Tensor

from neurodyn.core.description.spec import StateSpec
from neurodyn.core.errors import InputError
from neurodyn.solvers.drive_kernel import WRENCH, drive_kernel

if TYPE_CHECKING:
    import newton

_NAMES = ("", "joint_f", "joint_target_ke", "joint_target_kd")
"""What a force is, by the kernel's number of it."""


class Drive:
    """Reads state, torques, targets and gains of a model's robots, and refuses what the dynamics cannot feel."""

    def __init__(self, spec: StateSpec, q: Tensor, qd: Tensor, torque: Tensor, where: str) -> None:
        """Prepare to read.

        Args:
            spec: Names and order of state and control.
            q: Where positions go, shape [worlds, nq], float32.
            qd: Where velocities go, shape [worlds, nv].
            torque: Where torques go, shape [worlds, nu].
            where: Who asks, for error messages.
        """
        self._where, self._spec, self._worlds = where, spec, q.shape[0]
        control_of, row_of = np.full(spec.nv, -1, np.int32), np.zeros(spec.nv, np.int32)
        for number, (dof, name) in enumerate(zip(spec.control_dofs, spec.controls, strict=True)):
            control_of[dof], row_of[dof] = number, spec.q_names.index(name)
        device = wp.device_from_torch(q.device)
        self._tables = [wp.array(table, dtype=wp.int32, device=device) for table in (control_of, row_of)]
        self._results = [wp.from_torch(tensor, requires_grad=False) for tensor in (q, qd, torque)]
        self._nothing = wp.zeros(0, dtype=wp.float32, device=device)
        self._no_wrench = wp.zeros(0, dtype=wp.spatial_vectorf, device=device)
        self._taken = wp.zeros(1, dtype=wp.int32, device=device)
        self._refused = wp.zeros(4, dtype=wp.float32, device=device)
        self._on_cpu = device.is_cpu
        self._taken_copy = self._taken if self._on_cpu else wp.zeros(1, dtype=wp.int32, device="cpu", pinned=True)
        self._host = self._taken_copy.numpy()

    def read(self, model: "newton.Model", state: "newton.State", control: "newton.Control") -> None:
        """Launch the kernel; arrays as they are now, which a captured graph goes on reading.

        Args:
            model: The Newton model, of which gains and effort limits are read.
            state: The state at the start of the frame.
            control: Torques and targets.
        """
        given: Any = (
            state.joint_q, state.joint_qd, control.joint_f, control.joint_target_q, control.joint_target_qd,
            model.joint_target_ke, model.joint_target_kd, model.joint_effort_limit,
        )  # fmt: skip
        arrays = [self._nothing if array is None else array for array in given]
        wrench = self._no_wrench if state.body_f is None else state.body_f
        sizes = [self._spec.nq, self._spec.nv]
        inputs = [*sizes, *self._tables, *arrays, wrench, *self._results, self._taken, self._refused]
        wp.launch(drive_kernel, self._worlds, inputs=inputs, device=self._taken.device)
        if not self._on_cpu:
            wp.copy(self._taken_copy, self._taken)

    def require_felt(self) -> None:
        """Refuse what the kernel noted; on a GPU only what it had noted when its last copy arrived.

        Raises:
            InputError: A force or a drive acts on a joint that the model does not drive, or a wrench on a body.
        """
        if not self._host[0]:
            return
        what, world, index, value = self._refused.numpy().tolist()
        self._taken.zero_()
        self._host[0] = 0
        if int(what) == int(WRENCH):
            raise InputError(
                f"{self._where}: body_f is not zero, but the model feels joint forces only; valid: "
                "state.clear_forces() before the step"
            )
        raise InputError(
            f"{self._where}: {_NAMES[int(what)]} is {value:g} at joint {self._spec.qd_names[int(index)]!r} in world "
            f"{int(world)}, which the model does not drive; valid: 0 there, anything at "
            f"{', '.join(self._spec.controls) or '(no joint)'}"
        )
