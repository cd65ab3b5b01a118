# SPDX-License-Identifier: Apache-2.0
"""One frame of a program as a function of positions, velocities and torques, over any batch axes."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from neurodyn.multibody.trace.onnx_frame import frame_graph
from neurodyn.multibody.trace.program import Program


class ProgramFrame:
    """One frame of the program of a mechanism, whose state is positions and velocities and whose control is torques.

    Attributes:
        program: The program.
        substeps: Its steps in a frame.
    """

    def __init__(self, program: Program, nq: int, substeps: int) -> None:
        """Take a program, the number of positions in its state, and its steps in a frame."""
        self.program, self.substeps = program, substeps
        self._nq = nq

    def __call__(
        self, q: Tensor, qd: Tensor, torque: Tensor, *, held: Tensor | None = None, parameters: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return positions and velocities one frame later, shapes as of `q` and `qd`; differentiable by every tensor.

        Args:
            q: Positions in Newton's convention [rad or m], shape [..., nq].
            qd: Velocities [rad/s or m/s], shape [..., nv].
            torque: Torques during the frame [N m or N], shape [..., nu].
            held: What is held over the frame, shape [..., held]; or [worlds, held], with the batch axes flattened.
            parameters: Likewise, shape [..., parameters].
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

    def bound(
        self, state: Tensor, torque: Tensor, *, held: Tensor | None = None, parameters: Tensor | None = None
    ) -> tuple[Tensor, Any]:
        """Return the states one frame later, and the recorded launch that computes them anew from the same memory.

        Args:
            state: Positions and velocities, shape [worlds, nq + nv], contiguous as all.
            torque: Torques during the frame [N m or N], shape [worlds, nu].
            held: What is held over the frame, shape [worlds, held].
            parameters: Shape [worlds, parameters].
        """
        run = self.program.run(
            state, frames=1, substeps=self.substeps, control=torque[:, None],
            held=None if held is None else held[:, None], parameters=parameters,
        )  # fmt: skip
        path, launch = self.program.bound(run, state)
        return path[:, -1], launch

    def onnx(self, *, held: Sequence[float] = (), parameters: Sequence[float] = ()) -> Any:
        """Return the frame as an ONNX graph from `q`, `qd` and `control` to `q_ahead` and `qd_ahead`, in float32.

        Args:
            held: What is held over the frame, the same in all worlds.
            parameters: Likewise.

        Raises:
            InputError: A part of the frame has no nodes in ONNX.
        """
        program = self.program
        return frame_graph(
            program.sizes, program.step, self.substeps, self._nq, held=held, parameters=parameters
        )  # fmt: skip
