# SPDX-License-Identifier: Apache-2.0
"""A frame of hybrid dynamics as a `FixedFrame`: on planes, where the ground is held for good."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from neurodyn.dynamics.batch import Environment, State
from neurodyn.dynamics.fixed_frame import FixedFrame
from neurodyn.geometry.launching import Chain
from neurodyn.multibody.trace.program import TracedProgram

if TYPE_CHECKING:
    from neurodyn.dynamics.hybrid.model import HybridDynamics


class HybridFixedFrame:
    """See `FixedFrame`."""

    capturable = True

    def __init__(
        self, dynamics: "HybridDynamics", program: TracedProgram, worlds: int, environment: Environment, like: Tensor
    ) -> None:
        """Make the buffers, and record the launch of a program between them.

        Args:
            dynamics: The dynamics.
            program: Their compiled step on planes.
            worlds: Number of worlds.
            environment: Gravity, and a plane or no ground.
            like: Tensor of the precision and on the device of the buffers.
        """
        spec = dynamics.spec
        self._dynamics, self._environment, self._like = dynamics, environment, like
        state = like.new_zeros(worlds, spec.nq + spec.nv)
        self.q, self.qd = state[:, : spec.nq], state[:, spec.nq :]
        self.torque = like.new_zeros(worlds, spec.nu)
        self._versions: list[object] = []
        self._values = self._read()
        held, parameters, weights = self._values
        run = program.run(
            state, frames=1, substeps=dynamics.config.substeps, control=self.torque[:, None],
            held=None if held is None else held[:, None], parameters=parameters, weights=weights,
        )  # fmt: skip
        path, command = program.bound(run, state)
        self.q_next, self.qd_next = path[:, -1, : spec.nq], path[:, -1, spec.nq :]
        self._chain = Chain([command], like.device, (state, run, path))

    @torch.no_grad()
    def after(self, state: State, torque: Tensor) -> State:
        """Return the states after a frame from others, under torques [N m or N] of shape [worlds, nu]."""
        if self._dynamics.versions(self._environment) != self._versions:
            self._write()
        self.q.copy_(state.q)
        self.qd.copy_(state.qd)
        self.torque.copy_(torque)
        self._chain()
        return State.unchecked(q=self.q_next.clone(), qd=self.qd_next.clone(), channels=None)

    def run(self) -> None:
        """Predict the frame."""
        self._chain()

    def refresh(self) -> None:
        """Read parameters and weights anew, where they have changed."""
        versions = self._dynamics.versions(self._environment)
        if versions != self._versions:
            self._write()

    def reset(self, mask: Tensor | None) -> None:
        """There is nothing to forget."""

    def moved(self, environment: Environment) -> FixedFrame:
        """Return the frame in another environment: itself, where that is a plane too."""
        other = self._dynamics.fixed_frame(len(self.q), environment, self._like)
        if not isinstance(other, HybridFixedFrame) or other.values_fit(self._values) is False:
            return other
        self._environment = environment
        self._write()
        return self

    def values_fit(self, values: tuple[Tensor | None, Tensor, Tensor]) -> bool:
        """Return whether ground, parameters and weights have the shapes of these."""
        shapes = [None if value is None else value.shape for value in values]
        return [None if value is None else value.shape for value in self._values] == shapes

    def _write(self) -> None:
        for buffer, value in zip(self._values, self._read(), strict=True):
            if buffer is not None and value is not None:
                buffer.copy_(value)

    @torch.no_grad()
    def _read(self) -> tuple[Tensor | None, Tensor, Tensor]:
        """Return ground, parameters and weights, in memory of their own."""
        self._versions = self._dynamics.versions(self._environment)
        held, parameters, weights = self._dynamics.values(self._environment, self.q, self.qd)
        return (
            None if held is None else held.to(self._like).contiguous().clone(),
            parameters.to(self._like).contiguous().clone(),
            weights.to(self._like).contiguous().clone(),
        )
