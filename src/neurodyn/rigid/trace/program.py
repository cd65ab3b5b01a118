# SPDX-License-Identifier: Apache-2.0
"""Compiled programs of traced functions: one thread a world, the loop over time inside, and the adjoint beside.

A `Program` is a recurrence x[t + 1] = f(x[t], u[t], h[t], p, w) with the frame-wise inputs u (controls) and h (what is
held over a frame), parameters p and weights w. Both kernels are text in a native Warp function: the same text for
every device, kept by Warp's kernel cache, so that a program is compiled once on a machine. The adjoint recomputes a
step from the stored states before it goes back through it, so a roll-out needs no tape but its states.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import torch
import warp as wp
from torch import Tensor
from torch.autograd.function import once_differentiable

from neurodyn.rigid.launching import Launch, Launches, warp_device
from neurodyn.rigid.start import start_warp
from neurodyn.rigid.trace.expression import Expression, Graph, Scalar
from neurodyn.rigid.trace.native import native_kernels
from neurodyn.rigid.trace.reverse import pull_back
from neurodyn.rigid.trace.text import statements

PRECISIONS: dict[torch.dtype, Any] = {torch.float64: wp.float64, torch.float32: wp.float32}


@dataclass(frozen=True)
class Sizes:
    """Lengths of the arrays of a program.

    Attributes:
        state: Length of the state x.
        control: Length of the control u, one for each frame.
        held: Length of what is held over a frame, h.
        parameters: Length of p.
        weights: Length of w, which all worlds share.
    """

    state: int
    control: int = 0
    held: int = 0
    parameters: int = 0
    weights: int = 0


@dataclass(frozen=True)
class Inputs:
    """Expressions that a traced step is given; lists as long as `Sizes` says."""

    graph: Graph
    state: list[Expression]
    control: list[Expression]
    held: list[Expression]
    parameters: list[Expression]


Step = Callable[[Inputs], list[Scalar]]
"""A step: from inputs to the next state."""

_ARRAYS = {"x": "x_[{}]", "u": "u_[{}]", "h": "h_[{}]", "p": "p_[{}]"}

_HEAD = """
typedef {real} real;
const real* weights = w.data; (void)weights;
const real* p_ = p.data + (long long)world * p_stride; (void)p_;
"""

_FORWARD = """
real* path = x.data + (long long)world * (frames * substeps + 1) * {nx};
real s[{nx_}];
for (int i = 0; i < {nx}; ++i) s[i] = path[i];
for (int frame = 0; frame < frames; ++frame) {{
const real* u_ = u.data + ((long long)world * frames + frame) * {nu}; (void)u_;
const real* h_ = h.data + ((long long)world * frames + frame) * {nh}; (void)h_;
for (int substep = 0; substep < substeps; ++substep) {{
const real* x_ = s; (void)x_;
{body}
path += {nx};
{next}
}}
}}
"""

_ADJOINT = """
real* weights_adj = gw.data + (long long)world * {nw}; (void)weights_adj;
const real* path = x.data + ((long long)world * (frames * substeps + 1) + frames * substeps) * {nx};
const real* given = gx.data + ((long long)world * (frames + 1) + frames) * {nx};
real a[{nx_}];
real gp_[{np_}];
for (int i = 0; i < {np}; ++i) gp_[i] = 0;
for (int i = 0; i < {nx}; ++i) a[i] = given[i];
for (int frame = frames - 1; frame >= 0; --frame) {{
const real* u_ = u.data + ((long long)world * frames + frame) * {nu}; (void)u_;
const real* h_ = h.data + ((long long)world * frames + frame) * {nh}; (void)h_;
real gu_[{nu_}];
real gh_[{nh_}];
for (int i = 0; i < {nu}; ++i) gu_[i] = 0;
for (int i = 0; i < {nh}; ++i) gh_[i] = 0;
for (int substep = 0; substep < substeps; ++substep) {{
path -= {nx};
const real* x_ = path; (void)x_;
{body}
}}
for (int i = 0; i < {nu}; ++i) gu.data[((long long)world * frames + frame) * {nu} + i] = gu_[i];
for (int i = 0; i < {nh}; ++i) gh.data[((long long)world * frames + frame) * {nh} + i] = gh_[i];
given -= {nx};
for (int i = 0; i < {nx}; ++i) a[i] += given[i];
}}
for (int i = 0; i < {nx}; ++i) gx0.data[(long long)world * {nx} + i] = a[i];
for (int i = 0; i < {np}; ++i) gp.data[(long long)world * {np} + i] = gp_[i];
"""


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


class Program:
    """A traced recurrence, compiled when it first runs."""

    def __init__(self, sizes: Sizes, step: Step, threads: int = 1) -> None:
        """Trace a step and its adjoint.

        Args:
            sizes: Lengths of the arrays.
            step: The step, called once, with expressions.
            threads: CPU threads among which worlds are split.
        """
        start_warp()
        self.sizes = sizes
        self.threads = threads
        self._texts = _trace(sizes, step)
        self._kernels: dict[torch.dtype, tuple[Any, Any]] = {}
        self._launches = Launches(max(16, 4 * threads))
        self._pool: ThreadPoolExecutor | None = None

    @property
    def operations(self) -> tuple[int, int]:
        """Statements of the step and of its adjoint."""
        return self._texts[0].count("const real v"), self._texts[1].count("const real v")

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
        s = self.sizes
        x = _fitting("state", state, [(state.shape[0] if state.ndim else 0, s.state)], state)
        worlds = x.shape[0]
        u = _fitting("control", control, [(worlds, frames, s.control)], x)
        h = _fitting("held", held, [(worlds, frames, s.held)], x)
        p = _fitting("parameters", parameters, [(s.parameters,), (worlds, s.parameters)], x)
        w = _fitting("weights", weights, [(s.weights,)], x)
        return _Rollout.apply(self, frames, substeps, x, u, h, p, w)  # type: ignore[no-any-return]

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
        path = state.new_empty(state.shape[0], run.frames * run.substeps + 1, state.shape[1])
        path[:, 0] = state
        self._launch(0, run, [path, run.control, run.held, run.parameters, run.weights])
        return path

    def adjoint(self, run: "Run", path: Tensor, seeds: Tensor) -> "Gradients":
        """Return the gradients of sum(seeds * states at the frames).

        Args:
            run: What `forward` was given.
            path: What it returned.
            seeds: Shape [worlds, frames + 1, state], contiguous.
        """
        worlds, sizes = path.shape[0], self.sizes
        found = Gradients(
            state=path.new_empty(worlds, sizes.state),
            control=torch.empty_like(run.control),
            held=torch.empty_like(run.held),
            parameters=path.new_empty(worlds, sizes.parameters),
            weights=path.new_zeros(worlds, sizes.weights),
        )
        given = [path, run.control, run.held, run.parameters, run.weights, seeds]
        wanted = [found.state, found.control, found.held, found.parameters, found.weights]
        self._launch(1, run, given + wanted)
        return found

    def _launch(self, which: int, run: "Run", tensors: list[Tensor]) -> None:
        like = tensors[0]
        worlds = like.shape[0]
        if not worlds:
            return
        parts = max(min(self.threads, worlds), 1) if like.device.type == "cpu" else 1
        bounds = [worlds * part // parts for part in range(parts + 1)]
        stride = self.sizes.parameters if run.parameters.ndim == 2 else 0
        exchanged = [(tensor.view(-1), None) for tensor in tensors]

        def launch(first: int, last: int) -> None:
            key = (which, like.dtype, like.device, first, last, run.frames, run.substeps, stride)
            self._launches.get(key, lambda: Launch(
                self._compiled(like.dtype)[which], (last - first,), like.device,
                [first, run.frames, run.substeps, stride, *exchanged],
            ))(exchanged)  # fmt: skip

        if parts == 1:
            launch(0, worlds)
            return
        wp.load_module(self._compiled(like.dtype)[which].module, device=warp_device(like.device))
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self.threads)
        list(self._pool.map(launch, bounds[:-1], bounds[1:]))

    def _compiled(self, dtype: torch.dtype) -> tuple[Any, Any]:
        if dtype not in PRECISIONS:
            raise ValueError(f"a program runs in float32 or float64, not in {dtype}")
        if dtype not in self._kernels:
            head = _HEAD.format(real="double" if dtype == torch.float64 else "float")
            self._kernels[dtype] = native_kernels(head + self._texts[0], head + self._texts[1], PRECISIONS[dtype])
        return self._kernels[dtype]


def _fitting(name: str, tensor: Tensor | None, shapes: list[tuple[int, ...]], like: Tensor) -> Tensor:
    """Return a tensor in the precision of another, after its shape and device are checked; None where it is empty."""
    if tensor is None and 0 in shapes[0]:
        return like.new_zeros(shapes[0])
    if tensor is None or tuple(tensor.shape) not in shapes or tensor.device != like.device:
        found = None if tensor is None else f"{list(tensor.shape)} on {tensor.device}"
        valid = " or ".join(str(list(shape)) for shape in shapes)
        raise ValueError(f"{name}: {found}; valid: a tensor of shape {valid} on {like.device}")
    return tensor.to(like.dtype).contiguous()


def _trace(sizes: Sizes, step: Step) -> tuple[str, str]:
    """Return the texts of the forward loop and of its adjoint."""
    graph = Graph()
    inputs = Inputs(
        graph,
        graph.inputs("x", sizes.state),
        graph.inputs("u", sizes.control),
        graph.inputs("h", sizes.held),
        graph.inputs("p", sizes.parameters),
    )
    after = step(inputs)
    if len(after) != sizes.state:
        raise ValueError(f"the step returns {len(after)} values; valid: the {sizes.state} of the state")
    lengths = {"nx": sizes.state, "nu": sizes.control, "nh": sizes.held, "np": sizes.parameters}
    numbers = {**lengths, **{f"{name}_": max(length, 1) for name, length in lengths.items()}, "nw": sizes.weights}
    # The new state replaces the old one only when all of it is computed.
    forward = statements(graph, [(f"path[{sizes.state} + {i}] =", x) for i, x in enumerate(after)], _ARRAYS)
    advance = f"for (int i = 0; i < {sizes.state}; ++i) s[i] = path[i];"
    by = [*inputs.state, *inputs.control, *inputs.held, *inputs.parameters]
    gradients = pull_back(after, graph.inputs("a", sizes.state), by)
    kinds = [
        ("a[{}] =", sizes.state),
        ("gu_[{}] +=", sizes.control),
        ("gh_[{}] +=", sizes.held),
        ("gp_[{}] +=", sizes.parameters),
    ]
    lefts = [left.format(i) for left, count in kinds for i in range(count)]
    zero = graph.constant(0.0).index
    changes = [
        (left, gradient)
        for left, gradient in zip(lefts, gradients, strict=True)
        if gradient.index != zero or left.endswith(" =")
    ]
    reverse = statements(graph, changes, {**_ARRAYS, "a": "a[{}]"})
    return _FORWARD.format(body=forward, next=advance, **numbers), _ADJOINT.format(body=reverse, **numbers)


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
        path = program.forward(Run(frames, substeps, control, held, parameters, weights), state)
        ctx.program, ctx.frames, ctx.substeps = program, frames, substeps
        ctx.save_for_backward(path, control, held, parameters, weights)
        return path[:, ::substeps].clone() if substeps > 1 else path

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Any, ...]:  # type: ignore[override]
        """Return the gradients by state, control, held, parameters and weights."""
        path, control, held, parameters, weights = ctx.saved_tensors
        run = Run(ctx.frames, ctx.substeps, control, held, parameters, weights)
        found = ctx.program.adjoint(run, path, gradients[0].contiguous())
        by_parameters = found.parameters if parameters.ndim == 2 else found.parameters.sum(0)
        return None, None, None, found.state, found.control, found.held, by_parameters, found.weights.sum(0)
