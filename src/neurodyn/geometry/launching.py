# SPDX-License-Identifier: Apache-2.0
"""Launches of Warp kernels on torch tensors: recorded, ordered, as operators of torch.

Also without torch: on arrays that stay where they are, and compiled ahead of time for GPUs.
"""

import ctypes
import itertools
import os
import struct
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
import torch
import warp as wp
from torch import Tensor

_MOST = 16
_LIBRARY = torch.library.Library("neurodyn", "DEF")
_NUMBERS = itertools.count()
_HELD: WeakValueDictionary[int, Any] = WeakValueDictionary()


def operator(name: str, schema: str, run: Callable[..., Any], fake: Callable[..., Any]) -> Any:
    """Return a function of tensors as an operator `neurodyn::name` of torch.

    Args:
        name: Name of the operator.
        schema: Its arguments and results in torch's notation; other objects are passed as their `handle`.
        run: What it does, on every device.
        fake: What stands in for it on tensors without data: makes the results, and launches nothing.
    """
    _LIBRARY.define(name + schema)
    # Not torch.library.custom_op, which costs 8 microseconds more a call.
    _LIBRARY.impl(name, run, "CompositeExplicitAutograd")
    _LIBRARY.impl(name, fake, "Meta")
    torch.library.register_fake(f"neurodyn::{name}", fake, lib=_LIBRARY)
    return getattr(torch.ops.neurodyn, name).default


def takes_operator(tensor: Tensor) -> bool:
    """Return whether a call is worth an operator: not where it runs at once on a CPU, where it would cost time."""
    return tensor.device.type != "cpu" or torch.compiler.is_compiling()


class OperatorHandle:
    """Something that operators take by number.

    Attributes:
        handle: The number, under which it is found as long as it lives (`held`).
    """

    def __init__(self) -> None:
        self._hold()

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take the attributes of another one, of which this is a copy, but for the number."""
        self.__dict__.update(state)
        self._hold()

    def _hold(self) -> None:
        self.handle = next(_NUMBERS)
        _HELD[self.handle] = self


def held(number: int) -> Any:
    """Return the object of a number."""
    return _HELD[number]


@cache
def start_warp() -> None:
    """Start Warp once, without its banner (set NEURODYN_VERBOSE to see it) and without warnings of a missing GPU."""
    if os.environ.get("NEURODYN_VERBOSE"):
        wp.init()
        return
    wp.config.log_level = max(wp.config.log_level, wp.LOG_WARNING)
    with native_stderr_dropped():
        wp.init()


@contextmanager
def native_stderr_dropped() -> Iterator[None]:
    """Drop what native code writes to standard error: Warp warns of a missing GPU, its compiler of what it refuses."""
    sys.stderr.flush()
    try:
        kept = os.dup(2)
    except OSError:  # no standard error at all
        yield
        return
    sink = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(sink, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(sink)


def warp_device(device: torch.device) -> str:
    """Return Warp's name of a device."""
    return str(wp.device_from_torch(device))


def is_capturing(device: torch.device) -> bool:
    """Return whether Warp records a graph on a device."""
    return wp.device_from_torch(device).is_capturing


def warp_stream(device: torch.device) -> Any:
    """Return torch's present stream as Warp knows it, None on a CPU: kernels launched there keep their turn."""
    if device.type != "cuda":
        return None
    stream, own = torch.cuda.current_stream(device), wp.device_from_torch(device).stream
    return own if own.cuda_stream == stream.cuda_stream else wp.stream_from_torch(stream)


@contextmanager
def on_warp_stream(device: torch.device) -> Iterator[None]:
    """Let torch work on Warp's stream in a context, where others (Newton) launch kernels between torch's own.

    It waits for what torch has launched before, and what torch launches afterwards waits for it; while a graph is being
    captured on that stream, nothing outside of it is waited for.
    """
    if device.type != "cuda":
        yield
        return
    own = wp.device_from_torch(device)
    before, stream, ordered = torch.cuda.current_stream(device), wp.stream_to_torch(str(own)), not own.is_capturing
    if ordered:
        stream.wait_stream(before)
    with torch.cuda.stream(stream):
        yield
    if ordered:
        before.wait_stream(stream)


class Launch:
    """A recorded launch of a kernel whose tensors are exchanged on every call; packing all arguments is slow."""

    def __init__(
        self, kernel: Any, dim: tuple[int, ...], device: torch.device, arguments: list[Any], keep: Any = None
    ) -> None:
        """Record a launch without running it.

        Args:
            kernel: The kernel.
            dim: Numbers of threads.
            device: Torch device.
            arguments: Of the kernel; a pair of a tensor and its Warp type (None for scalars) is exchanged at each call.
            keep: What must live as long as the launch, which knows arrays and meshes by their addresses only.
        """
        self._keep = keep
        self._device = device
        self._changing = [i for i, argument in enumerate(arguments) if isinstance(argument, tuple)]
        whole = [
            wp.from_torch(_bare(x[0]), x[1], requires_grad=False) if isinstance(x, tuple) else x for x in arguments
        ]
        self._command: Any = wp.launch(kernel, dim, inputs=whole, device=warp_device(device), record_cmd=True)

    def __call__(self, tensors: list[tuple[Tensor, Any]]) -> None:
        """Launch with these tensors (and their Warp types) in place of those it was recorded with."""
        for index, (tensor, kind) in zip(self._changing, tensors, strict=True):
            self._command.set_param_at_index_from_ctype(index, wp.from_torch(_bare(tensor), kind, False, None, True))
        self._command.launch(warp_stream(self._device))


def _bare(tensor: Tensor) -> Tensor:
    """Return a tensor that never becomes part of a graph of autograd, of the same memory.

    A recorded launch keeps its last tensors, also those to which an operation writes what it returns. Were they part of
    a graph, whose operations hold the launch, graph, model and data would stay in memory for good: a collector sees no
    circle that runs through autograd.
    """
    return tensor.detach()


class Chain:
    """Recorded launches that run one after another on arrays that stay where they are.

    On a CPU the arguments are packed once and the kernels called directly: that takes less than a microsecond each,
    and unlike a graph of Warp's, whose recording takes whatever is launched meanwhile, threads do not meet in it. While
    a graph is being captured the launches join it.
    """

    def __init__(self, commands: list[Any], device: torch.device, keep: Any = None) -> None:
        """Take launches.

        Args:
            commands: What `wp.launch(..., record_cmd=True)` returned.
            device: Torch device.
            keep: What must live as long as the launches, which know tensors by their addresses only.
        """
        self._commands, self._keep = commands, keep
        self._torch_device, self._device = device, wp.device_from_torch(device)
        self._calls = [_packed(command) for command in commands] if self._device.is_cpu else []

    def __call__(self) -> None:
        """Run the launches, on CUDA in torch's present stream."""
        if self._device.is_cpu and not self._device.is_capturing:
            for kernel, bounds, arguments in self._calls:
                kernel(bounds, arguments)
            return
        stream = warp_stream(self._torch_device)
        for command in self._commands:
            command.launch(stream)


def _packed(command: Any) -> tuple[Any, Any, Any]:
    """Return the compiled kernel of a recorded launch on the CPU, and what it is called with."""
    names = [argument.label for argument in command.kernel.adj.args]
    given = command.params[1:]
    fields = [(name, type(value)) for name, value in zip(names, given, strict=True)]
    arguments = type("Arguments", (ctypes.Structure,), {"_fields_": fields})(*given)
    return command.hooks.forward, ctypes.byref(command.bounds), ctypes.byref(arguments)


class Launches:
    """The launches that were recorded last."""

    def __init__(self) -> None:
        self._launches: dict[Any, Launch] = {}

    def get(self, key: Any, make: Callable[[], Launch]) -> Launch:
        """Return the launch recorded under a key, recorded now by `make` where there is none."""
        launch = self._launches.get(key)
        if launch is None:
            if len(self._launches) >= _MOST:
                self._launches.pop(next(iter(self._launches)))
            launch = self._launches[key] = make()
        return launch


# Warp reads the annotations of these functions.
# pyright: basic, reportInvalidTypeForm=false, reportOperatorIssue=false, reportArgumentType=false


def table_kernel(text: str) -> Any:
    """Return the kernel of a text that sees the number of its thread, `thread`, and `table.data`."""

    @wp.func_native(text)
    def body(thread: int, table: wp.array(dtype=wp.uint64)) -> None: ...

    @wp.kernel(enable_backward=False, module="unique")
    def kernel(table: wp.array(dtype=wp.uint64)) -> None:
        body(wp.tid(), table)

    return kernel


class FixedLaunch:
    """A recorded launch of such a kernel: it can be captured in a graph.

    Attributes:
        command: What Warp recorded.
        words: The table.
    """

    def __init__(self, kernel: Any, threads: int, words: list[int], device: str) -> None:
        """Record a launch without running it.

        Args:
            kernel: What `table_kernel` returned.
            threads: Number of threads.
            words: The table.
            device: Warp device.
        """
        self.words = words
        self._table = wp.array(np.array(words, dtype=np.uint64), dtype=wp.uint64, device=device)
        self.command: Any = wp.launch(kernel, threads, inputs=[self._table], device=device, record_cmd=True)

    def update(self, words: list[int]) -> None:
        """Exchange the words."""
        self.words = words
        self._table.assign(np.array(words, dtype=np.uint64))


_REGISTERS, _FRAME = 0x2F, 0x11
"""Numbers of NVIDIA's attributes of a kernel: registers of a thread, and bytes of its frame in local memory."""

_SIZED = 0x04
"""Form of an attribute that says how long it is."""


def compile_for_cuda(kernels: Iterable[Any], arch: int, folder: str | Path) -> list[Path]:
    """Compile Warp kernels to machine code of a GPU.

    Args:
        kernels: The kernels; of generic ones, as many overloads as have been launched so far.
        arch: Compute capability times ten: 80 (A100), 90 (H100) ...
        folder: Where sources and machine code go.

    Returns:
        Files of machine code, one for each module of kernels.

    Raises:
        RuntimeError: One does not compile.
    """
    start_warp()
    modules = dict.fromkeys(kernel.module for kernel in kernels)
    return [path for module in modules for path in wp.compile_aot_module(module, arch=arch, module_dir=folder)]


@dataclass(frozen=True)
class KernelResources:
    """What a thread of a kernel needs.

    Attributes:
        registers: Registers of 32 bits.
        local: Local memory, off the chip, for what does not fit into registers [bytes].
    """

    registers: int
    local: int


def kernel_resources(path: str | Path) -> dict[str, KernelResources]:
    """Return what each kernel of a file of machine code (cubin) needs, by its name in the file.

    Raises:
        ValueError: The file is no machine code.
    """
    data = Path(path).read_bytes()
    if data[:4] != b"\x7fELF":
        raise ValueError(f"{path} is no machine code")
    sections = _sections(data)
    symbols = _symbols(data, sections)
    found: dict[str, dict[int, int]] = {}
    for _, start, size, _ in (section for section in sections if section[0] == ".nv.info"):
        at = start
        while at < start + size:
            form, attribute, length = struct.unpack_from("<BBH", data, at)
            at += 4
            if form == _SIZED:
                if attribute in (_REGISTERS, _FRAME):
                    symbol, value = struct.unpack_from("<II", data, at)
                    found.setdefault(symbols[symbol], {})[attribute] = value
                at += length
    return {
        name: KernelResources(values[_REGISTERS], values.get(_FRAME, 0))
        for name, values in found.items()
        if _REGISTERS in values
    }


def _sections(data: bytes) -> list[tuple[str, int, int, int]]:
    """Return name, offset, size and type of each section."""
    (table,) = struct.unpack_from("<Q", data, 0x28)
    entry, count, names = struct.unpack_from("<HHH", data, 0x3A)
    raw = [struct.unpack_from("<IIQQQQ", data, table + entry * i) for i in range(count)]
    base = raw[names][4]
    return [(_text(data, base + name), offset, size, kind) for name, kind, _, _, offset, size in raw]


def _symbols(data: bytes, sections: list[tuple[str, int, int, int]]) -> list[str]:
    """Return the names of all symbols, in order."""
    where = {name: (offset, size) for name, offset, size, _ in sections}
    (start, size), (names, _) = where[".symtab"], where[".strtab"]
    return [_text(data, names + struct.unpack_from("<I", data, at)[0]) for at in range(start, start + size, 24)]


def _text(data: bytes, start: int) -> str:
    return data[start : data.index(b"\0", start)].decode()
