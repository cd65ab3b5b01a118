# SPDX-License-Identifier: Apache-2.0
"""Compiled programs of traced functions: the loop over time inside, worlds side by side, and the adjoint beside.

A `TracedProgram` is a recurrence x[t + 1] = f(x[t], u[t], h[t], p, w) with the frame-wise inputs u (controls) and h
(what is held over a frame), parameters p and weights w. Both kernels are text in a native Warp function: the same text
for every device, kept by Warp's kernel cache, so that a program is compiled once on a machine. On a processor several
worlds run in the lanes of its vectors, and large batches on several threads; see `target`.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from dataclasses import dataclass
from itertools import count
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from neurodyn.core.errors import notice
from neurodyn.geometry.launching import (
    OperatorHandle,
    native_stderr_dropped,
    start_warp,
    takes_operator,
    warp_device,
    warp_stream,
)
from neurodyn.multibody.trace.native import (
    CpuLaunch,
    CudaLaunch,
    block_kernel,
    recorded_launch,
    rollout_operator,
    tape_memory,
)
from neurodyn.multibody.trace.recurrence import (
    ADJOINT_PLAIN,
    ADJOINT_ROWS,
    FORWARD_PLAIN,
    FORWARD_ROWS,
    SEEDED_PLAIN,
    SEEDED_ROWS,
    ProgramInputs,
    ProgramSizes,
    Step,
    recurrence_texts,
)
from neurodyn.multibody.trace.target import Target, table_length, vector_lanes

__all__ = ["ProgramGradients", "ProgramInputs", "ProgramRun", "ProgramSizes", "Step", "TracedProgram"]

_MOST_LAUNCHES = 16
_GROUPS = 16
"""Groups of worlds, at most, whose weights' gradients are summed apart: as many on one thread as on several."""

_CUDA_GROUPS = 256
"""The same on a GPU, where the worlds of a group add to the same sums at once, by atomic additions."""

_SMALL = 500
"""Statements below which a thread takes less than 64 registers in single precision; a quarter of it in double."""

_THREAD_WORTH = 5e-4
"""Work that is worth being split among threads [s]."""

_OPERATION = 3e-10
"""About the time that an operation of a `real` takes [s]."""

_EMPTY = (0, 0, 0, 0)
_ARRAYS = ((FORWARD_ROWS, FORWARD_PLAIN), (ADJOINT_ROWS, ADJOINT_PLAIN), (SEEDED_ROWS, SEEDED_PLAIN))
_WORDS = tuple(table_length(*arrays) for arrays in _ARRAYS)


class ProgramRun:
    """All that a roll-out takes besides its first states; attributes as of `TracedProgram.rollout`."""

    __slots__ = (
        "_words", "control", "frames", "held", "lanes", "on_cpu", "parameters", "single", "substeps", "weights",
        "worlds",
    )  # fmt: skip

    def __init__(
        self,
        like: Tensor,
        lanes: int | None,
        frames: int,
        substeps: int,
        control: Tensor,
        held: Tensor,
        parameters: Tensor,
        weights: Tensor,
    ) -> None:
        if like.dtype not in (torch.float32, torch.float64):
            raise ValueError(f"a program runs in float32 or float64, not in {like.dtype}")
        self.frames, self.substeps = frames, substeps
        self.control, self.held, self.parameters, self.weights = control, held, parameters, weights
        self.worlds = like.shape[0]
        self.on_cpu = like.is_cpu
        self.single = like.dtype == torch.float32
        self.lanes = _lanes(self.worlds, self.single, lanes) if self.on_cpu else 1
        self._words: list[int] | None = None

    @property
    def words(self) -> list[int]:
        """Addresses and strides of control, held inputs and parameters."""
        if self._words is None:  # which tensors without data have not
            self._words = [*_row(self.control), *_row(self.held), *_row(self.parameters)]
        return self._words


@dataclass(slots=True)
class ProgramGradients:
    """Gradients by first state, control, held inputs and parameters of every world, and by the weights of all.

    Worlds come first; weights have the shape [weights].
    """

    state: Tensor
    control: Tensor
    held: Tensor
    parameters: Tensor
    weights: Tensor


class TracedProgram(OperatorHandle):
    """A traced recurrence, compiled when it first runs.

    Attributes:
        sizes: Lengths of the arrays.
        step: The step as it was given.
        threads: CPU threads, at most, among which worlds are split.
    """

    def __init__(self, sizes: ProgramSizes, step: Step, threads: int = 1, *, lanes: int | None = None) -> None:
        """Trace a step and its adjoint.

        Args:
            sizes: Lengths of the arrays.
            step: The step, called once, with expressions.
            threads: CPU threads, at most, among which worlds are split.
            lanes: Worlds in a vector; None for as many as the processor's have room for, and one for few worlds.
        """
        start_warp()
        super().__init__()
        self.sizes, self.step = sizes, step
        self.threads = threads
        self._lanes = lanes
        self._scalar_only = False
        self._texts = recurrence_texts(sizes, step)
        self._operations = self.operations
        self._cpu: dict[tuple[int, bool, int], CpuLaunch] = {}
        self._cuda: dict[Any, CudaLaunch] = {}
        self._kernels: dict[Any, Any] = {}
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
        given = self._fitted(x, frames, control, held, parameters, weights)
        silent = not torch.is_grad_enabled() or not any(tensor.requires_grad for tensor in (x, *given))
        if silent and takes_operator(x):  # before anything asks for addresses, which traced tensors do not have
            return rollout_operator(x, *given, self.handle, frames, substeps)
        run = self._run(x, frames, substeps, given)
        if silent:
            return self.forward(run, x)
        return _Rollout.apply(self, run, x, run.control, run.held, run.parameters, run.weights)  # type: ignore[no-any-return]

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
    ) -> "ProgramRun":
        """Return what `forward` and `adjoint` take, for loops that do without torch's autograd; as of `rollout`."""
        return self._run(state, frames, substeps, self._fitted(state, frames, control, held, parameters, weights))

    def _fitted(
        self,
        state: Tensor,
        frames: int,
        control: Tensor | None,
        held: Tensor | None,
        parameters: Tensor | None,
        weights: Tensor | None,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return control, held inputs, parameters and weights in the shapes and the precision of a run."""
        worlds, s = state.shape[0], self.sizes
        return (
            _fitting("control", control, [(worlds, frames, s.control)], state),
            _fitting("held", held, [(worlds, frames, s.held)], state),
            _fitting("parameters", parameters, [(s.parameters,), (worlds, s.parameters)], state),
            _fitting("weights", weights, [(s.weights,)], state, whole=True),
        )

    def _run(
        self, state: Tensor, frames: int, substeps: int, given: tuple[Tensor, Tensor, Tensor, Tensor]
    ) -> "ProgramRun":
        return ProgramRun(state, 1 if self._scalar_only else self._lanes, frames, substeps, *given)

    def forward(self, run: "ProgramRun", state: Tensor) -> Tensor:
        """Return the states at the frames, shape [worlds, frames + 1, state]; without gradients."""
        return self._forward(run, state, None)

    def bound(self, run: "ProgramRun", state: Tensor) -> tuple[Tensor, Any]:
        """Return the states at the frames, as `forward` does, and the recorded launch that computes them anew.

        The launch reads and writes the memory of these very tensors, which the caller keeps; all are contiguous.
        """
        path = self._path(run, state)
        words = [run.frames, run.substeps, run.worlds, 1, *_row(state), *run.words, *_row(path)]
        words += [run.weights.data_ptr(), 0]
        if run.on_cpu:
            self._cpu_launch(0, run)  # which may find that there are no vectors
            kernel, threads = self.kernel(0, Target("cpu", run.single, run.lanes)), 1
        else:
            kernel, threads = self.kernel(0, Target("cuda", run.single)), run.worlds
        blocks = -(-run.worlds // run.lanes)
        return path, recorded_launch(kernel, words, threads, blocks, warp_device(state.device))

    def record(self, run: "ProgramRun", state: Tensor) -> tuple[Tensor, Tensor]:
        """Return the states as `forward` does, and the tape that `adjoint` takes."""
        if run.on_cpu and run.lanes > 1:
            self._cpu_launch(1, run)  # a tape for vectors is of no use where the adjoint has none
        padded = -(-run.worlds // run.lanes) * run.lanes
        tape = tape_memory(state, padded * run.frames * run.substeps * self._texts.taped)
        return self._forward(run, state, tape), tape

    def _forward(self, run: "ProgramRun", state: Tensor, tape: Tensor | None) -> Tensor:
        path, size = self._path(run, state), self.sizes.state
        taped = 0 if tape is None else tape.data_ptr()
        row = (path.data_ptr(), (run.frames + 1) * size, size, 1) if run.on_cpu else _row(path)
        self._launch(0, run, state, 1, [*_row(state), *run.words, *row, run.weights.data_ptr(), taped])
        return path

    def _path(self, run: "ProgramRun", like: Tensor) -> Tensor:
        """Return room for the states at the frames; on a GPU the same numbers of all worlds lie side by side."""
        if run.on_cpu:
            return like.new_empty(run.worlds, run.frames + 1, self.sizes.state)
        return like.new_empty(run.frames + 1, self.sizes.state, run.worlds).permute(2, 0, 1)

    def adjoint(self, run: "ProgramRun", tape: Tensor, seeds: Tensor) -> "ProgramGradients":
        """Return the gradients of sum(seeds * states at the frames).

        Args:
            run: What `record` was given.
            tape: The tape that it returned.
            seeds: Shape [worlds, frames + 1, state].
        """
        worlds, sizes = run.worlds, self.sizes
        seeds = _readable(seeds)
        # What is empty need not be made: allocations are a tenth of a small program's time.
        state = seeds.new_empty(worlds, sizes.state)
        control = seeds.new_empty(worlds, run.frames, sizes.control) if sizes.control else run.control
        held = seeds.new_empty(worlds, run.frames, sizes.held) if sizes.held else run.held
        parameters = seeds.new_empty(worlds, sizes.parameters)
        # Strides that are known need not be asked for, which would be another tenth.
        rest = [
            *run.words, *_row(seeds), state.data_ptr(), sizes.state, 0, 1,
            *(_row(control) if sizes.control else _EMPTY), *(_row(held) if sizes.held else _EMPTY),
            parameters.data_ptr(), sizes.parameters, 0, 1, run.weights.data_ptr(), tape.data_ptr(),
        ]  # fmt: skip
        if not sizes.weights:
            self._launch(1, run, seeds, 1, [*rest, 0])
            return ProgramGradients(state, control, held, parameters, run.weights)
        blocks = -(-worlds // run.lanes)
        group = -(-blocks // (_GROUPS if run.on_cpu else _CUDA_GROUPS))
        sums = seeds.new_zeros(-(-blocks // max(group, 1)), sizes.weights, run.lanes)
        self._launch(1, run, seeds, group, [*rest, sums.data_ptr()])
        return ProgramGradients(state, control, held, parameters, sums.sum((0, 2)))

    def frame(
        self, state: Tensor, substeps: int, control: Tensor, held: Tensor | None, parameters: Tensor, weights: Tensor
    ) -> tuple[Tensor, Callable[[Tensor], tuple[Tensor, Tensor]]]:
        """Return the states after one frame, and a function that differentiates them, on the processor.

        The function takes seeds, gradients by the states after the frame, shape [worlds, rows, state]. It returns those
        by the states before it, of the same shape, and by the controls, shape [worlds, rows, control].
        Arguments are as of `rollout`.
        """
        run = self.run(
            state, frames=1, substeps=substeps, control=control, held=held, parameters=parameters, weights=weights
        )
        run.lanes = 1
        path, tape = self.record(run, state)
        return path[:, 1], lambda seeds: self._rows(run, tape, seeds.contiguous())

    def _rows(self, run: "ProgramRun", tape: Tensor, seeds: Tensor) -> tuple[Tensor, Tensor]:
        worlds, rows, size = seeds.shape
        lanes = 1 if self._scalar_only else self._lanes or vector_lanes(run.single)
        wide = copy(run)
        wide.lanes = lanes
        launch = self._cpu_launch(2, wide)
        parts = -(-rows // wide.lanes)
        room = tape_memory(seeds, worlds * parts * (size + self.sizes.control) * wide.lanes)
        sums = tape_memory(seeds, self.sizes.weights * wide.lanes).zero_()
        state, control = torch.empty_like(seeds), seeds.new_empty(worlds, rows, self.sizes.control)
        words = [1, run.substeps, worlds, rows, *run.words]
        for tensor in (seeds, state, control):
            words += [tensor.data_ptr(), tensor.shape[-1], 0, 1]
        words += [run.weights.data_ptr(), tape.data_ptr(), sums.data_ptr(), room.data_ptr()]
        if worlds:
            launch(0, worlds, words)
        return state, control

    def _launch(self, which: int, run: "ProgramRun", like: Tensor, group: int, rest: list[int]) -> None:
        if not run.worlds:
            return
        words = [run.frames, run.substeps, run.worlds, group, *rest]
        if not run.on_cpu:
            self._cuda_launch(which, run.single, like, run.worlds)(words, warp_stream(like.device))
            return
        launch = self._cpu_launch(which, run)
        blocks = -(-run.worlds // run.lanes)
        pieces = 1
        if self.threads > 1:
            work = _OPERATION * self._operations[which] * run.frames * run.substeps * blocks
            if work > _THREAD_WORTH:
                pieces = min(-(-blocks // group), 4 * self.threads)
        if pieces == 1:
            launch(0, blocks, words)
        else:
            self._split(launch, -(-blocks // group), group, blocks, pieces, words)

    def _split(self, launch: CpuLaunch, groups: int, group: int, blocks: int, pieces: int, words: list[int]) -> None:
        """Run pieces of whole groups on threads, of which this is one; whoever is done takes the next."""
        bounds = [min(groups * piece // pieces * group, blocks) for piece in range(pieces + 1)]
        following = count()

        def work() -> None:
            while (piece := next(following)) < pieces:
                launch(bounds[piece], bounds[piece + 1], words)

        if self._pool is None:
            self._pool = ThreadPoolExecutor(self.threads - 1)
        others = [self._pool.submit(work) for _ in range(min(self.threads, pieces) - 1)]
        work()
        for other in others:
            other.result()

    def _cpu_launch(self, which: int, run: "ProgramRun") -> CpuLaunch:
        """Return a compiled kernel; where it compiles for no vectors, the run goes on with one world at a time."""
        launch = self._cpu.get((which, run.single, run.lanes))
        if launch is not None:
            return launch
        if run.lanes > 1:
            try:
                with native_stderr_dropped():
                    return self._compiled(which, run)
            except Exception:  # what Warp raises where its compiler refuses a text
                notice(
                    "a compiled program runs one world at a time: the text of a contact model or network does not "
                    "compile for vectors (see `neurodyn.multibody.trace.Loop` for what such texts may do)"
                )
                self._scalar_only, run.lanes = True, 1
                return self._cpu_launch(which, run)
        return self._compiled(which, run)

    def _compiled(self, which: int, run: "ProgramRun") -> CpuLaunch:
        launch = CpuLaunch(self.kernel(which, Target("cpu", run.single, run.lanes)), _WORDS[which])
        self._cpu[which, run.single, run.lanes] = launch
        return launch

    def _cuda_launch(self, which: int, single: bool, like: Tensor, worlds: int) -> CudaLaunch:
        key = (which, single, like.device, worlds)
        launch = self._cuda.get(key)
        if launch is None:
            if len(self._cuda) >= _MOST_LAUNCHES:
                self._cuda.pop(next(iter(self._cuda)))
            kernel, block = self.kernel(which, Target("cuda", single)), self.cuda_block(which, single)
            launch = self._cuda[key] = CudaLaunch(kernel, _WORDS[which], worlds, block, warp_device(like.device))
        return launch

    def cuda_block(self, which: int, single: bool) -> int:
        """Return how many threads of a kernel make a block of a GPU.

        A multiprocessor has 65,536 registers and room for 32 blocks. A block is one warp, so that a batch is spread
        over as many multiprocessors as there are; but where a thread takes less than 64 registers, more than 32 warps
        fit, and a block is two.
        """
        return 64 if self._operations[which] * (1 if single else 4) < _SMALL else 32

    def cuda_kernels(self, dtype: torch.dtype) -> tuple[Any, Any]:
        """Return forward and adjoint as a GPU runs them, in a precision."""
        target = Target("cuda", dtype == torch.float32)
        return self.kernel(0, target), self.kernel(1, target)

    def kernel(self, which: int, target: Target) -> Any:
        """Return a kernel (0: forward, 1: adjoint) as Warp compiles it for a target."""
        key = (which, target)
        if key not in self._kernels:
            text = (self._texts.forward, self._texts.adjoint, self._texts.seeded)[which]
            whole = target.text(*_ARRAYS[which], text)
            self._kernels[key] = block_kernel(whole, _WORDS[which], target.device != "cpu")
        return self._kernels[key]


def _lanes(worlds: int, single: bool, wanted: int | None) -> int:
    """Return the number of worlds in a vector; few worlds do not fill vectors and run one by one."""
    if wanted is not None:
        return wanted
    lanes = vector_lanes(single)
    return lanes if 4 * worlds > lanes > 1 and worlds > 1 else 1


def _row(tensor: Tensor) -> tuple[int, int, int, int]:
    """Return address and strides by world, frame and element of an array of one to three of these dimensions."""
    if not tensor.numel():
        return _EMPTY
    strides = tensor.stride()
    if len(strides) == 3:
        return (tensor.data_ptr(), *strides)
    return (tensor.data_ptr(), strides[0] if len(strides) == 2 else 0, 0, strides[-1])


def _readable(tensor: Tensor) -> Tensor:
    """Return a tensor whose rows kernels can read: on the processor its elements lie side by side."""
    if tensor.is_contiguous() or not tensor.is_cpu or tensor.stride(-1) == 1 or tensor.shape[-1] < 2:
        return tensor
    return tensor.contiguous()


def _fitting(
    name: str, tensor: Tensor | None, shapes: list[tuple[int, ...]], like: Tensor, *, whole: bool = False
) -> Tensor:
    """Return a tensor in the precision of another, after its shape and device are checked; None where it is empty."""
    if tensor is None and 0 in shapes[0]:
        return like.new_empty(shapes[0])
    if tensor is None or tuple(tensor.shape) not in shapes or tensor.device != like.device:
        given = None if tensor is None else f"{list(tensor.shape)} on {tensor.device}"
        valid = " or ".join(str(list(shape)) for shape in shapes)
        raise ValueError(f"{name}: {given}; valid: a tensor of shape {valid} on {like.device}")
    if tensor.dtype != like.dtype:
        tensor = tensor.to(like.dtype)
    return tensor.contiguous() if whole else _readable(tensor)


class _Rollout(torch.autograd.Function):
    """A roll-out in torch's autograd."""

    @staticmethod
    def forward(ctx: Any, program: TracedProgram, run: ProgramRun, state: Tensor, *others: Tensor) -> Tensor:
        """Run; see `TracedProgram.rollout`. The other tensors are those of the run, for autograd to see."""
        path, tape = program.record(run, state)
        ctx.program, ctx.run = program, run
        ctx.save_for_backward(tape, *others)
        return path

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Any, ...]:  # type: ignore[override]
        """Return the gradients by state, control, held, parameters and weights."""
        tape, *_ = ctx.saved_tensors  # which makes sure that none was changed since
        by = ctx.program.adjoint(ctx.run, tape, gradients[0])
        by_parameters = by.parameters if ctx.run.parameters.ndim == 2 else by.parameters.sum(0)
        return None, None, by.state, by.control, by.held, by_parameters, by.weights
