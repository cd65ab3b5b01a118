# SPDX-License-Identifier: Apache-2.0
"""Motion of a mechanism with soft contacts, joint limits and joint friction: a known simulator's frame, compiled."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from neurodyn.core.description.mechanism import Mechanism
from neurodyn.core.description.spec import StateSpec
from neurodyn.core.errors import InputError
from neurodyn.geometry.array_shapes import Positions, Torques, Velocities
from neurodyn.geometry.constants import constant
from neurodyn.geometry.ground import Ground
from neurodyn.multibody.engine import Engine, EngineConfig, takes_prisms
from neurodyn.multibody.held_ground import GroundMode, HeldGround, ground_mode, plane_numbers
from neurodyn.multibody.trace.program_frame import ProgramFrame

_GRAVITY = ("gravity.x", "gravity.y", "gravity.z")


class ContactMotion:
    """One frame of a mechanism on a ground, of a batch of worlds; differentiable by state, torque and gravity.

    The ground under each contact point is that at the start of the frame; contacts of shapes with a heightfield are
    found in every substep.
    """

    def __init__(
        self,
        mechanism: Mechanism,
        spec: StateSpec,
        substeps: int,
        contact: str = "soft",
        values: Mapping[str, float] | None = None,
    ) -> None:
        """Prepare the motion; it is compiled for a kind of ground when it first meets one.

        Args:
            mechanism: The robot.
            spec: Names, order and dt of its state.
            substeps: Steps in a frame, as many as the simulator's.
            contact: Name of a contact model.
            values: Quantities that are not those of the mechanism, by name; None for none.

        Raises:
            InputError: The state is that of another mechanism.
        """
        self._values = dict(values or {})
        self.mechanism = mechanism
        self._spec, self._substeps = spec, substeps
        self._contact = contact
        self._frames: dict[GroundMode, ProgramFrame] = {}
        self._ground = HeldGround(mechanism) if mechanism.points else None
        self._prisms = takes_prisms(mechanism, EngineConfig(contact=contact))

    def __call__(
        self,
        q: Positions,
        qd: Velocities,
        torque: Torques,
        gravity: Float[Tensor, "... 3"],
        ground: Ground | None = None,
    ) -> tuple[Positions, Velocities]:
        """Return positions and velocities one frame later, shapes as of `q` and `qd`.

        Args:
            q: Positions in Newton's convention [rad or m], shape [..., nq].
            qd: Velocities [rad/s or m/s], shape [..., nv].
            torque: Torques during the frame [N m or N], shape [..., nu].
            gravity: Gravity in world axes [m/s^2], shape [..., 3].
            ground: The ground, with one pose for all worlds or one for each, the batch axes flattened; None for free
                space.
        """
        mode = ground_mode(ground, prisms=self._prisms)
        frame, parameters = self._frame(mode), self._parameters(gravity.expand(*q.shape[:-1], 3))
        for _ in range(self._substeps // frame.substeps):
            held = None
            if self._ground is not None:
                held = self._ground(ground, q.flatten(0, -2), qd.flatten(0, -2), mode)
            q, qd = frame(q, qd, torque, held=held, parameters=parameters)
        return q, qd

    def bound(
        self, state: Tensor, torque: Tensor, gravity: Tensor, ground: Ground | None
    ) -> tuple[Tensor, Any, Callable[[Ground | None], None]] | None:
        """Return the motion on a plane or in free space between fixed buffers; None on other grounds.

        Args:
            state: Positions and velocities, shape [worlds, nq + nv], contiguous as all.
            torque: Torques during the frame [N m or N], shape [worlds, nu].
            gravity: Gravity in world axes [m/s^2], shape [worlds, 3].
            ground: The ground.

        Returns:
            The states one frame later; the recorded launch that computes them anew from the same memory; and what
            writes the poses of another ground of the same shapes, and gravity.
        """
        if ground_mode(ground) != "plane":
            return None
        nq = self.mechanism.nq

        def plane(ground: Ground | None) -> Tensor | None:
            return None if self._ground is None else self._ground(ground, state[:, :nq], state[:, nq:], "plane")

        found = plane(ground)
        held = None if found is None else found.contiguous().clone()

        parameters = self._parameters(gravity)

        def write(ground: Ground | None) -> None:
            parameters.copy_(self._parameters(gravity))
            found = plane(ground)
            if held is not None and found is not None:
                held.copy_(found)

        return *self._frame("plane").bound(state, torque, held=held, parameters=parameters), write

    def _parameters(self, gravity: Tensor) -> Tensor:
        """Return what the engine takes as parameters, shape [..., parameters]: gravity, then the other values."""
        if not self._values:
            return gravity
        values = constant(tuple(self._values.values()), gravity)
        return torch.cat([gravity, values.expand(*gravity.shape[:-1], -1)], dim=-1)

    def onnx(self, gravity: tuple[float, ...], ground: Ground | None) -> Any:
        """Return the frame in one gravity on one plane as an ONNX graph, as of `ProgramFrame.onnx`.

        Raises:
            InputError: The ground is none, or a part of the motion has no form in ONNX.
        """
        plane = plane_numbers(ground)
        if plane is None:
            raise InputError(f"ground {ground!r} is no plane, and has no form in ONNX; valid: one plane, or no ground")
        return self._frame("plane").onnx(held=plane if self._ground is not None else (), parameters=gravity)

    def _frame(self, mode: GroundMode) -> ProgramFrame:
        if mode not in self._frames:
            contact = self._contact if self._ground is not None else None
            free = (*_GRAVITY, *self._values)
            config = EngineConfig(substeps=self._substeps, contact=contact, ground=mode, free=free)
            engine = Engine(self.mechanism, self._spec, config)
            held_for = 1 if mode == "prisms" else self._substeps
            self._frames[mode] = ProgramFrame(engine.program, self.mechanism.nq, held_for)
        return self._frames[mode]
