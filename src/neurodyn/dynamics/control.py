# SPDX-License-Identifier: Apache-2.0
"""Controls become torques in one place: frame-start torques, the same for every kind of dynamics."""

import torch
from jaxtyping import Float
from torch import Tensor

from neurodyn.core.errors import InputError, choices
from neurodyn.core.spec import StateSpec
from neurodyn.dynamics.interface import Control, State
from neurodyn.multibody.pd import pd_torque


def require_torques(spec: StateSpec, torque: Float[Tensor, "... nu"]) -> None:
    """Refuse torques of another width than the robot has controls.

    Raises:
        InputError: The last axis is not the controls.
    """
    if torque.shape[-1] != spec.nu:
        raise InputError(
            f"torques for {spec.robot!r} have shape {list(torque.shape)}; valid: {spec.nu} in the last axis "
            f"({choices(spec.controls) if spec.controls else 'it has no controls'})"
        )


def frame_torque(spec: StateSpec, state: State, control: Control) -> Float[Tensor, "worlds nu"]:
    """Return the torques at the start of a frame [N m or N], shape [worlds, nu].

    tau = torque + kp (target - q) - kd qd, where q and qd are those of the actuated joints at the start of
    the frame (NeRD section 3: controllers run once per frame and the network sees their torques).
    """
    torque = control.torque
    if torque is None:
        torque = torch.zeros(state.worlds, spec.nu, dtype=state.q.dtype, device=state.q.device)
    require_torques(spec, torque)
    if control.target is None:
        return torque
    kp = 0.0 if control.kp is None else control.kp
    kd = 0.0 if control.kd is None else control.kd
    return torque + pd_torque(spec, state.q, state.qd, control.target, kp, kd)
