# SPDX-License-Identifier: Apache-2.0
"""Drives in front of dynamics of any kind that take torques; the result takes commands of the drives.

Drives run in steps of about a millisecond. Within a frame they see positions extrapolated with the velocity at its
start, and the dynamics get the mean of their torques. For springs that oscillate within a frame use hybrid dynamics or
the simulator, where drives act in every step.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

import msgspec
import torch
from torch import Tensor

from neurodyn.core.description.drive import Drive, require_drives
from neurodyn.core.errors import InputError
from neurodyn.dynamics.batch import Control, Environment, State, Step, Trajectory, Window, present_state
from neurodyn.dynamics.control import frame_command, require_torques
from neurodyn.dynamics.interface import Dynamics, renewed_memory
from neurodyn.geometry.tensors import Controls, WorldMask, columns, index
from neurodyn.multibody.drives.drive_program import DriveProgram

_STEP = 1e-3
"""Approximate length of the drives' steps [s]."""


@dataclass(frozen=True)
class DriveCarry:
    """Carry of the dynamics, and memory of the drives, shape [worlds, memory]; None at a start."""

    inner: Any
    memory: Tensor | None


class DynamicsBehindDrives(Dynamics):
    """Dynamics whose controls are commands of drives, with the memory of the drives in their carry.

    Attributes:
        dynamics: The dynamics behind the drives.
    """

    def __init__(self, dynamics: Dynamics, drives: Mapping[str, Drive]) -> None:
        """Put drives in front of dynamics; joints without one take torques.

        Raises:
            InputError: The dynamics take targets, a drive is invalid (`core.description.drive.require_drives`), or it
                has a bias.
        """
        if dynamics.spec.control_kind != "torque":
            raise InputError(
                f"dynamics of {dynamics.spec.robot!r}: take targets, so that their drives are in them; valid: dynamics "
                "that take torques"
            )
        command = require_drives(drives, dynamics.spec.controls, "drives")
        for name, drive in drives.items():
            if drive.acts_elsewhere:
                raise InputError(
                    f"drives: {name!r} has a transmission of its own, which only the mechanism knows; valid here: "
                    "drives of joints"
                )
            if drive.bias:
                raise InputError(f"drives: {name!r} has a bias, and a model knows what it was trained on; valid: 0")
        self.dynamics, self.kind, self.differentiable = dynamics, dynamics.kind, dynamics.differentiable
        self.measured, self.fingerprint = dynamics.measured, dynamics.fingerprint
        longest_delay = max([drive.longest_held_delay for drive in drives.values()], default=0.0)
        context = max(dynamics.spec.context, math.ceil(longest_delay / dynamics.spec.dt - 1e-9))
        self.spec = msgspec.structs.replace(dynamics.spec, control_kind=command, context=context)
        self._parts = max(1, round(dynamics.spec.dt / _STEP))
        self._drives = DriveProgram(drives, self.spec, dynamics.spec.dt / self._parts)
        self._rows, self._dofs = (tuple(part) for part in self._drives.columns)

    def begin(self, context: State | Window, environment: Environment | None = None) -> DriveCarry:
        """Return the carry; the controls of a window are commands, which are converted to torques."""
        known, memory = self._context(context)
        return DriveCarry(self.dynamics.begin(known, environment), memory)

    def imagine(
        self, context: State | Window, environment: Environment | None = None, *, uncertainty: bool = False
    ) -> DriveCarry:
        """Return the carry of worlds in which a policy acts; see `Dynamics`."""
        known, memory = self._context(context)
        return DriveCarry(self.dynamics.imagine(known, environment, uncertainty=uncertainty), memory)

    def step(self, carry: DriveCarry, state: State, control: Control) -> tuple[DriveCarry, Step]:
        """Predict one frame from `state` under commands."""
        return self._after(carry, state, frame_command(self.spec, state, control))

    def reset(self, carry: DriveCarry, context: State | Window, mask: WorldMask) -> DriveCarry:
        """Restart the worlds where `mask` is true, shape [worlds]."""
        known, fresh = self._context(context)
        return DriveCarry(self.dynamics.reset(carry.inner, known, mask), renewed_memory(carry.memory, fresh, mask))

    def change_environment(self, carry: DriveCarry, environment: Environment) -> DriveCarry:
        """Return the carry in another environment; see `Dynamics`."""
        return DriveCarry(self.dynamics.change_environment(carry.inner, environment), carry.memory)

    def _rollout(self, context: State | Window, controls: Controls, environment: Environment | None) -> Trajectory:
        """Predict T frames under commands `controls`, shape [worlds, T, nu]."""
        require_torques(self.spec, controls)
        carry, states = self.begin(context, environment), [present_state(context)]
        for command in controls.unbind(1):
            carry, step = self._after(carry, states[-1], command)
            states.append(step.state)
        return Trajectory.of_states(states)

    def _after(self, carry: DriveCarry, state: State, command: Tensor) -> tuple[DriveCarry, Step]:
        torque, memory = self._torque(state.q, state.qd, command, carry.memory)
        inner, step = self.dynamics.step(carry.inner, state, Control.make_unchecked(torque=torque))
        return DriveCarry(inner, memory), step

    def _context(self, context: State | Window) -> tuple[State | Window, Tensor | None]:
        """Return a context with torques in place of commands, and the memory of the drives after it."""
        if not isinstance(context, Window):
            return context, None
        torques, memory = [], None
        for frame, command in enumerate(context.torque.unbind(1)):
            torque, memory = self._torque(context.q[:, frame], context.qd[:, frame], command, memory)
            torques.append(torque)
        return (replace(context, torque=torch.stack(torques, 1)) if torques else context.present), memory

    def _torque(self, q: Tensor, qd: Tensor, command: Tensor, memory: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Return the mean torque of a frame, and the memory of the drives after it."""
        total = torch.zeros_like(command)
        for part in range(self._parts):
            moved = self._extrapolate(q, qd, part * self._drives.step)
            torque, memory = self._drives(command, moved, qd, memory)
            total = total + torque
        return total / self._parts, memory

    def _extrapolate(self, q: Tensor, qd: Tensor, time: float) -> Tensor:
        """Return positions extrapolated by `time` [s] for driven joints; other positions are unchanged."""
        if not time:
            return q
        return q.index_add(-1, index(self._rows, q), time * columns(qd, self._dofs))


for _name in (
    *("network", "caveat", "robot", "device", "trained", "training_range", "extrapolates", "epistemic_scale"),
    *("parameters", "contact_points", "contacts_of_simulator", "resolve_environment", "reader", "conditions"),
):  # delegated to the dynamics behind the drives
    setattr(DynamicsBehindDrives, _name, property(attrgetter(f"dynamics.{_name}")))


def put_behind_drives(dynamics: Dynamics, drives: Mapping[str, Drive]) -> Dynamics:
    """Return dynamics that take the commands of drives: with the drives inside if possible, else in front.

    Args:
        dynamics: Dynamics that take torques, of any kind.
        drives: Drives by joint; joints without one take torques.

    Raises:
        InputError: See `DynamicsBehindDrives`.
    """
    inside = dynamics.with_drives(drives)
    return DynamicsBehindDrives(dynamics, drives) if inside is None else inside
