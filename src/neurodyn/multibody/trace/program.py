# SPDX-License-Identifier: Apache-2.0
"""Compiled programs of traced steps: the loop over time inside, worlds in parallel, with an adjoint program.

A `TracedProgram` is a recurrence x[t + 1] = f(x[t], u[t], h[t], p, w) with per-frame inputs u (controls) and h (held
over a frame), parameters p and weights w. Both kernels are source code in a native Warp function. The code is the same
for every device and is cached by Warp, so that a program is compiled once per machine. On a CPU, several worlds run in
the lanes of a vector, and large batches on several threads; see `target`.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from copy import copy
from dataclasses import dataclass
from itertools import count
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from neurodyn.core.errors import notice
from neurodyn.geometry.launching import (
    Launches,
    OperatorHandle,
    drop_native_output,
    start_warp,
    takes_operator,
    warp_device,
    warp_stream,
)
from neurodyn.multibody.trace.native import (
    CpuLaunch,
    CudaLaunch,
    announce,
    block_kernel,
    load_side_by_side,
    recorded_launch,
    rollout_operator,
    tape_memory,
    worth_a_thread,
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
    recurrence_source,
)
from neurodyn.multibody.trace.target import Target, table_length, vector_lanes

__all__ = ["ProgramGradients", "ProgramInputs", "ProgramRun", "ProgramSizes", "Step", "TracedProgram"]

_GROUPS = 16
"""Maximum number of partial sums of weight gradients, independent of the number of threads."""

_CUDA_GROUPS = 256
"""The same on a GPU, where the worlds of a group add to one sum atomically."""

_SMALL = 500
"""Number of statements below which a thread needs fewer than 64 registers in float32; a quarter of it in float64."""

_THREAD_WORTH = 5e-4
"""Duration above which work is split among threads [s]."""

_OPERATION = 3e-10
"""Approximate duration of one operation on a `real` [s]."""

_EMPTY = (0, 0, 0, 0)
_ARRAYS = ((FORWARD_ROWS, FORWARD_PLAIN), (ADJOINT_ROWS, ADJOINT_PLAIN), (SEEDED_ROWS, SEEDED_PLAIN))
_WORDS = tuple(table_length(*arrays) for arrays in _ARRAYS)


_Given = tuple[Tensor, Tensor, Tensor, Tensor]
"""Control, held inputs, parameters and weights."""

Rows = Callable[[Tensor], tuple[Tensor, Tensor]]
"""Vector-Jacobian product of a frame: maps gradients in the states after it, shape [worlds, rows, state], to those in
the states before it, of the same shape, and in the controls, shape [worlds, rows, control]."""


def chain(parts: Sequence[Rows]) -> Rows:
    """Chain the vector-Jacobian products of the parts of a frame under constant control."""

    def rows(seeds: Tensor) -> tuple[Tensor, Tensor]:
        controls = []
        for part in reversed(parts):
            seeds, control = part(seeds)
            controls.append(control)
        return seeds, torch.stack(controls).sum(0)

    return rows


def of_columns(rows: Rows, columns: Sequence[int], width: int) -> Rows:
    """Return the vector-Jacobian product of some columns of a state of this width, whose others are held."""

    def product(seeds: Tensor) -> tuple[Tensor, Tensor]:
        whole = seeds.new_zeros(*seeds.shape[:-1], width)
        whole[..., columns] = seeds
        state, control = rows(whole)
        return state[..., columns], control

    return product


class ProgramRun:
    """The inputs of a roll-out except its initial states; see `TracedProgram.rollout`."""

    __slots__ = (
        "_words", "control", "frames", "held", "lanes", "on_cpu", "parameters", "single", "substeps", "weights",
        "worlds",
    )  # fmt: skip

    def __init__(self, like: Tensor, lanes: int | None, frames: int, substeps: int, given: _Given) -> None:
        if like.dtype not in (torch.float32, torch.float64):
            raise ValueError(f"a program runs in float32 or float64, not in {like.dtype}")
        self.frames, self.substeps = frames, substeps
        self.control, self.held, self.parameters, self.weights = given
        self.worlds = like.shape[0]
        self.on_cpu = like.is_cpu
        self.single = like.dtype == torch.float32
        self.lanes = _lanes(self.worlds, self.single, lanes) if self.on_cpu else 1
        self._words: list[int] | None = None

    @property
    def words(self) -> list[int]:
        """Addresses and strides of control, held inputs and parameters."""
        if self._words is None:  # computed late, because tensors without data have no address
            self._words = [*_row(self.control), *_row(self.held), *_row(self.parameters)]
        return self._words


@dataclass(slots=True)
class ProgramGradients:
    """Gradients with respect to the initial state, control, held inputs and parameters of every world, and the weights.

    Shapes start with the worlds, except that of weights, [weights].
    """

    state: Tensor
    control: Tensor
    held: Tensor
    parameters: Tensor
    weights: Tensor


class TracedProgram(OperatorHandle):
    """A traced recurrence, compiled on first use."""

    def __init__(self, sizes: ProgramSizes, step: Step, threads: int = 1, *, lanes: int | None = None) -> None:
        """Trace a step and its adjoint.

        Args:
            sizes: Lengths of the arrays.
            step: The step function, called once with expressions.
            threads: Maximum number of CPU threads that worlds are split among.
            lanes: Worlds per vector; None for the width of the CPU's registers, or 1 for few worlds.
        """
        super().__init__()
        self.sizes, self.step = sizes, step
        self.threads = threads
        self._lanes = lanes
        self._scalar_only = False
        self._source = recurrence_source(sizes, step)
        self.operations = tuple(text.count("const real v") for text in (self._source.forward, self._source.adjoint))
        self._cpu: dict[tuple[int, bool, int], CpuLaunch] = {}
        self._cuda = Launches()
        self._kernels: dict[Any, Any] = {}
        self._pool: ThreadPoolExecutor | None = None

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
        """Run the recurrence in every world; differentiable with respect to every tensor.

        Args:
            state: Initial states, shape [worlds, state].
            frames: Number of frames.
            substeps: Steps per frame; control and held inputs are constant over a frame.
            control: Controls, shape [worlds, frames, control].
            held: Held inputs, shape [worlds, frames, held].
            parameters: Parameters, shape [parameters] for all worlds, or [worlds, parameters].
            weights: Weights, shape [weights].

        Returns:
            States at the frames, shape [worlds, frames + 1, state], the initial ones first.

        Raises:
            ValueError: A shape, a number or a device does not fit.
        """
        if frames < 0 or substeps < 1:
            raise ValueError(f"{frames} frames of {substeps} substeps; valid: at least 0 frames of at least 1")
        x = _fitting("state", state, [(state.shape[0] if state.ndim else 0, self.sizes.state)], state)
        given = self._fit(x, frames, (control, held, parameters, weights))
        silent = not torch.is_grad_enabled() or not any(tensor.requires_grad for tensor in (x, *given))
        if silent and takes_operator(x):  # must precede any use of addresses, which tensors in torch.compile lack
            return rollout_operator(x, *given, self.handle, frames, substeps)
        run = self._run(x, frames, substeps, given)
        if silent:
            return self.forward(run, x)
        return _Rollout.apply(self, run, x, run.control, run.held, run.parameters, run.weights)  # type: ignore[no-any-return]

    def frame_after(
        self, q: Tensor, qd: Tensor, *, substeps: int, control: Tensor, held: Tensor | None, parameters: Tensor,
        weights: Tensor,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        """Return positions and velocities one frame later; differentiable only in these and the control.

        Arguments: see `rollout`; control and held inputs have shapes [worlds, control] and [worlds, held].
        """
        state = torch.cat([q.detach(), qd.detach()], dim=-1)
        run = self.run(
            state, frames=1, substeps=substeps, control=control.detach()[:, None],
            held=None if held is None else held[:, None], parameters=parameters, weights=weights,
        )  # fmt: skip
        after = _Frame.apply(self, run, state, q, qd, control)
        assert isinstance(after, tuple)
        return after

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
        """Return the inputs of `forward` and `adjoint`, for use without torch's autograd; arguments: see `rollout`."""
        return self._run(state, frames, substeps, self._fit(state, frames, (control, held, parameters, weights)))

    def _fit(self, state: Tensor, frames: int, given: tuple[Tensor | None, ...]) -> _Given:
        """Return control, held inputs, parameters and weights, checked and in the precision of the state."""
        (control, held, parameters, weights), worlds, s = given, state.shape[0], self.sizes
        return (
            _fitting("control", control, [(worlds, frames, s.control)], state),
            _fitting("held", held, [(worlds, frames, s.held)], state),
            _fitting("parameters", parameters, [(s.parameters,), (worlds, s.parameters)], state),
            _fitting("weights", weights, [(s.weights,)], state, whole=True),
        )

    def _run(self, state: Tensor, frames: int, substeps: int, given: _Given) -> ProgramRun:
        return ProgramRun(state, 1 if self._scalar_only else self._lanes, frames, substeps, given)

    def forward(self, run: "ProgramRun", state: Tensor) -> Tensor:
        """Return the states at the frames, shape [worlds, frames + 1, state], without gradients."""
        return self._forward(run, state, None)

    def bind(self, run: "ProgramRun", state: Tensor) -> tuple[Tensor, Any]:
        """Return the states at the frames and the recorded launch that recomputes them in place.

        The launch reads and writes the memory of these tensors, which the caller keeps alive. All are contiguous, also
        the states on a GPU, because later kernels read rows.
        """
        path = state.new_empty(run.worlds, run.frames + 1, self.sizes.state)
        words = [run.frames, run.substeps, run.worlds, 1, *_row(state), *run.words, *_row(path)]
        words += [run.weights.data_ptr(), 0]
        if run.on_cpu:
            self._cpu_launch(0, run)  # may fall back to one world at a time
            kernel, threads = self.kernel(0, Target("cpu", run.single, run.lanes)), 1
        else:
            kernel, threads = self.kernel(0, Target("cuda", run.single)), run.worlds
        blocks = -(-run.worlds // run.lanes)
        return path, recorded_launch(kernel, words, threads, blocks, warp_device(state.device))

    def record(self, run: "ProgramRun", state: Tensor, backward: int = 1) -> tuple[Tensor, Tensor]:
        """Return the states at the frames and the tape for the kernel `backward` (1: adjoint, 2: seeded adjoint)."""
        if run.on_cpu and run.lanes > 1:
            self._compile_both(run, backward)
            self._cpu_launch(backward, run)  # may fall back to one world at a time, which the tape's layout depends on
        padded = -(-run.worlds // run.lanes) * run.lanes
        tape = tape_memory(state, padded * run.frames * run.substeps * self._source.taped)
        return self._forward(run, state, tape), tape

    def _forward(self, run: "ProgramRun", state: Tensor, tape: Tensor | None) -> Tensor:
        path, size = self._path(run, state), self.sizes.state
        taped = 0 if tape is None else tape.data_ptr()
        row = (path.data_ptr(), (run.frames + 1) * size, size, 1) if run.on_cpu else _row(path)
        self._launch(0, run, state, 1, [*_row(state), *run.words, *row, run.weights.data_ptr(), taped])
        return path

    def _path(self, run: "ProgramRun", like: Tensor) -> Tensor:
        """Allocate the states at the frames; on a GPU, worlds are the fastest axis."""
        if run.on_cpu:
            return like.new_empty(run.worlds, run.frames + 1, self.sizes.state)
        return like.new_empty(run.frames + 1, self.sizes.state, run.worlds).permute(2, 0, 1)

    def adjoint(self, run: "ProgramRun", tape: Tensor, seeds: Tensor) -> "ProgramGradients":
        """Return the gradients of sum(seeds * states at the frames) of a recorded run and its tape.

        Seeds have shape [worlds, frames + 1, state].
        """
        worlds, sizes = run.worlds, self.sizes
        seeds = _readable(seeds)
        # Empty tensors are not allocated: allocation is a tenth of a small program's time.
        state = seeds.new_empty(worlds, sizes.state)
        control = seeds.new_empty(worlds, run.frames, sizes.control) if sizes.control else run.control
        held = seeds.new_empty(worlds, run.frames, sizes.held) if sizes.held else run.held
        parameters = seeds.new_empty(worlds, sizes.parameters)
        # Known strides are written directly: querying them would be another tenth.
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
    ) -> tuple[Tensor, Rows]:
        """Return the states after one frame and their vector-Jacobian product; CPU only. Arguments: see `rollout`."""
        run = self._run(state, 1, substeps, self._fit(state, 1, (control, held, parameters, weights)))
        path, tape = self.record(run, state, backward=2)
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
        words = [run.lanes, run.substeps, worlds, rows, *run.words]
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
            work = _OPERATION * self.operations[which] * run.frames * run.substeps * blocks
            if work > _THREAD_WORTH:
                pieces = min(-(-blocks // group), 4 * self.threads)
        if pieces == 1:
            launch(0, blocks, words)
        else:
            self._split(launch, -(-blocks // group), group, blocks, pieces, words)

    def _split(self, launch: CpuLaunch, groups: int, group: int, blocks: int, pieces: int, words: list[int]) -> None:
        """Run pieces of whole groups on this and other threads; a thread that is done takes the next piece."""
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

    def _compile_both(self, run: "ProgramRun", backward: int) -> None:
        """Compile long forward kernels and adjoints on two cores; `_cpu_launch` compiles one after the other."""
        both = (0, backward)
        compiled = any((which, run.single, run.lanes) in self._cpu for which in both)
        if compiled or not worth_a_thread(self.operations[0]):
            return
        kernels = [self.kernel(which, Target("cpu", run.single, run.lanes)) for which in both]
        announce(kernels[1], self.operations[1])
        with drop_native_output(2), suppress(Exception):
            load_side_by_side(*kernels)  # `_cpu_launch` compiles what failed once more, and reports it

    def _cpu_launch(self, which: int, run: "ProgramRun") -> CpuLaunch:
        """Return a compiled kernel; if it does not compile for vectors, the run continues with one world at a time."""
        launch = self._cpu.get((which, run.single, run.lanes))
        if launch is not None:
            return launch
        kernel = self.kernel(which, Target("cpu", run.single, run.lanes))
        announce(kernel, self.operations[min(which, 1)])  # a seeded adjoint is about as long as the adjoint
        try:
            with drop_native_output(2) if run.lanes > 1 else nullcontext():
                launch = CpuLaunch(kernel, _WORDS[which])
        except Exception:  # Warp's error for code that does not compile
            if run.lanes == 1:
                raise
            notice(
                "a compiled program runs one world at a time: the text of a contact model or network does not "
                "compile for vectors (see `neurodyn.multibody.trace.Loop` for what such texts may do)"
            )
            self._scalar_only, run.lanes = True, 1
            return self._cpu_launch(which, run)
        self._cpu[which, run.single, run.lanes] = launch
        return launch

    def _cuda_launch(self, which: int, single: bool, like: Tensor, worlds: int) -> CudaLaunch:
        def record() -> CudaLaunch:
            kernel, block = self.kernel(which, Target("cuda", single)), self.cuda_block(which, single)
            return CudaLaunch(kernel, _WORDS[which], worlds, block, warp_device(like.device))

        return self._cuda.get((which, single, like.device, worlds), record)

    def cuda_block(self, which: int, single: bool) -> int:
        """Return the number of threads per GPU block of a kernel.

        A multiprocessor has 65,536 registers and room for 32 blocks. A block is one warp, so that a batch is spread
        over as many multiprocessors as possible. If a thread needs fewer than 64 registers, more than 32 warps fit, and
        a block is two warps.
        """
        return 64 if self.operations[which] * (1 if single else 4) < _SMALL else 32

    def kernel(self, which: int, target: Target) -> Any:
        """Return a kernel (0: forward, 1: adjoint, 2: seeded adjoint) for a target."""
        key = (which, target)
        if key not in self._kernels:
            start_warp()
            text = getattr(self._source, ("forward", "adjoint", "seeded")[which])  # the last is slow to make
            whole, cuda = target.source(*_ARRAYS[which], text), target.device != "cpu"
            self._kernels[key] = block_kernel(whole, _WORDS[which], cuda, target.stack(text))
        return self._kernels[key]


def _lanes(worlds: int, single: bool, wanted: int | None) -> int:
    """Return the number of worlds per vector; few worlds do not fill vectors and run one by one."""
    if wanted is not None:
        return wanted
    lanes = vector_lanes(single)
    return lanes if 4 * worlds > lanes > 1 and worlds > 1 else 1


def _row(tensor: Tensor) -> tuple[int, int, int, int]:
    """Return address and strides by world, frame and element of an array with one to three of these axes."""
    if not tensor.numel():
        return _EMPTY
    strides = tensor.stride()
    if len(strides) == 3:
        return (tensor.data_ptr(), *strides)
    return (tensor.data_ptr(), strides[0] if len(strides) == 2 else 0, 0, strides[-1])


def _readable(tensor: Tensor) -> Tensor:
    """Return a tensor with rows that kernels can read: on a CPU, elements are contiguous."""
    if tensor.is_contiguous() or not tensor.is_cpu or tensor.stride(-1) == 1 or tensor.shape[-1] < 2:
        return tensor
    return tensor.contiguous()


def _fitting(
    name: str, tensor: Tensor | None, shapes: list[tuple[int, ...]], like: Tensor, *, whole: bool = False
) -> Tensor:
    """Return a tensor in the precision of another, with shape and device checked; None is valid for an empty one."""
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
    """Autograd function of a roll-out."""

    @staticmethod
    def forward(ctx: Any, program: TracedProgram, run: ProgramRun, state: Tensor, *others: Tensor) -> Tensor:
        """Run; see `TracedProgram.rollout`. The other tensors are the run's, passed so that autograd sees them."""
        path, tape = program.record(run, state)
        ctx.program, ctx.run = program, run
        ctx.save_for_backward(tape, *others)
        return path

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Any, ...]:  # type: ignore[override]
        """Return the gradients with respect to state, control, held, parameters and weights."""
        tape, *_ = ctx.saved_tensors  # also checks that none was modified in place
        by = ctx.program.adjoint(ctx.run, tape, gradients[0])
        by_parameters = by.parameters if ctx.run.parameters.ndim == 2 else by.parameters.sum(0)
        return None, None, by.state, by.control, by.held, by_parameters, by.weights


class _Frame(torch.autograd.Function):
    """Autograd function of one frame, which saves the graph nodes that split and join states."""

    @staticmethod
    def forward(
        ctx: Any, program: TracedProgram, run: ProgramRun, state: Tensor, q: Tensor, qd: Tensor, control: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Run; see `TracedProgram.frame_after`."""
        path, tape = program.record(run, state)
        ctx.program, ctx.run, ctx.tape, ctx.nq = program, run, tape, q.shape[1]
        ctx.save_for_backward(q, qd, control)  # to check that none was modified in place
        ctx.set_materialize_grads(False)
        return path[:, 1, : ctx.nq], path[:, 1, ctx.nq :]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Any) -> tuple[Any, ...]:  # type: ignore[override]
        """Return the gradients with respect to positions, velocities and control."""
        (q, _, _), nq = ctx.saved_tensors, ctx.nq
        seeds = q.new_zeros(q.shape[0], 2, ctx.program.sizes.state)
        for part, gradient in zip((seeds[:, 1, :nq], seeds[:, 1, nq:]), gradients, strict=True):
            if gradient is not None:
                part.copy_(gradient)
        by = ctx.program.adjoint(ctx.run, ctx.tape, seeds)
        return None, None, None, by.state[:, :nq], by.state[:, nq:], by.control[:, 0]
