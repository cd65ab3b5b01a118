# SPDX-License-Identifier: Apache-2.0
"""Drives in front of dynamics that take torques, of whatever kind: what is stepped then takes commands.

Drives run in steps of about a millisecond. Over a frame they see positions that go on with the velocity at its start,
and what acts is the mean of their torques: for springs that swing within a frame take hybrid dynamics or the simulator,
where drives act in every step.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import torch
from torch import Tensor

from neurodyn.core.description.drive import Drive, require_drives
from neurodyn.core.errors import InputError
from neurodyn.data.training_range import TrainingRange
from neurodyn.dynamics.base import BaseDynamics, renewed_memory
from neurodyn.dynamics.batch import Control, Environment, State, Step, Trajectory, Window, present_state
from neurodyn.dynamics.control import frame_command, require_torques
from neurodyn.dynamics.interface import Dynamics
from neurodyn.geometry.tensors import Controls, WorldMask, columns, index
from neurodyn.multibody.drive_program import DriveProgram
from neurodyn.robots import Robot

_STEP = 1e-3
"""Length of the drives' steps, about [s]."""


@dataclass(frozen=True)
class DrivenCarry:
    """What the model and its drives keep.

    Attributes:
        inner: Carry of the model.
        memory: What the drives keep, shape [worlds, memory]; None where nothing has happened yet.
    """

    inner: Any
    memory: Tensor | None


class DrivenDynamics(BaseDynamics):
    """Dynamics whose controls are commands of drives.

    Attributes:
        dynamics: The dynamics that take torques.
    """

    def __init__(self, dynamics: Dynamics, drives: Mapping[str, Drive]) -> None:
        """Put drives in front of dynamics.

        Args:
            dynamics: Dynamics that take torques.
            drives: Drives by joint; joints without one take torques.

        Raises:
            InputError: The dynamics take targets, a drive cannot be (`core.description.drive.require_drives`), or it
                has a bias.
        """
        if dynamics.spec.control_kind != "torque":
            raise InputError(
                f"dynamics of {dynamics.spec.robot!r}: take targets, so that their drives are in them; valid: dynamics "
                "that take torques"
            )
        command = require_drives(drives, dynamics.spec.controls, "drives")
        for name, drive in drives.items():
            if drive.bias:
                raise InputError(f"drives: {name!r} has a bias, and a model knows what it was trained on; valid: 0")
        self.dynamics, self.kind, self.differentiable = dynamics, dynamics.kind, dynamics.differentiable
        self.measured, self.fingerprint = dynamics.measured, dynamics.fingerprint
        reach = max([drive.reach for drive in drives.values()], default=0.0)
        context = max(dynamics.spec.context, math.ceil(reach / dynamics.spec.dt - 1e-9))
        self.spec = msgspec.structs.replace(dynamics.spec, control_kind=command, context=context)
        self._parts = max(1, round(dynamics.spec.dt / _STEP))
        self._drives = DriveProgram(drives, self.spec, dynamics.spec.dt / self._parts)
        self._rows, self._dofs = (tuple(part) for part in self._drives.columns)

    @property
    def network(self) -> str:
        """What computes a step of the dynamics behind the drives."""
        return self.dynamics.network

    @property
    def robot(self) -> Robot | None:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The declaration of the robot."""
        return self.dynamics.robot

    @property
    def device(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Device of the tensors that it takes."""
        return self.dynamics.device

    @property
    def training_range(self) -> TrainingRange | None:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Range of motion in the data that the dynamics were made from."""
        return self.dynamics.training_range

    @property
    def epistemic_scale(self) -> Tensor | None:
        """Unit of the epistemic standard deviation."""
        return self.dynamics.epistemic_scale

    def parameters(self) -> Iterator[Tensor]:
        """Return what can be trained."""
        return self.dynamics.parameters()

    def resolve_environment(self, environment: Environment | None) -> Environment:
        """Return the environment with what it leaves open filled in."""
        return self.dynamics.resolve_environment(environment)

    def begin(self, context: State | Window, environment: Environment | None = None) -> DrivenCarry:
        """Return the carry; of a window, whose controls are commands, torques are computed anew."""
        known, memory = self._known(context)
        return DrivenCarry(self.dynamics.begin(known, environment), memory)

    def step(self, carry: DrivenCarry, state: State, control: Control) -> tuple[DrivenCarry, Step]:
        """Predict one frame from `state` under commands."""
        torque, memory = self._torque(state.q, state.qd, frame_command(self.spec, state, control), carry.memory)
        inner, step = self.dynamics.step(carry.inner, state, Control.unchecked(torque=torque))
        return DrivenCarry(inner, memory), step

    def reset(self, carry: DrivenCarry, context: State | Window, mask: WorldMask) -> DrivenCarry:
        """Begin anew in the worlds where `mask` is true, shape [worlds]."""
        known, fresh = self._known(context)
        return DrivenCarry(self.dynamics.reset(carry.inner, known, mask), renewed_memory(carry.memory, fresh, mask))

    def _rollout(self, context: State | Window, controls: Controls, environment: Environment | None) -> Trajectory:
        """Predict T frames under commands `controls`, shape [worlds, T, nu]."""
        require_torques(self.spec, controls)
        carry, state = self.begin(context, environment), present_state(context)
        q, qd = [state.q], [state.qd]
        for command in controls.unbind(1):
            torque, memory = self._torque(state.q, state.qd, command, carry.memory)
            inner, step = self.dynamics.step(carry.inner, state, Control.unchecked(torque=torque))
            carry, state = DrivenCarry(inner, memory), step.state
            q.append(state.q)
            qd.append(state.qd)
        return Trajectory(torch.stack(q, 1), torch.stack(qd, 1))

    def _known(self, context: State | Window) -> tuple[State | Window, Tensor | None]:
        """Return a context with torques in place of commands, and what the drives keep of it."""
        if not isinstance(context, Window):
            return context, None
        torques, memory = [], None
        for frame, command in enumerate(context.torque.unbind(1)):
            torque, memory = self._torque(context.q[:, frame], context.qd[:, frame], command, memory)
            torques.append(torque)
        return (replace(context, torque=torch.stack(torques, 1)) if torques else context.present), memory

    def _torque(self, q: Tensor, qd: Tensor, command: Tensor, memory: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Return the mean torque of a frame, and the memory at its end."""
        total = torch.zeros_like(command)
        for part in range(self._parts):
            moved = self._moved(q, qd, part * self._drives.step)
            torque, memory = self._drives(command, moved, qd, memory)
            total = total + torque
        return total / self._parts, memory

    def _moved(self, q: Tensor, qd: Tensor, time: float) -> Tensor:
        """Return positions of the driven joints a little later, with their velocities; others as they are."""
        if not time:
            return q
        return q.index_add(-1, index(self._rows, q), time * columns(qd, self._dofs))


def driven(dynamics: Dynamics, drives: Mapping[str, Drive]) -> DrivenDynamics:
    """Return dynamics with drives in front: they take commands, and keep what drives keep in their carry.

    Args:
        dynamics: Dynamics that take torques: neural ones, world models, hybrid ones, the simulator.
        drives: Drives by joint.

    Raises:
        InputError: The dynamics take targets, or a drive cannot be.
    """
    return DrivenDynamics(dynamics, drives)
