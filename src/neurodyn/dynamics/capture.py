# SPDX-License-Identifier: Apache-2.0
"""Frames with fixed buffers, for loops without allocation, steps and gradients captured as CUDA graphs.

Also copies, writes, saves and restores trees of tensors such as carries.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad

from neurodyn.core.errors import InputError, NeurodynError
from neurodyn.dynamics.batch import Environment, WorldParameters


@runtime_checkable
class FixedFrame(Protocol):
    """One frame of a batch of worlds without gradients; it holds the history of the worlds.

    The caller writes `q`, `qd` and `torque`, calls `run`, and reads `q_next` and `qd_next`.

    Attributes:
        q: Positions at the start [rad or m], shape [worlds, nq].
        qd: Velocities at the start [rad/s or m/s], shape [worlds, nv].
        torque: Torques during the frame [N m or N], shape [worlds, nu].
        q_next: Positions one frame later, shape [worlds, nq].
        qd_next: Velocities one frame later, shape [worlds, nv].
        capturable: Whether `run` consists of Warp launches only, which a graph can capture.
    """

    q: Tensor
    qd: Tensor
    torque: Tensor
    q_next: Tensor
    qd_next: Tensor
    capturable: bool

    def run(self) -> None:
        """Predict the frame. During a capture, its launches become part of the graph."""
        ...

    def refresh(self) -> None:
        """Update to weights of the model that have changed or moved since the last run."""
        ...

    def reset(self, mask: Tensor | None) -> None:
        """Clear the history of the worlds where `mask` is true, shape [worlds]; of all for None."""
        ...

    def in_environment(self, environment: Environment) -> "FixedFrame":
        """Return the frame in another environment with the same history: this one, or one with other buffers."""
        ...


class KeptFrames:
    """The last frames of one model, cached per thread so that several threads can step it; copies start empty."""

    def __init__(self) -> None:
        self._local = threading.local()

    def __deepcopy__(self, memo: Any) -> "KeptFrames":
        return KeptFrames()

    def __reduce__(self) -> Any:
        return KeptFrames, ()

    def get(self, key: Any, make: Callable[[], Any]) -> Any:
        """Return the frame of a key, created on first request."""
        frames: dict[Any, Any] = self._local.__dict__
        if key not in frames:
            while len(frames) >= _MOST:
                frames.pop(next(iter(frames)))
            with torch.inference_mode(False):  # buffers have to be writable in later calls of any mode
                frames[key] = make()
        return frames[key]

    def drop(self, key: Any) -> None:
        """Forget the frame of a key."""
        self._local.__dict__.pop(key, None)


_MOST = 4
"""Maximum number of cached frames."""


def wants_torch(tensors: Iterable[Tensor], parameters: Iterable[dict[str, Any]]) -> bool:
    """Return whether a step with these inputs and parameters needs torch: for gradients, tracing or transforms."""
    if torch.is_grad_enabled():
        if any(tensor.requires_grad for tensor in tensors):
            return True
        if any(p is not None and p.requires_grad for group in parameters for p in group.values()):
            return True
    return (
        torch.compiler.is_compiling()
        or torch._C._get_tracing_state() is not None
        or torch._C._are_functorch_transforms_active()
        or forward_ad._current_level >= 0
        or (torch.cuda.is_available() and torch.cuda.is_current_stream_capturing())  # whose graph outlives the buffers
        or any(type(tensor) not in _PLAIN for tensor in tensors)
    )


_PLAIN = (Tensor, nn.Parameter)


StepFunction = Callable[..., tuple[Any, Any]]
"""A step: from state and inputs to the next state and outputs."""

_WARM_UP = 3
"""Calls before the capture, in which libraries select kernels and allocate memory."""


class CaptureError(NeurodynError):
    """Raised if a step does not repeat the same operations in every call, so that a graph cannot represent it."""


@runtime_checkable
class RecordedGraph(Protocol):
    """A recorded call."""

    def replay(self) -> None:
        """Repeat the call on the same memory."""
        ...


Recorder = Callable[[Callable[[], None], torch.device, Sequence[torch.Generator]], RecordedGraph]
"""Records a call on a device; the generators are those that it draws random numbers from."""


def cuda_graph(work: Callable[[], None], device: torch.device, generators: Sequence[torch.Generator]) -> RecordedGraph:
    """Record a call as a CUDA graph, including Warp kernels."""
    import warp as wp

    from neurodyn.geometry.launching import start_warp, warp_stream

    start_warp()
    side = torch.cuda.Stream(device)
    side.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(side):
        for _ in range(_WARM_UP):
            work()
    torch.cuda.current_stream(device).wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    for generator in generators:
        graph.register_generator_state(generator)
    # Warp has to know of the capture by torch, during which it must not load modules or free memory.
    with torch.cuda.graph(graph, stream=side), wp.ScopedCapture(stream=warp_stream(device), external=True):
        work()
    return graph


class CapturedStep:
    """A recorded step with its own buffer for the state, `state`, which every call updates by a replay."""

    def __init__(
        self,
        step: StepFunction,
        state: Any,
        inputs: tuple[Any, ...],
        *,
        device: torch.device,
        generators: Sequence[torch.Generator] = (),
        record: Recorder = cuda_graph,
    ) -> None:
        """Record a step.

        Args:
            step: The step.
            state: Initial state.
            inputs: Inputs with the shapes of later calls.
            device: Device of all tensors.
            generators: Generators that the step draws from.
            record: Records the call.

        Raises:
            CaptureError: The step changes a part of the state that is not a tensor.
        """
        self.state, self._inputs = copy_of(state), copy_of(inputs)
        self._outputs: Any = None

        def work() -> None:
            after, outputs = step(self.state, *self._inputs)
            if not _same(_constants(after), _constants(self.state)):
                raise CaptureError("the state changes in something that is no tensor; valid: tensors alone")
            if self._outputs is None:
                self._outputs = copy_of(outputs)
            write(self._outputs, outputs)
            write(self.state, after)

        self._recording = record(work, device, generators)
        write(self.state, state)  # undo the warm-up

    def fits(self, state: Any, inputs: tuple[Any, ...]) -> bool:
        """Return whether state and inputs differ from the recorded ones only in the values of their tensors."""
        pairs = ((state, self.state), (inputs, self._inputs))
        return all(_same(_constants(a), _constants(b)) and _like(a) == _like(b) for a, b in pairs)

    def restart(self, state: Any) -> None:
        """Set the state."""
        write(self.state, state)

    def __call__(self, *inputs: Any) -> Any:
        """Run a step, and return copies of its outputs."""
        write(self._inputs, inputs)
        self._recording.replay()
        return copy_of(self._outputs)


class CapturedGradient:
    """The gradient of a loss over batches of one shape, recorded once and replayed."""

    def __init__(
        self,
        loss: Callable[[Any], Callable[[], Tensor]],
        batch: Any,
        parameters: Iterable[nn.Parameter],
        *,
        record: Recorder = cuda_graph,
    ) -> None:
        """Record the gradient.

        Args:
            loss: Takes the buffers of later batches, a tree like `batch`; returns the function that computes the loss
                of their contents without reading a number from the device.
            batch: A tree of tensors.
            parameters: Parameters to differentiate with respect to.
            record: Records a call.
        """
        self._buffers, self._parameters = copy_of(batch), [p for p in parameters if p.requires_grad]
        self._gradients = [torch.zeros_like(p) for p in self._parameters]
        device, compute = self._gradients[0].device, loss(self._buffers)
        self._loss = torch.zeros((), device=device)

        def work() -> None:
            self._take()
            torch._foreach_zero_(self._gradients)  # pyright: ignore[reportPrivateImportUsage]
            value = compute()
            value.sum().backward()
            self._loss.copy_(value.detach().mean())

        self._recording = record(work, device, ())

    def _take(self) -> None:
        for parameter, gradient in zip(self._parameters, self._gradients, strict=True):
            parameter.grad = gradient

    def __call__(self, batch: Any) -> Tensor:
        """Set the gradients of the parameters; return the mean loss, shape []."""
        write(self._buffers, batch)
        self._take()
        self._recording.replay()
        return self._loss.clone()


def copy_of(tree: Any) -> Any:
    """Return a copy of a tree, with its tensors copied."""
    tensors = list(_tensors(tree))
    fresh = [torch.empty_like(tensor, memory_format=torch.contiguous_format) for tensor in tensors]
    if tensors:
        torch._foreach_copy_(fresh, tensors)  # pyright: ignore[reportPrivateImportUsage]
    return _rebuild(tree, iter(fresh))


def detach(tree: Any) -> Any:
    """Return a tree with its tensors detached, on the same memory."""
    return _rebuild(tree, (tensor.detach() for tensor in _tensors(tree)))


def write(target: Any, source: Any) -> None:
    """Copy the tensors of `source` into the tensors of `target`, a tree with the same structure."""
    pairs = [(a, b) for a, b in zip(_tensors(target), _tensors(source), strict=True) if not _is_same(a, b)]
    if pairs:
        # Through temporaries, because sources and targets may overlap.
        fresh = copy_of([b for _, b in pairs])
        torch._foreach_copy_([a for a, _ in pairs], fresh)  # pyright: ignore[reportPrivateImportUsage]


def _is_same(a: Tensor, b: Tensor) -> bool:
    return not a.is_meta and a.data_ptr() == b.data_ptr() and a.stride() == b.stride()


def _same(constants: list[Any], others: list[Any]) -> bool:
    return len(constants) == len(others) and all(a is b or a == b for a, b in zip(constants, others, strict=True))


def _like(tree: Any) -> list[tuple[torch.Size, torch.dtype]]:
    return [(tensor.shape, tensor.dtype) for tensor in _tensors(tree)]


def parts_of(tree: Any) -> list[tuple[Any, Any]] | None:
    """Return the children of a node by name or index; None for a leaf."""
    if isinstance(tree, tuple | list):
        return list(enumerate(tree))
    if isinstance(tree, dict):
        return list(tree.items())
    if isinstance(tree, WorldParameters):
        return None  # edited in place and saved by the code that draws robots
    if is_dataclass(tree) and not isinstance(tree, type):
        return [(part.name, getattr(tree, part.name)) for part in fields(tree)]
    return None


def _tensors(tree: Any) -> Iterator[Tensor]:
    if isinstance(tree, Tensor):
        yield tree
        return
    for _, part in parts_of(tree) or ():
        yield from _tensors(part)


def _constants(tree: Any) -> list[Any]:
    """Return the leaves of a tree that are not tensors."""
    if isinstance(tree, Tensor):
        return []
    parts = parts_of(tree)
    return [tree] if parts is None else [leaf for _, part in parts for leaf in _constants(part)]


def _rebuild(tree: Any, tensors: Iterator[Tensor]) -> Any:
    if isinstance(tree, Tensor):
        return next(tensors)
    parts = parts_of(tree)
    if parts is None:
        return tree
    return with_parts(tree, {name: _rebuild(part, tensors) for name, part in parts})


def with_parts(tree: Any, values: dict[Any, Any]) -> Any:
    """Return a node with its children replaced; `values` has the names of `parts_of`."""
    if isinstance(tree, dict):
        return values
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*values.values())
    if isinstance(tree, tuple | list):
        return type(tree)(values.values())
    made = object.__new__(type(tree))
    made.__dict__.update(values)
    return made


_OWN = "__own__"
"""Placeholder of a part without state, which `restore_tree` takes from the template."""


def save_tree(tree: Any) -> Any:
    """Return tensors, numbers, strings and None in a tree of dataclasses, tuples, lists and dicts, as nested dicts.

    Their keys are names or indices, for `core.artifacts.write_tree`.
    """
    if tree is None or isinstance(tree, bool | int | float | str):
        return tree
    if isinstance(tree, Tensor):
        return tree.detach().clone()
    parts = parts_of(tree)
    saved = {} if parts is None else {str(name): save_tree(part) for name, part in parts}
    return saved if any(not _is_own(part) for part in saved.values()) else _OWN


def restore_tree(template: Any, saved: Any) -> Any:
    """Return a tree with the structure of `template` and the state of `saved`, which `save_tree` returned.

    Raises:
        InputError: `saved` has another structure.
    """
    if isinstance(saved, Tensor):
        return saved.to(template.device) if isinstance(template, Tensor) else saved
    if _is_own(saved):
        return template
    if not isinstance(saved, dict):
        return saved
    parts = parts_of(template)
    if parts is None or {str(name) for name, _ in parts} != saved.keys():
        raise InputError(
            f"saved worlds hold {', '.join(sorted(saved))}, which is not what {type(template).__name__} holds"
        )
    return with_parts(template, {name: restore_tree(part, saved[str(name)]) for name, part in parts})


def _is_own(saved: Any) -> bool:
    return isinstance(saved, str) and saved == _OWN
