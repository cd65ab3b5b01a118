# SPDX-License-Identifier: Apache-2.0
"""Compiled functions of vectors, one set of vectors per world; differentiable."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from neurodyn.multibody.trace.expression import Expression, Graph, Scalar
from neurodyn.multibody.trace.program import TracedProgram
from neurodyn.multibody.trace.recurrence import ProgramInputs, ProgramSizes

Traceable = Callable[[Graph, list[list[Expression]]], list[Scalar]]
"""From a graph and the elements of the input vectors to the outputs."""


class CompiledFunction:
    """A function that is evaluated in every world by one kernel, and differentiated by another.

    Attributes:
        widths: Lengths of its input vectors.
        outputs: Number of its outputs.
    """

    def __init__(self, widths: Sequence[int], outputs: int, function: Traceable) -> None:
        """Trace a function, which is compiled at its first use."""
        self.widths, self.outputs = tuple(widths), outputs
        self._function = function
        # One frame of a recurrence whose state after it does not depend on that before.
        self._program = TracedProgram(ProgramSizes(state=outputs, control=sum(self.widths)), self._step)

    def __call__(self, *parts: Tensor) -> Tensor:
        """Return the outputs, shape [worlds, outputs], for inputs of shape [worlds, width] each."""
        if torch.is_grad_enabled() and any(part.requires_grad for part in parts):
            after = _Function.apply(self, *parts)
            assert isinstance(after, Tensor)
            return after
        run, first = self._run(parts)
        return self._program.forward(run, first)[:, 1]

    def record(self, parts: Sequence[Tensor]) -> tuple[Tensor, Any, Tensor]:
        """Return the outputs, and the run and the tape that `gradients` needs."""
        run, first = self._run(parts)
        path, tape = self._program.record(run, first)
        return path[:, 1], run, tape

    def gradients(self, run: Any, tape: Tensor, seeds: Tensor) -> tuple[Tensor, ...]:
        """Return the gradients of sum(seeds * outputs) by each input."""
        both = seeds.new_zeros(len(seeds), 2, self.outputs)
        both[:, 1] = seeds
        return self._program.adjoint(run, tape, both).control[:, 0].split(self.widths, 1)

    def _run(self, parts: Sequence[Tensor]) -> tuple[Any, Tensor]:
        table = torch.cat([part.detach() for part in parts], 1)
        first = table.new_zeros(1, self.outputs).expand(len(table), -1)
        return self._program.run(first, frames=1, control=table[:, None]), first

    def _step(self, inputs: ProgramInputs) -> list[Scalar]:
        parts, begin = [], 0
        for width in self.widths:
            parts.append(inputs.control[begin : begin + width])
            begin += width
        return self._function(inputs.graph, parts)


class _Function(torch.autograd.Function):
    """See `CompiledFunction.__call__`."""

    @staticmethod
    def forward(ctx: Any, function: CompiledFunction, *parts: Tensor) -> Tensor:
        after, ctx.run, ctx.tape = function.record(parts)
        ctx.function = function
        return after

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Any) -> tuple[Any, ...]:  # type: ignore[override]
        return None, *ctx.function.gradients(ctx.run, ctx.tape, gradients[0])
