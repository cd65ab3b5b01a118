# SPDX-License-Identifier: Apache-2.0
"""A mechanism's motion over one frame as a compiled function: free, or with a simulator's soft constraints."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Float
from msgspec import UNSET, UnsetType
from torch import Tensor

from neurodyn.core.description.mechanism import Mechanism
from neurodyn.core.description.spec import StateSpec
from neurodyn.core.errors import InputError
from neurodyn.geometry.ground import Ground
from neurodyn.geometry.tensors import Positions, Torques, Velocities, constant
from neurodyn.multibody.articulated import Tree
from neurodyn.multibody.contacts.held_ground import GroundMode, HeldGround, ground_mode, plane_numbers
from neurodyn.multibody.engine import Engine, EngineConfig, takes_prisms
from neurodyn.multibody.integrators import EULER, INTEGRATORS, IntegrationStep
from neurodyn.multibody.trace import Scalar
from neurodyn.multibody.trace.program import TracedProgram
from neurodyn.multibody.trace.recurrence import ConstantFrame, ProgramInputs, ProgramSizes


class ProgramFrame:
    """One frame of a mechanism's program; the state is positions and velocities, the control is torques."""

    def __init__(self, program: TracedProgram, nq: int, substeps: int) -> None:
        """Wrap a program with `nq` positions in its state and `substeps` steps in a frame."""
        self.program, self.substeps = program, substeps
        self._nq = nq

    def __call__(
        self, q: Tensor, qd: Tensor, torque: Tensor, *, held: Tensor | None = None, parameters: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return positions and velocities one frame later, shaped like `q` and `qd`; differentiable in every tensor.

        Args:
            q: Positions in Newton's convention [rad or m], shape [..., nq].
            qd: Velocities [rad/s or m/s], shape [..., nv].
            torque: Torques during the frame [N m or N], shape [..., nu].
            held: Inputs held over the frame, shape [..., held], or [worlds, held] with the batch axes flattened.
            parameters: Parameters, shape [..., parameters] or [worlds, parameters].
        """
        batch, size = q.shape[:-1], q.shape[-1] + qd.shape[-1]
        worlds = math.prod(batch)
        path = self.program.rollout(
            torch.cat([q, qd], dim=-1).reshape(worlds, size),
            frames=1,
            substeps=self.substeps,
            control=torque.reshape(worlds, 1, torque.shape[-1]),
            held=None if held is None else held.reshape(worlds, 1, held.shape[-1]),
            parameters=None if parameters is None else parameters.reshape(worlds, parameters.shape[-1]),
        )
        after = path[:, -1].view(*batch, size)
        return after[..., : self._nq], after[..., self._nq :]

    def bind(
        self, state: Tensor, torque: Tensor, *, held: Tensor | None = None, parameters: Tensor | None = None
    ) -> tuple[Tensor, Any]:
        """Return the states one frame later and the recorded launch that recomputes them in place.

        All tensors are contiguous, one row per world. Arguments: see `__call__`; `state` is [q, qd].
        """
        run = self.program.run(
            state, frames=1, substeps=self.substeps, control=torque[:, None],
            held=None if held is None else held[:, None], parameters=parameters,
        )  # fmt: skip
        path, launch = self.program.bind(run, state)
        return path[:, -1], launch

    def constant(self, *, held: Sequence[float] = (), parameters: Sequence[float] = ()) -> ConstantFrame:
        """Return the frame with held inputs and parameters that are equal in all worlds."""
        program = self.program
        return ConstantFrame(program.sizes, program.step, self.substeps, tuple(held), tuple(parameters))


_GRAVITY = ("gravity.x", "gravity.y", "gravity.z")


class FreeMotion:
    """One frame of free motion of a batch of worlds, compiled; differentiable by state and torque."""

    def __init__(
        self, mechanism: Mechanism, dofs: tuple[int, ...], dt: float, substeps: int, integrator: str = EULER
    ) -> None:
        """Trace the motion over a frame of `dt` [s] in `substeps` steps of an integrator.

        `dofs` are the velocity coordinates that the torques drive.
        """
        self._integrate = INTEGRATORS[integrator]
        self.mechanism = mechanism
        self._dofs = dofs
        self._step_size = dt / substeps
        sizes = ProgramSizes(state=mechanism.nq + mechanism.nv, control=len(dofs), held=len(_GRAVITY))
        self._frame = ProgramFrame(TracedProgram(sizes, self._step), mechanism.nq, substeps)

    def __call__(
        self, q: Positions, qd: Velocities, torque: Torques, gravity: Float[Tensor, "... 3"]
    ) -> tuple[Positions, Velocities]:
        """Return positions and velocities one frame later; arguments: see `ProgramFrame.__call__`.

        `gravity` is in world axes [m/s^2], shape [..., 3].
        """
        return self._frame(q, qd, torque, held=gravity.expand(*q.shape[:-1], 3))

    def bind(self, state: Tensor, torque: Tensor, gravity: Tensor) -> tuple[Tensor, Any]:
        """Return the states one frame later and the recorded launch that recomputes them; see `ProgramFrame.bind`.

        `gravity` is in world axes [m/s^2], shape [worlds, 3].
        """
        return self._frame.bind(state, torque, held=gravity)

    def constant(self, gravity: tuple[float, ...]) -> ConstantFrame:
        """Return the frame under constant gravity."""
        return self._frame.constant(held=gravity)

    def _step(self, inputs: ProgramInputs) -> list[Scalar]:
        mechanism, nq = self.mechanism, self.mechanism.nq
        values = {**mechanism.quantities(), **dict(zip(_GRAVITY, inputs.held, strict=True))}
        tree = Tree(mechanism, values.__getitem__)
        q, qd = inputs.state[:nq], inputs.state[nq:]

        def acceleration_at(q: list[Any], qd: list[Any]) -> list[Any]:
            torque: list[Scalar] = [0.0] * mechanism.nv
            for name, dof in tree.dofs.items():
                torque[dof] = -(values[f"{name}.damping"] * qd[dof])
            for dof, given in zip(self._dofs, inputs.control, strict=True):
                torque[dof] = torque[dof] + given
            return tree.accelerations(tree.motions(q, qd), q, torque)

        step = IntegrationStep(tree, q, qd, acceleration_at(q, qd), self._step_size, acceleration_at)
        q, qd = self._integrate(step)
        return [*q, *qd]


class ContactMotion:
    """One frame of a mechanism on a ground, for a batch of worlds; differentiable in state, torque and gravity.

    The ground under each contact point is held from the start of the frame. Contacts of shapes with a heightfield are
    found in every substep.
    """

    def __init__(
        self, mechanism: Mechanism, spec: StateSpec, substeps: int, contact: str = "soft",
        values: Mapping[str, float] | None = None, limits: bool = False, integrator: str | UnsetType = UNSET,
    ) -> None:  # fmt: skip
        """Prepare the motion; it is compiled for each kind of ground on first use.

        `substeps` is the simulator's number; `integrator` is as in `EngineConfig`. `values` override the mechanism's
        nominal values, by name. With `limits`, the contact model constrains joint limits and friction even without
        contact points.

        Raises:
            InputError: The state belongs to another mechanism.
        """
        self._values = dict(values or {})
        self.mechanism = mechanism
        self._spec, self._substeps = spec, substeps
        self._contact, self._integrator = contact, integrator
        self._frames: dict[GroundMode, ProgramFrame] = {}
        self._ground = HeldGround(mechanism) if mechanism.points else None
        self._limits = limits
        self._prisms = takes_prisms(mechanism, EngineConfig(contact=contact))

    def __call__(
        self, q: Positions, qd: Velocities, torque: Torques, gravity: Float[Tensor, "... 3"],
        ground: Ground | None = None,
    ) -> tuple[Positions, Velocities]:  # fmt: skip
        """Return positions and velocities one frame later; arguments: see `FreeMotion.__call__`.

        The ground has one pose for all worlds, or one per world (batch axes flattened); None for free space.
        """
        mode = ground_mode(ground, prisms=self._prisms)
        frame, parameters = self._frame(mode), self._parameters(gravity.expand(*q.shape[:-1], 3))
        for _ in range(self._substeps // frame.substeps):
            held = None
            if self._ground is not None:
                held = self._ground(ground, q.flatten(0, -2), qd.flatten(0, -2), mode)
            q, qd = frame(q, qd, torque, held=held, parameters=parameters)
        return q, qd

    def bind(
        self, state: Tensor, torque: Tensor, gravity: Tensor, ground: Ground | None
    ) -> tuple[Tensor, Any, Callable[[Ground | None], None]] | None:
        """Return the motion on a plane or in free space on fixed buffers; None on other grounds.

        Arguments: see `FreeMotion.bind`.

        Returns:
            The states one frame later; the recorded launch that recomputes them in place; and a function that updates
            gravity and the poses of a ground with the same shapes.
        """
        if ground_mode(ground) != "plane":
            return None
        nq = self.mechanism.nq

        def plane(ground: Ground | None) -> Tensor | None:
            return None if self._ground is None else self._ground(ground, state[:, :nq], state[:, nq:], "plane")

        start = plane(ground)
        held = None if start is None else start.contiguous().clone()
        parameters = self._parameters(gravity)

        def write(ground: Ground | None) -> None:
            parameters.copy_(self._parameters(gravity))
            held_now = plane(ground)
            if held is not None and held_now is not None:
                held.copy_(held_now)

        return *self._frame("plane").bind(state, torque, held=held, parameters=parameters), write

    def _parameters(self, gravity: Tensor) -> Tensor:
        """Return the engine's parameters, shape [..., parameters]: gravity, then the other values."""
        if not self._values:
            return gravity
        values = constant(tuple(self._values.values()), gravity)
        return torch.cat([gravity, values.expand(*gravity.shape[:-1], -1)], dim=-1)

    def constant(self, gravity: tuple[float, ...], ground: Ground | None) -> ConstantFrame:
        """Return the frame under constant gravity on one plane, or raise an InputError on another ground."""
        plane = plane_numbers(ground)
        if plane is None:
            raise InputError(f"ground {ground!r} is no plane, and has no form in ONNX or C; valid: one plane, or none")
        held = plane if self._ground is not None else ()
        return self._frame("plane").constant(held=held, parameters=(*gravity, *self._values.values()))

    def _frame(self, mode: GroundMode) -> ProgramFrame:
        if mode not in self._frames:
            constrained = self._limits or self.mechanism.tendons or self.mechanism.equalities
            contact = self._contact if self._ground is not None or constrained else None
            free = (*_GRAVITY, *self._values)
            config = EngineConfig(
                substeps=self._substeps, contact=contact, ground=mode, free=free, integrator=self._integrator
            )
            engine = Engine(self.mechanism, self._spec, config)
            held_for = 1 if mode == "prisms" else self._substeps
            self._frames[mode] = ProgramFrame(engine.program, self.mechanism.nq, held_for)
        return self._frames[mode]
