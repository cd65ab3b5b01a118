# SPDX-License-Identifier: Apache-2.0
"""Torques of a frame from controls, computed in one way for all dynamics, and pushes of the base."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from neurodyn.core.description.spec import StateSpec
from neurodyn.core.errors import InputError, choices
from neurodyn.dynamics.batch import Control, State
from neurodyn.geometry import rotation
from neurodyn.geometry.tensors import Commands, index
from neurodyn.multibody.drives.drive import pd_torque


def require_torques(spec: StateSpec, torque: Float[Tensor, "... nu"]) -> None:
    """Raise an `InputError` if the last axis of torques does not match the robot's controls."""
    if torque.shape[-1] != len(spec.controls):
        raise _other_width(spec, torque)


def control_of(spec: StateSpec, command: Tensor) -> Control:
    """Return the control of a frame from numbers of a log: torques, or targets of the robot's drives."""
    return Control(torque=command) if spec.control_kind == "torque" else Control(target=command)


def one_after_another(controls: Commands, steps: int) -> tuple[Tensor, int]:
    """Return controls in equal parts of frames, one after another, [worlds, T * parts, nu], and the parts of a frame.

    There are as many as both the given controls, [worlds, T, given, nu] or [worlds, T, nu], and the `steps` of a frame
    divide into.
    """
    if controls.ndim == 3:
        return controls, 1
    parts = math.gcd(controls.shape[2], steps)
    if parts < controls.shape[2]:
        controls = controls.unflatten(2, (parts, -1)).mean(3)
    return controls.flatten(1, 2), parts


def _other_width(spec: StateSpec, torque: Tensor) -> InputError:
    return InputError(
        f"torques for {spec.robot!r} have shape {list(torque.shape)}; valid: {spec.nu} in the last axis "
        f"({choices(spec.controls) if spec.controls else 'it has no controls'})"
    )


def frame_command(spec: StateSpec, state: State, control: Control) -> Float[Tensor, "worlds nu"]:
    """Return the commands of a frame, shape [worlds, nu]: torques at its start, or targets of drives.

    Raises:
        InputError: Drives take targets and none are given, or torques as well; or the width is wrong.
    """
    torques = spec.control_kind == "torque"
    command, other = (control.torque, control.target) if torques else (control.target, control.torque)
    if command is None or other is not None:
        if torques:
            return frame_torque(spec, state, control)
        taken = "commands" if spec.control_kind == "command" else "targets"
        declare = "a task whose robot declares the drives that its log's map does, or " if command is None else ""
        raise InputError(f"drives of {spec.robot!r}: take {taken}; valid: {declare}Control(target=...) alone")
    if command.shape[-1] != len(spec.controls):
        raise _other_width(spec, command)
    return command


def frame_input(spec: StateSpec, state: State, control: Control) -> Float[Tensor, "worlds nu"]:
    """Return the control inputs of a learned model in a frame, shape [worlds, nu]: torques at its start, or targets.

    A model of targets takes them as `Control(target=...)`, or as rows of a log in `Control(torque=...)`. Errors: see
    `frame_command`.
    """
    given = control.torque
    if given is not None and control.target is None and given.shape[-1] == len(spec.controls):
        return given  # the usual case for policies
    if spec.control_kind != "torque" and given is None:
        return frame_command(spec, state, control)
    return frame_torque(spec, state, control)


def frame_torque(spec: StateSpec, state: State, control: Control) -> Float[Tensor, "worlds nu"]:
    """Return the torques at the start of a frame [N m or N], shape [worlds, nu].

    tau = torque + kp (target - q) - kd qd, with q and qd of the actuated joints at the start of the frame (NeRD section
    3: controllers run once per frame and the network sees their torques).
    """
    torque = control.torque
    if torque is None:
        torque = torch.zeros(state.worlds, spec.nu, dtype=state.q.dtype, device=state.q.device)
    if torque.shape[-1] != len(spec.controls):
        raise _other_width(spec, torque)
    if control.target is None:
        return torque
    kp = 0.0 if control.kp is None else control.kp
    kd = 0.0 if control.kd is None else control.kd
    return torque + pd_torque(spec, state.q, state.qd, control.target, kp, kd)


_CHANNEL = "base_linear_velocity"


def require_pushable(spec: StateSpec) -> None:
    """Raise an `InputError` if a state has neither a floating base nor channels with the base's velocity."""
    if not spec.floating and len(_pushed_columns(spec)) != 3:
        raise InputError(f"{spec.robot!r} cannot be pushed: its state has neither a free base nor {_CHANNEL!r}")


def _pushed_columns(spec: StateSpec) -> list[int]:
    return [number for number, channel in enumerate(spec.channels) if channel.quantity == _CHANNEL]


def push(spec: StateSpec, state: State, change: Float[Tensor, "worlds 3"]) -> State:
    """Return states with a changed velocity of the base.

    Args:
        spec: Names and order of the state.
        state: The states.
        change: Change of the base's linear velocity [m/s], base axes, shape [worlds, 3].

    Raises:
        InputError: The state has neither a floating base nor channels with its velocity.
    """
    require_pushable(spec)
    if spec.floating:
        turned = rotation.rotate(rotation.normalise(state.q[:, 3:7]), change)
        return State(state.q, torch.cat([state.qd[:, :3] + turned, state.qd[:, 3:]], dim=-1), state.channels)
    columns = _pushed_columns(spec)
    assert state.channels is not None
    if columns == list(range(columns[0], columns[0] + 3)):  # adjacent, as in usual logs
        channels = state.channels.clone()
        channels[:, columns[0] : columns[0] + 3].add_(change)
    else:
        channels = state.channels.index_add(1, index(tuple(columns), change), change)
    return State(state.q, state.qd, channels)
