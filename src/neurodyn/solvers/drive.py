# SPDX-License-Identifier: Apache-2.0
"""Torques of a frame from a Newton control, and the kernels that copy states between Newton arrays and frames."""

from typing import TYPE_CHECKING, Any

import numpy as np
import warp as wp
from torch import Tensor

from neurodyn.core.description.spec import StateSpec
from neurodyn.core.errors import InputError

if TYPE_CHECKING:
    import newton


# Warp compiles these functions and infers types that neither checker knows.
# ruff: noqa: ANN201, ANN202, UP018
# pyright: basic, reportOperatorIssue=false, reportIndexIssue=false, reportArgumentType=false, reportCallIssue=false
# pyright: reportGeneralTypeIssues=false, reportReturnType=false, reportAttributeAccessIssue=false
# pyright: reportAssignmentType=false


JOINT_F = wp.constant(1)
STIFFNESS = wp.constant(2)
DAMPING = wp.constant(3)
WRENCH = wp.constant(4)


@wp.func
def _torques_valid(torque: wp.array2d[float], world: int):
    """Return whether the torques of a world are valid; NaN marks refused forces, not a fault of the model."""
    valid = bool(True)
    for i in range(torque.shape[1]):
        valid = valid and not wp.isnan(torque[world, i])
    return valid


@wp.kernel(enable_backward=False, module="unique")
def write_kernel(
    q: wp.array2d[float],
    qd: wp.array2d[float],
    torque: wp.array2d[float],
    q_next: wp.array2d[float],
    qd_next: wp.array2d[float],
    lower: wp.array[float],
    upper: wp.array[float],
    count: wp.array[int],
    fault: wp.array[int],
    any_fault: wp.array[int],
    last: wp.array2d[float],
    kept: wp.array3d[float],
    joint_q: wp.array[float],
    joint_qd: wp.array[float],
):
    """Write the next state of one world to the Newton arrays, which hold the worlds one after another, under guard.

    A world whose state leaves its bounds or is not finite is recorded, and from then on rests in its last plausible
    state. The start state and torques of each frame are kept in a ring. Bounds of length 0 switch the guard off.
    """
    world = wp.tid()
    nq = q.shape[1]
    nv = qd.shape[1]
    frame = count[world]
    if lower.shape[0] > 0:
        valid = _torques_valid(torque, world)
        if fault[world] == 0:
            slot = frame % kept.shape[0]
            for i in range(nq):
                kept[slot, world, i] = q[world, i]
                if valid and not (q_next[world, i] >= lower[i] and q_next[world, i] <= upper[i]):
                    fault[world] = frame + 1
            for i in range(nv):
                kept[slot, world, nq + i] = qd[world, i]
                if valid and not (qd_next[world, i] >= lower[nq + i] and qd_next[world, i] <= upper[nq + i]):
                    fault[world] = frame + 1
            for i in range(torque.shape[1]):
                kept[slot, world, nq + nv + i] = torque[world, i]
            if fault[world] != 0:
                any_fault[0] = 1
                for i in range(nq):
                    last[world, i] = q_next[world, i]
                for i in range(nv):
                    last[world, nq + i] = qd_next[world, i]
        count[world] = frame + 1
    if lower.shape[0] > 0 and fault[world] != 0:
        for i in range(nq):
            joint_q[world * nq + i] = q[world, i]
        for i in range(nv):
            joint_qd[world * nv + i] = 0.0
    else:
        for i in range(nq):
            joint_q[world * nq + i] = q_next[world, i]
        for i in range(nv):
            joint_qd[world * nv + i] = qd_next[world, i]


@wp.func
def _refuse(what: int, world: int, index: int, value: float, taken: wp.array[int], refused: wp.array[float]):
    """Record the first force that the model does not support; return NaN for the torques of its world."""
    if wp.atomic_cas(taken, 0, 0, 1) == 0:
        refused[0] = float(what)
        refused[1] = float(world)
        refused[2] = float(index)
        refused[3] = value
    return wp.nan


@wp.kernel(enable_backward=False, module="unique")
def drive_kernel(
    nq: int,
    nv: int,
    control_of: wp.array[int],
    row_of: wp.array[int],
    joint_q: wp.array[float],
    joint_qd: wp.array[float],
    joint_f: wp.array[float],
    target_q: wp.array[float],
    target_qd: wp.array[float],
    stiffness: wp.array[float],
    damping: wp.array[float],
    limit: wp.array[float],
    body_f: wp.array[wp.spatial_vectorf],
    q: wp.array2d[float],
    qd: wp.array2d[float],
    torque: wp.array2d[float],
    taken: wp.array[int],
    refused: wp.array[float],
):
    """Copy the state of one world and compute its torques; NaN if a force acts that the model does not support.

    Velocity coordinate i is driven by control `control_of[i]` along position coordinate `row_of[i]`; it is not driven
    if `control_of[i]` is negative. Newton arrays hold the worlds one after another.
    """
    world = wp.tid()
    worlds = q.shape[0]
    refusal = float(0.0)
    for i in range(nq):
        q[world, i] = joint_q[world * nq + i]
    bodies = body_f.shape[0]
    for body in range(world * bodies / worlds, (world + 1) * bodies / worlds):
        for k in range(6):
            if body_f[body][k] != 0.0:
                refusal = _refuse(WRENCH, world, body, body_f[body][k], taken, refused)
    for i in range(nv):
        at = world * nv + i
        qd[world, i] = joint_qd[at]
        if control_of[i] < 0:
            if joint_f.shape[0] > 0 and joint_f[at] != 0.0:
                refusal = _refuse(JOINT_F, world, i, joint_f[at], taken, refused)
            if stiffness[at] != 0.0:
                refusal = _refuse(STIFFNESS, world, i, stiffness[at], taken, refused)
            if damping[at] != 0.0:
                refusal = _refuse(DAMPING, world, i, damping[at], taken, refused)
    for i in range(nv):
        at = world * nv + i
        if control_of[i] >= 0:
            tau = float(0.0)
            if stiffness[at] != 0.0 or damping[at] != 0.0:
                speed = float(0.0)
                if target_qd.shape[0] > 0:
                    speed = target_qd[at]
                row = world * nq + row_of[i]
                pull = stiffness[at] * (target_q[row] - joint_q[row]) + damping[at] * (speed - joint_qd[at])
                tau = wp.clamp(pull, -limit[at], limit[at])
            if joint_f.shape[0] > 0:
                tau += joint_f[at]
            torque[world, control_of[i]] = tau + refusal


@wp.kernel(enable_backward=False, module="unique")
def copy_columns_kernel(
    source: wp.array[float], first: int, width: int, target: wp.array[float], to: int, target_width: int
):
    """Copy columns of arrays that hold the worlds one after another; launched over worlds and columns."""
    world, column = wp.tid()
    target[world * target_width + to + column] = source[world * width + first + column]


@wp.kernel(enable_backward=False, module="unique")
def gather_wrenches_kernel(
    bodies: wp.array[int], width: int, wrenches: wp.array[wp.spatial_vectorf], target: wp.array[wp.spatial_vectorf],
    target_width: int,
):  # fmt: skip
    """Write the last wrench on a body of a world's robot, if any is not zero, to the robot's first body."""
    world = wp.tid()
    wrench = wp.spatial_vectorf()
    for i in range(bodies.shape[0]):
        for k in range(6):
            if wrenches[world * width + bodies[i]][k] != 0.0:
                wrench = wrenches[world * width + bodies[i]]
    target[world * target_width] = wrench


_NAMES = ("", "joint_f", "joint_target_ke", "joint_target_kd")
"""Names of refused forces, by the kernel's codes."""


class SolverDrive:
    """Reads state, torques, targets and gains of a model's robots, and refuses forces the dynamics do not support."""

    def __init__(self, spec: StateSpec, q: Tensor, qd: Tensor, torque: Tensor, where: str) -> None:
        """Prepare to read into `q` [worlds, nq], `qd` [worlds, nv] and `torque` [worlds, nu], all float32.

        `where` names the caller in error messages.
        """
        self._where, self._spec, self._worlds = where, spec, q.shape[0]
        control_of, row_of = np.full(spec.nv, -1, np.int32), np.zeros(spec.nv, np.int32)
        for number, (dof, name) in enumerate(zip(spec.control_dofs, spec.controls, strict=True)):
            control_of[dof], row_of[dof] = number, spec.q_names.index(name)
        device = wp.device_from_torch(q.device)
        self._tables = [wp.array(table, dtype=wp.int32, device=device) for table in (control_of, row_of)]
        self._results = [wp.from_torch(tensor, requires_grad=False) for tensor in (q, qd, torque)]
        self._empty = wp.zeros(0, dtype=wp.float32, device=device)
        self._no_wrench = wp.zeros(0, dtype=wp.spatial_vectorf, device=device)
        self._taken = wp.zeros(1, dtype=wp.int32, device=device)
        self._refused = wp.zeros(4, dtype=wp.float32, device=device)
        self._on_cpu = device.is_cpu
        self._taken_copy = self._taken if self._on_cpu else wp.zeros(1, dtype=wp.int32, device="cpu", pinned=True)
        self._host = self._taken_copy.numpy()

    def read(self, model: "newton.Model", state: "newton.State", control: "newton.Control") -> None:
        """Launch the kernel on the current arrays, which a captured graph reads from then on.

        Args:
            model: The Newton model, for gains and effort limits.
            state: The state at the start of the frame.
            control: Torques and targets.
        """
        given: Any = (
            state.joint_q, state.joint_qd, control.joint_f, control.joint_target_q, control.joint_target_qd,
            model.joint_target_ke, model.joint_target_kd, model.joint_effort_limit,
        )  # fmt: skip
        arrays = [self._empty if array is None else array for array in given]
        wrench = self._no_wrench if state.body_f is None else state.body_f
        sizes = [self._spec.nq, self._spec.nv]
        inputs = [*sizes, *self._tables, *arrays, wrench, *self._results, self._taken, self._refused]
        wp.launch(drive_kernel, self._worlds, inputs=inputs, device=self._taken.device)
        if not self._on_cpu:
            wp.copy(self._taken_copy, self._taken)

    def require_supported_forces(self) -> None:
        """Raise an `InputError` if the kernel refused a force on an undriven joint or a wrench on a body.

        On a GPU this covers forces refused before the last completed copy to the host.
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
