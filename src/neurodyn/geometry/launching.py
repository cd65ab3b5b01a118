# SPDX-License-Identifier: Apache-2.0
"""Launches of Warp kernels on torch tensors: recorded, stream-ordered, and as torch operators.

Also launches on fixed arrays without torch. Warp is imported by the first launch: many verbs never need it.
"""

import ctypes
import itertools
import os
import stat
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, TypeVar
from weakref import WeakKeyDictionary, WeakValueDictionary

import numpy as np
import torch
from torch import Tensor

T = TypeVar("T")

_MOST_LAUNCHES = 16
_LIBRARY = torch.library.Library("neurodyn", "DEF")
_HANDLES = itertools.count()
_OBJECTS: WeakValueDictionary[int, Any] = WeakValueDictionary()
_STACK_SIZES: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
_USUAL_STACK = 1 << 21  # stack that every thread has available [bytes]
_CALL_STACK = 1 << 20  # stack for calls, in addition to the arrays of a kernel


def operator(name: str, schema: str, run: Callable[..., Any], fake: Callable[..., Any] = lambda *_: None) -> Any:
    """Register a function of tensors as the torch operator `neurodyn::name` and return it.

    The schema lists arguments and results in torch's notation; other objects are passed by their `handle`. `fake`
    returns the results on tensors without data; its default is for operators that only write to their arguments.
    """
    _LIBRARY.define(name + schema)
    # Not torch.library.custom_op, which costs 8 microseconds more a call.
    _LIBRARY.impl(name, run, "CompositeExplicitAutograd")
    torch.library.register_fake(f"neurodyn::{name}", fake, lib=_LIBRARY)  # and on the device meta
    return getattr(torch.ops.neurodyn, name).default


def takes_operator(tensor: Tensor) -> bool:
    """Return whether to call through an operator: not on a CPU outside compilation, where it only adds overhead."""
    return tensor.device.type != "cpu" or torch.compiler.is_compiling()


class OperatorHandle:
    """Base class of objects passed to operators by number (`handle`); see `object_of_handle`."""

    def __init__(self) -> None:
        self._register()

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore the attributes of a copied or unpickled object under a new handle."""
        self.__dict__.update(state)
        self._register()

    def _register(self) -> None:
        self.handle = next(_HANDLES)
        _OBJECTS[self.handle] = self


def object_of_handle(number: int) -> Any:
    """Return the object of a handle."""
    return _OBJECTS[number]


@cache
def start_warp() -> None:
    """Initialise Warp once, without banner (unless NEURODYN_VERBOSE is set) and without warnings of a missing GPU.

    Without a user's cache folder, for instance without a home folder, kernels are cached in a temporary one.
    """
    if os.environ.get("NEURODYN_VERBOSE"):
        _initialise()
        return
    import warp as wp

    wp.config.log_level = max(wp.config.log_level, wp.LOG_WARNING)
    with drop_native_output(2):
        _initialise()


def _private_temporary_folder() -> Path:
    """Return a temporary folder that nobody else can write to, because its contents are executed."""
    user = getattr(os, "getuid", lambda: 0)()
    folder = Path(tempfile.gettempdir()) / f"neurodyn-{user}"
    folder.mkdir(mode=0o700, exist_ok=True)
    status = folder.lstat()
    theirs = status.st_uid != user or not stat.S_ISDIR(status.st_mode) or status.st_mode & 0o022
    return Path(tempfile.mkdtemp(prefix="neurodyn-")) if theirs else folder


def _initialise() -> None:
    import warp as wp

    asked = wp.config.kernel_cache_dir or os.environ.get("WARP_CACHE_PATH")
    try:
        wp.init()
    except OSError:
        if asked:
            raise
        wp.config.kernel_cache_dir = str(_private_temporary_folder() / "warp")
        wp.init()


@contextmanager
def drop_native_output(*streams: int) -> Iterator[None]:
    """Discard what native code writes to standard output (1) or error (2), such as Warp's missing-GPU warning."""
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        kept = [(number, os.dup(number)) for number in streams]
    except OSError:  # there is no such stream
        yield
        return
    sink = os.open(os.devnull, os.O_WRONLY)
    try:
        for number in streams:
            os.dup2(sink, number)
        yield
    finally:
        for number, copy in kept:
            os.dup2(copy, number)
            os.close(copy)
        os.close(sink)


def warp_device(device: torch.device) -> str:
    """Return Warp's name of a device."""
    import warp as wp

    return str(wp.device_from_torch(device))


def is_capturing(device: torch.device) -> bool:
    """Return whether Warp is capturing a graph on a device."""
    import warp as wp

    return wp.device_from_torch(device).is_capturing


def warp_stream(device: torch.device) -> Any:
    """Return torch's current stream as a Warp stream so that launches stay in order; None on a CPU."""
    if device.type != "cuda":
        return None
    import warp as wp

    stream, own = torch.cuda.current_stream(device), wp.device_from_torch(device).stream
    return own if own.cuda_stream == stream.cuda_stream else _register_stream(stream)


@cache
def _register_stream(stream: torch.cuda.Stream) -> Any:
    """Return torch's stream as Warp's, cached: Warp forgets a stream, and a capture on it, when its own object dies."""
    import warp as wp

    return wp.stream_from_torch(stream)


@contextmanager
def on_warp_stream(device: torch.device) -> Iterator[None]:
    """Run torch on Warp's stream within a context in which other code (Newton) launches kernels between torch's.

    Both streams wait for each other at entry and exit, except during graph capture.
    """
    if device.type != "cuda":
        yield
        return
    import warp as wp

    own = wp.device_from_torch(device)
    before, stream, ordered = torch.cuda.current_stream(device), wp.stream_to_torch(str(own)), not own.is_capturing
    if ordered:
        stream.wait_stream(before)
    with torch.cuda.stream(stream):
        yield
    if ordered:
        before.wait_stream(stream)


class Launch:
    """A recorded kernel launch whose tensors are exchanged on every call; packing all arguments anew is slow."""

    def __init__(
        self, kernel: Any, dim: tuple[int, ...], device: torch.device, arguments: list[Any], keep: Any = None
    ) -> None:
        """Record a launch of `dim` threads without running it.

        Arguments that are pairs of a tensor and its Warp type (None for scalars) are exchanged on each call. `keep` is
        kept alive with the launch, which holds arrays and meshes by address only.
        """
        import warp as wp

        self._keep = keep
        self._device = device
        self._changing = [i for i, argument in enumerate(arguments) if isinstance(argument, tuple)]
        whole = [
            wp.from_torch(_bare(x[0]), x[1], requires_grad=False) if isinstance(x, tuple) else x for x in arguments
        ]
        self._command: Any = wp.launch(kernel, dim, inputs=whole, device=warp_device(device), record_cmd=True)

    def __call__(self, tensors: list[tuple[Tensor, Any]]) -> None:
        """Launch with these (tensor, Warp type) pairs in place of the recorded ones."""
        import warp as wp

        for index, (tensor, kind) in zip(self._changing, tensors, strict=True):
            self._command.set_param_at_index_from_ctype(index, wp.from_torch(_bare(tensor), kind, False, None, True))
        self._command.launch(warp_stream(self._device))


def _bare(tensor: Tensor) -> Tensor:
    """Return the tensor detached from autograd, on the same memory.

    A recorded launch keeps its last tensors, outputs included. If they belonged to an autograd graph whose operations
    hold the launch, then graph, model and data would never be freed: the garbage collector does not see cycles through
    autograd.
    """
    return tensor.detach()


class Chain:
    """Recorded launches that run in sequence on fixed arrays.

    On a CPU the arguments are packed once and the kernels are called directly, in less than a microsecond each. Unlike
    a Warp graph, whose recording captures every concurrent launch, this is safe with several threads. During graph
    capture the launches join the graph.
    """

    def __init__(self, commands: list[Any], device: torch.device, keep: Any = None) -> None:
        """Store recorded launches; `keep` is kept alive with them, because they hold tensors by address only."""
        import warp as wp

        self._commands, self._keep = commands, keep
        self._torch_device, self._device = device, wp.device_from_torch(device)
        self._calls = [_pack(command) for command in commands] if self._device.is_cpu else []

    def __call__(self) -> None:
        """Run the launches, on CUDA in torch's current stream."""
        if self._device.is_cpu and not self._device.is_capturing:
            for kernel, bounds, arguments in self._calls:
                kernel(bounds, arguments)
            return
        stream = warp_stream(self._torch_device)
        for command in self._commands:
            command.launch(stream)


def _pack(command: Any) -> tuple[Any, Any, Any]:
    """Return the compiled CPU kernel of a recorded launch, its bounds and its arguments."""
    names = [argument.label for argument in command.kernel.adj.args]
    given = command.params[1:]
    fields = [(name, type(value)) for name, value in zip(names, given, strict=True)]
    arguments = type("Arguments", (ctypes.Structure,), {"_fields_": fields})(*given)
    return cpu_kernel(command), ctypes.byref(command.bounds), ctypes.byref(arguments)


def set_stack_size(kernel: Any, size: int) -> None:
    """Set the maximum stack size that a kernel needs on a CPU [bytes]."""
    _STACK_SIZES[kernel] = size


def cpu_kernel(command: Any) -> Callable[..., None]:
    """Return the compiled CPU kernel of a recorded launch; a large one runs in a thread with enough stack."""
    run, room = command.hooks.forward, _STACK_SIZES.get(command.kernel, 0)
    return run if room <= _USUAL_STACK else _LargeStackCall(run, room + _CALL_STACK)


class _LargeStackCall:
    """Runs a function in a thread with a large stack, of which the system allocates only what is used."""

    _starting = threading.Lock()

    def __init__(self, run: Callable[..., None], size: int) -> None:
        self._run, self._room = run, size

    def __call__(self, *arguments: Any) -> None:
        thread = threading.Thread(target=self._run, args=arguments)
        with self._starting:
            before = threading.stack_size(-(-self._room // 4096) * 4096)
            try:
                thread.start()
            finally:
                threading.stack_size(before)
        thread.join()


class Launches:
    """A bounded cache of recorded launches; the oldest is dropped first."""

    def __init__(self) -> None:
        self._launches: dict[Any, Any] = {}

    def get(self, key: Any, make: Callable[[], T]) -> T:
        """Return the launch of a key; `make` records it if there is none."""
        launch = self._launches.get(key)
        if launch is None:
            if len(self._launches) >= _MOST_LAUNCHES:
                self._launches.pop(next(iter(self._launches)))
            launch = self._launches[key] = make()
        return launch


# Warp reads the annotations of these functions.
# pyright: basic, reportInvalidTypeForm=false, reportOperatorIssue=false, reportArgumentType=false


def table_kernel(source: str) -> Any:
    """Return the kernel of code that uses its thread number, `thread`, and `table.data`."""
    import warp as wp

    @wp.func_native(source)
    def body(thread: int, table: wp.array(dtype=wp.uint64)) -> None: ...

    @wp.kernel(enable_backward=False, module="unique")
    def kernel(table: wp.array(dtype=wp.uint64)) -> None:
        body(wp.tid(), table)

    return kernel


class FixedLaunch:
    """A recorded launch of a `table_kernel`; it can be captured in a graph."""

    def __init__(self, kernel: Any, threads: int, words: list[int], device: str) -> None:
        """Record a launch on a Warp device without running it; `words` is the table."""
        import warp as wp

        self.words = words
        self._table = wp.array(np.array(words, dtype=np.uint64), dtype=wp.uint64, device=device)
        self.command: Any = wp.launch(kernel, threads, inputs=[self._table], device=device, record_cmd=True)

    def update(self, words: list[int]) -> None:
        """Replace the table."""
        self.words = words
        self._table.assign(np.array(words, dtype=np.uint64))
