# SPDX-License-Identifier: Apache-2.0
"""A frame of dynamics between buffers that stay where they are: for loops that allocate nothing, and for graphs."""

from dataclasses import replace
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from neurodyn.dynamics.batch import Control, Environment, State
from neurodyn.dynamics.interface import Dynamics


@runtime_checkable
class FixedFrame(Protocol):
    """One frame of a batch of worlds, without gradients; holds the history of the worlds.

    Attributes:
        q: Positions at the start, to be written, shape [worlds, nq].
        qd: Velocities at the start, to be written, shape [worlds, nv].
        torque: Torques during the frame [N m or N], to be written, shape [worlds, nu].
        q_next: Positions one frame later, contiguous.
        qd_next: Velocities one frame later, contiguous.
        capturable: Whether `run` is Warp launches alone, which a graph can hold.
    """

    q: Tensor
    qd: Tensor
    torque: Tensor
    q_next: Tensor
    qd_next: Tensor
    capturable: bool

    def run(self) -> None:
        """Predict the frame; within a capture its launches join the graph."""
        ...

    def refresh(self) -> None:
        """Look at the model's weights anew, where they have moved since the last run."""
        ...

    def reset(self, mask: Tensor | None) -> None:
        """Forget the history of the worlds where `mask` is true, shape [worlds]; of all without a mask."""
        ...

    def moved(self, environment: Environment) -> "FixedFrame":
        """Return the frame in another environment, with the history of its worlds: itself, or one with other buffers.

        Raises:
            InputError: The ground is for another number of worlds.
        """
        ...


class EagerFrame:
    """A `FixedFrame` of any dynamics: their own step, between buffers."""

    capturable = False

    def __init__(self, dynamics: Dynamics, worlds: int, environment: Environment, like: Tensor) -> None:
        """Make the buffers.

        Args:
            dynamics: The dynamics.
            worlds: Number of worlds.
            environment: What they are in.
            like: Tensor of the precision and on the device of the buffers.
        """
        spec = dynamics.spec
        self._dynamics, self._environment, self._carry = dynamics, environment, None
        self.q, self.q_next = (like.new_zeros(worlds, spec.nq) for _ in range(2))
        self.qd, self.qd_next = (like.new_zeros(worlds, spec.nv) for _ in range(2))
        self.torque = like.new_zeros(worlds, spec.nu)

    @torch.no_grad()
    def run(self) -> None:
        """Predict the frame."""
        state = State.unchecked(q=self.q, qd=self.qd, channels=None)
        carry: Any = self._dynamics.begin(state, self._environment) if self._carry is None else self._carry
        self._carry, step = self._dynamics.step_(carry, state, Control(torque=self.torque))
        self.q_next.copy_(step.state.q)
        self.qd_next.copy_(step.state.qd)

    def refresh(self) -> None:
        """Nothing is kept that could be elsewhere now."""

    def reset(self, mask: Tensor | None) -> None:
        """Forget the history of some worlds."""
        if self._carry is not None:
            state = State(self.q, self.qd)
            self._carry = None if mask is None else self._dynamics.reset(self._carry, state, mask)

    def moved(self, environment: Environment) -> "EagerFrame":
        """Return the frame in another environment: itself."""
        self._environment = environment
        if self._carry is not None:
            self._carry = replace(self._carry, environment=environment)
        return self
