# SPDX-License-Identifier: Apache-2.0
"""From a Newton control to the torques of one frame.

Newton's law for the drive of a joint, evaluated once, at the start of the frame:

    tau = joint_f + clamp(ke (target_q - q) + kd (target_qd - qd), -effort_limit, effort_limit)

Gains alone decide whether a drive acts, as in SolverFeatherstone (`joint_target_mode` is not read); the limit
acts on the drive and not on `joint_f`, as in SolverMuJoCo (SolverFeatherstone has no such limit).
"""

from typing import TYPE_CHECKING, Any

import msgspec
import torch
from torch import Tensor

from neurodyn.core.errors import InputError
from neurodyn.core.spec import StateSpec
from neurodyn.dynamics.control import frame_torque
from neurodyn.dynamics.interface import Control, State

if TYPE_CHECKING:
    import newton
    import warp as wp


class Drive:
    """Reads torques, targets and gains of the joints that a model drives, and refuses what it cannot feel."""

    def __init__(self, spec: StateSpec, worlds: int, device: torch.device, where: str) -> None:
        """Prepare to read controls.

        Args:
            spec: Names and order of state and control.
            worlds: Number of worlds.
            device: Device of the model's arrays.
            where: Who asks, for error messages.
        """
        self._where, self._worlds = where, worlds
        self._names = spec.qd_names
        # Newton counts turns: the error of a drive is not wrapped, however far the target is.
        self._spec = msgspec.structs.replace(
            spec, joints=tuple(msgspec.structs.replace(joint, continuous=False) for joint in spec.joints)
        )
        undriven = [dof for dof in range(spec.nv) if dof not in spec.control_dofs]
        self._dofs = torch.tensor(spec.control_dofs, dtype=torch.long, device=device)
        self._rows = torch.tensor([spec.q_names.index(n) for n in spec.controls], dtype=torch.long, device=device)
        self._undriven = torch.tensor(undriven, dtype=torch.long, device=device)

    def torque(self, model: "newton.Model", state: State, control: "newton.Control") -> Tensor:
        """Return the torques of one frame [N m or N], shape [worlds, nu].

        Args:
            model: The Newton model, of which gains and effort limits are read.
            state: The state at the start of the frame.
            control: Torques and targets.

        Raises:
            InputError: A force or a drive acts on a joint that the model does not drive.
        """
        torque = self._driven(control.joint_f, "joint_f", state)
        if not (self._view(model.joint_target_ke).any() or self._view(model.joint_target_kd).any()):
            return torque
        ke = self._driven(model.joint_target_ke, "joint_target_ke", state)
        kd = self._driven(model.joint_target_kd, "joint_target_kd", state)
        velocity = self._driven(control.joint_target_qd, None, state)
        target = self._view(control.joint_target_q)[:, self._rows]
        pull = frame_torque(self._spec, state, Control(torque=kd * velocity, target=target, kp=ke, kd=kd))
        limit = self._driven(model.joint_effort_limit, None, state)
        return torque + torch.clamp(pull, -limit, limit)

    def _view(self, array: Any) -> Tensor:
        import warp as wp

        return wp.to_torch(array, requires_grad=False).view(self._worlds, -1)

    def _driven(self, array: "wp.array | None", what: str | None, state: State) -> Tensor:
        """Return the columns of the driven joints; with a name, the other columns must be zero."""
        if array is None:
            return state.qd.new_zeros(self._worlds, len(self._dofs))
        view = self._view(array)
        if what is not None and len(self._undriven) and bool((rest := view[:, self._undriven]).any()):
            world, column = (int(index) for index in rest.nonzero()[0])
            name = self._names[int(self._undriven[column])]
            raise InputError(
                f"{self._where}: {what} is {rest[world, column]:g} at joint {name!r} in world {world}, which the model "
                f"does not drive; valid: 0 there, anything at {', '.join(self._spec.controls) or '(no joint)'}"
            )
        return view[:, self._dofs]
