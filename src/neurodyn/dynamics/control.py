# SPDX-License-Identifier: Apache-2.0
"""Controls become torques in one place: frame-start torques, the same for every kind of dynamics."""

import torch
from jaxtyping import Float
from torch import Tensor

from neurodyn.core.description.spec import StateSpec
from neurodyn.core.errors import InputError, choices
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


def frame_command(spec: StateSpec, state: State, control: Control) -> Float[Tensor, "worlds nu"]:
    """Return the commands of a frame, shape [worlds, nu]: frame-start torques, or targets where drives take those.

    Raises:
        InputError: Drives take targets and none are given, or torques besides; or the width is another.
    """
    if spec.control_kind == "torque":
        return frame_torque(spec, state, control)
    if control.target is None or control.torque is not None:
        raise InputError(f"drives of {spec.robot!r}: take targets; valid: Control(target=...) alone")
    require_torques(spec, control.target)
    return control.target


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
