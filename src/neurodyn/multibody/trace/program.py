# SPDX-License-Identifier: Apache-2.0
"""Compiled programs of traced functions: one thread a world, the loop over time inside, and the adjoint beside.

A `Program` is a recurrence x[t + 1] = f(x[t], u[t], h[t], p, w) with the frame-wise inputs u (controls) and h (what is
held over a frame), parameters p and weights w. Both kernels are text in a native Warp function: the same text for
every device, kept by Warp's kernel cache, so that a program is compiled once on a machine.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
import warp as wp
from torch import Tensor
from torch.autograd.function import once_differentiable

from neurodyn.geometry.launching import Held, start_warp, takes_operator
from neurodyn.multibody.trace.native import FixedLaunch, TableLaunch, native_kernel
from neurodyn.multibody.trace.operators import rollout_operator
from neurodyn.multibody.trace.recurrence import (
    ADJOINT_ARRAYS,
    FORWARD_ARRAYS,
    NUMBERS,
    Inputs,
    Sizes,
    Step,
    recurrence_texts,
)

__all__ = ["Gradients", "Inputs", "Program", "Run", "Sizes", "Step"]

_MOST_LAUNCHES = 16
_HEAD = """typedef {real} real;
typedef {real} number;
typedef bool mask;
#undef SELECT
#undef ANY
#undef ALL
#undef NOT
#define SELECT(condition, a, b) ((condition) ? (a) : (b))
#define ANY(condition) (condition)
#define ALL(condition) (condition)
#define NOT(condition) (!(condition))
"""
_NUMBER = "const int {name} = (int)table.data[{index}];\n"
_ARRAY = "real* {name} = (real*)table.data[{index}]; (void){name};\n"


@dataclass(frozen=True)
class Run:
    """All that a roll-out takes besides its first states; attributes as of `Program.rollout`."""

    frames: int
    substeps: int
    control: Tensor
    held: Tensor
    parameters: Tensor
    weights: Tensor


@dataclass(frozen=True)
class Gradients:
    """Gradients of every world, by first state, control, held inputs, parameters and weights; worlds come first."""

    state: Tensor
    control: Tensor
    held: Tensor
    parameters: Tensor
    weights: Tensor


class Program(Held):
    """A traced recurrence, compiled when it first runs."""

    def __init__(self, sizes: Sizes, step: Step, threads: int = 1) -> None:
        """Trace a step and its adjoint.

        Args:
            sizes: Lengths of the arrays.
            step: The step, called once, with expressions.
            threads: CPU threads among which worlds are split.
        """
        start_warp()
        super().__init__()
        self.sizes = sizes
        self.threads = threads
        self._texts = recurrence_texts(sizes, step)
        self._kernels: dict[tuple[int, torch.dtype], Any] = {}
        self._launches: dict[Any, TableLaunch] = {}
        self._pool: ThreadPoolExecutor | None = None

    @property
    def operations(self) -> tuple[int, int]:
        """Statements of the step and of its adjoint."""
        return self._texts.forward.count("const real v"), self._texts.adjoint.count("const real v")

    def rollout(
        self,
        state: Tensor,
        *,
        frames: int,
        substeps: int = 1,
        control: Tensor | None = None,
        held: Tensor | None = None,
        parameters: Tensor | None = None,
        weights: Tensor | None = None,
    ) -> Tensor:
        """Run the recurrence in every world; differentiable by every tensor.

        Args:
            state: Initial states, shape [worlds, state].
            frames: Number of frames.
            substeps: Steps in a frame; u and h are held over them.
            control: Shape [worlds, frames, control].
            held: Shape [worlds, frames, held].
            parameters: Shape [parameters] for all worlds, or [worlds, parameters].
            weights: Shape [weights].

        Returns:
            States at the frames, shape [worlds, frames + 1, state], the initial ones first.

        Raises:
            ValueError: A shape, a number or a device does not fit.
        """
        if frames < 0 or substeps < 1:
            raise ValueError(f"{frames} frames of {substeps} substeps; valid: at least 0 frames of at least 1")
        x = _fitting("state", state, [(state.shape[0] if state.ndim else 0, self.sizes.state)], state)
        run = self.run(
            x, frames=frames, substeps=substeps, control=control, held=held, parameters=parameters, weights=weights
        )
        if takes_operator(x) and not torch.is_grad_enabled():
            return rollout_operator(
                x, run.control, run.held, run.parameters, run.weights, self.handle, frames, substeps
            )
        return _Rollout.apply(self, frames, substeps, x, run.control, run.held, run.parameters, run.weights)  # type: ignore[no-any-return]

    def run(
        self,
        state: Tensor,
        *,
        frames: int,
        substeps: int = 1,
        control: Tensor | None = None,
        held: Tensor | None = None,
        parameters: Tensor | None = None,
        weights: Tensor | None = None,
    ) -> "Run":
        """Return what `forward` and `adjoint` take, for loops that do without torch's autograd; as of `rollout`."""
        worlds, s = state.shape[0], self.sizes
        return Run(
            frames,
            substeps,
            _fitting("control", control, [(worlds, frames, s.control)], state),
            _fitting("held", held, [(worlds, frames, s.held)], state),
            _fitting("parameters", parameters, [(s.parameters,), (worlds, s.parameters)], state),
            _fitting("weights", weights, [(s.weights,)], state),
        )

    def forward(self, run: "Run", state: Tensor) -> Tensor:
        """Return the states of all steps, shape [worlds, frames * substeps + 1, state]; without gradients."""
        return self._forward(run, state, None)

    def bound(self, run: "Run", state: Tensor) -> tuple[Tensor, Any]:
        """Return the states of all steps, as `forward` does, and the recorded launch that computes them anew.

        The launch reads and writes the memory of these very tensors, which the caller keeps; all are contiguous.
        """
        path = state.new_empty(state.shape[0], run.frames * run.substeps + 1, state.shape[1])
        tensors = [path, run.control, run.held, run.parameters, run.weights, None, state]
        device = str(wp.device_from_torch(path.device))
        launch = FixedLaunch(self._kernel(0, path.dtype), path.shape[0], self._words(run, tensors), device)
        return path, launch.command

    def record(self, run: "Run", state: Tensor) -> tuple[Tensor, Tensor]:
        """Return the states as `forward` does, and the tape that `adjoint` takes."""
        tape = state.new_empty(state.shape[0], run.frames * run.substeps, self._texts.taped)
        return self._forward(run, state, tape), tape

    def _forward(self, run: "Run", state: Tensor, tape: Tensor | None) -> Tensor:
        state = state.contiguous()
        path = state.new_empty(state.shape[0], run.frames * run.substeps + 1, state.shape[1])
        self._launch(0, run, [path, run.control, run.held, run.parameters, run.weights, tape, state])
        return path

    def adjoint(self, run: "Run", path: Tensor, tape: Tensor, seeds: Tensor) -> "Gradients":
        """Return the gradients of sum(seeds * states at the frames).

        Args:
            run: What `record` was given.
            path: The states that it returned.
            tape: The tape that it returned.
            seeds: Shape [worlds, frames + 1, state], contiguous.
        """
        worlds, sizes = path.shape[0], self.sizes
        gradients = Gradients(
            state=path.new_empty(worlds, sizes.state),
            # What is empty need not be made: allocations are a tenth of a small program's time.
            control=torch.empty_like(run.control) if sizes.control else run.control,
            held=torch.empty_like(run.held) if sizes.held else run.held,
            parameters=path.new_empty(worlds, sizes.parameters),
            weights=path.new_zeros(worlds, sizes.weights) if sizes.weights else run.weights.expand(worlds, 0),
        )
        given = [path, run.control, run.held, run.parameters, run.weights, tape, seeds]
        wanted = [gradients.state, gradients.control, gradients.held, gradients.parameters, gradients.weights]
        self._launch(1, run, given + wanted)
        return gradients

    def _launch(self, which: int, run: "Run", tensors: Sequence[Tensor | None]) -> None:
        like = tensors[0]
        assert like is not None  # the path
        worlds = like.shape[0]
        if not worlds:
            return
        words = self._words(run, tensors)
        if like.device.type != "cpu":
            stream = wp.stream_from_torch(torch.cuda.current_stream(like.device))
            self._recorded(which, like, 0, worlds)(words, stream)
            return
        parts = max(min(self.threads, worlds), 1)
        bounds = [worlds * part // parts for part in range(parts + 1)]
        launches = [self._recorded(which, like, a, b) for a, b in pairwise(bounds)]
        if parts == 1:
            launches[0](words)
            return
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self.threads)
        list(self._pool.map(lambda launch: launch(words), launches))

    def _words(self, run: "Run", tensors: Sequence[Tensor | None]) -> list[int]:
        """Return the table of a launch."""
        stride = self.sizes.parameters if run.parameters.ndim == 2 else 0
        return [run.frames, run.substeps, stride, *(0 if tensor is None else tensor.data_ptr() for tensor in tensors)]

    def _recorded(self, which: int, like: Tensor, first: int, last: int) -> TableLaunch:
        """Return the recorded launch of a kernel (0: forward, 1: adjoint) on worlds from `first` to before `last`."""
        key = (which, like.dtype, like.device, first, last)
        launch = self._launches.get(key)
        if launch is None:
            if len(self._launches) >= max(_MOST_LAUNCHES, 4 * self.threads):
                self._launches.pop(next(iter(self._launches)))
            arrays = ADJOINT_ARRAYS if which else FORWARD_ARRAYS
            device = str(wp.device_from_torch(like.device))
            kernel = self._kernel(which, like.dtype)
            launch = TableLaunch(kernel, first, last - first, len(NUMBERS) + len(arrays), device)
            self._launches[key] = launch
        return launch

    def cuda_kernels(self, dtype: torch.dtype) -> tuple[Any, Any]:
        """Return forward and adjoint as a GPU runs them, in a precision."""
        return self._kernel(0, dtype), self._kernel(1, dtype)

    def _kernel(self, which: int, dtype: torch.dtype) -> Any:
        if dtype not in (torch.float32, torch.float64):
            raise ValueError(f"a program runs in float32 or float64, not in {dtype}")
        if (which, dtype) not in self._kernels:
            arrays = ADJOINT_ARRAYS if which else FORWARD_ARRAYS
            text = self._texts.adjoint if which else self._texts.forward
            self._kernels[which, dtype] = native_kernel(_head(arrays, dtype) + text)
        return self._kernels[which, dtype]


def _fitting(name: str, tensor: Tensor | None, shapes: list[tuple[int, ...]], like: Tensor) -> Tensor:
    """Return a tensor in the precision of another, after its shape and device are checked; None where it is empty."""
    if tensor is None and 0 in shapes[0]:
        return like.new_zeros(shapes[0])
    if tensor is None or tuple(tensor.shape) not in shapes or tensor.device != like.device:
        given = None if tensor is None else f"{list(tensor.shape)} on {tensor.device}"
        valid = " or ".join(str(list(shape)) for shape in shapes)
        raise ValueError(f"{name}: {given}; valid: a tensor of shape {valid} on {like.device}")
    return tensor.to(like.dtype).contiguous()


def _head(arrays: tuple[str, ...], dtype: torch.dtype) -> str:
    """Return the text that names what a kernel's table holds."""
    text = _HEAD.format(real="double" if dtype == torch.float64 else "float")
    text += "".join(_NUMBER.format(name=name, index=i) for i, name in enumerate(NUMBERS))
    return text + "".join(_ARRAY.format(name=name, index=i) for i, name in enumerate(arrays, len(NUMBERS)))


class _Rollout(torch.autograd.Function):
    """A roll-out in torch's autograd."""

    @staticmethod
    def forward(
        ctx: Any,
        program: Program,
        frames: int,
        substeps: int,
        state: Tensor,
        control: Tensor,
        held: Tensor,
        parameters: Tensor,
        weights: Tensor,
    ) -> Tensor:
        """Run; see `Program.rollout`."""
        run = Run(frames, substeps, control, held, parameters, weights)
        if not any(ctx.needs_input_grad):
            path = program.forward(run, state)
            return path[:, ::substeps].clone() if substeps > 1 else path
        path, tape = program.record(run, state)
        ctx.program, ctx.frames, ctx.substeps = program, frames, substeps
        ctx.save_for_backward(path, tape, control, held, parameters, weights)
        return path[:, ::substeps].clone() if substeps > 1 else path

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Any, ...]:  # type: ignore[override]
        """Return the gradients by state, control, held, parameters and weights."""
        path, tape, control, held, parameters, weights = ctx.saved_tensors
        run = Run(ctx.frames, ctx.substeps, control, held, parameters, weights)
        by = ctx.program.adjoint(run, path, tape, gradients[0].contiguous())
        by_parameters = by.parameters if parameters.ndim == 2 else by.parameters.sum(0)
        return None, None, None, by.state, by.control, by.held, by_parameters, by.weights.sum(0)
