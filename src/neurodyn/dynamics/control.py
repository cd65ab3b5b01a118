# SPDX-License-Identifier: Apache-2.0
"""Controls become torques in one place: frame-start torques, the same for every kind of dynamics."""

import torch
from torch import Tensor

from neurodyn.core.spec import StateSpec
from neurodyn.dynamics.interface import Control, State
from neurodyn.dynamics.tangent import position_difference


def frame_torque(spec: StateSpec, state: State, control: Control) -> Tensor:
    """Return the torques at the start of a frame [N m or N], shape [worlds, nu].

    tau = torque + kp (target - q) - kd qd, where q and qd are those of the actuated joints at the start of
    the frame (NeRD section 3: controllers run once per frame and the network sees their torques).
    """
    torque = control.torque
    if torque is None:
        torque = torch.zeros(state.worlds, spec.nu, dtype=state.q.dtype, device=state.q.device)
    if control.target is None:
        return torque
    rows = [spec.q_names.index(name) for name in spec.controls]
    dofs = list(spec.control_dofs)
    error = position_difference(spec, _scatter(state.q, rows, control.target), state.q)[:, dofs]
    if control.kp is not None:
        torque = torque + control.kp * error
    if control.kd is not None:
        torque = torque - control.kd * state.qd[:, dofs]
    return torque


def _scatter(q: Tensor, rows: list[int], target: Tensor) -> Tensor:
    full = q.clone()
    full[:, rows] = target
    return full
