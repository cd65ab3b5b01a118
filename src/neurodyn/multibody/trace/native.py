# SPDX-License-Identifier: Apache-2.0
"""Execution of compiled programs: Warp kernels over blocks of worlds, torch operators, and memory for tapes."""

import ctypes
import struct
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from neurodyn.core.errors import notice
from neurodyn.geometry.launching import cpu_kernel, object_of_handle, operator, set_stack_size

# Warp reads the annotations of these functions.
# pyright: basic, reportInvalidTypeForm=false, reportOperatorIssue=false, reportArgumentType=false


@cache
def _table(words: int) -> Any:
    import warp as wp

    return wp.types.vector(length=words, dtype=wp.uint64)


def block_kernel(text: str, words: int, cuda: bool, room: int = 0) -> Any:
    """Return the kernel, in its own module, of code that uses `table` and runs the blocks `begin` to `end - 1`.

    `words` is the length of the table. With `cuda` each thread runs one block; otherwise one thread runs all blocks, on
    a stack of at least `room` bytes.
    """
    import warp as wp

    table_type = _table(words)

    @wp.func_native(text)
    def body(begin: int, end: int, table: table_type) -> None: ...

    if cuda:

        @wp.kernel(enable_backward=False, module="unique")
        def threads(first: int, last: int, table: table_type) -> None:
            block = first + wp.tid()
            body(block, block + 1, table)

        return threads

    # At Warp's usual level: each level of optimisation has precompiled headers of its own, which take seconds to make.
    @wp.kernel(enable_backward=False, module="unique")
    def loop(first: int, last: int, table: table_type) -> None:
        body(first, last, table)

    set_stack_size(loop, room)
    return loop


_SECONDS_AN_OPERATION = 3e-4
"""Time to compile an operation of a program, measured with those of an ant on one core [s]."""
_HEADERS = 2.5
"""Time in which Warp precompiles its headers, anew in each thread that compiles [s]."""
_SILENCE = 2.0
"""Shortest compilation that is announced [s]."""


def announce(kernel: Any, operations: int) -> None:
    """Give notice that a kernel for the CPU is about to be compiled, and how long that takes, unless it is cached."""
    seconds = _SECONDS_AN_OPERATION * operations
    if seconds >= _SILENCE and not _in_cache(kernel):
        notice(f"compiling a model for this machine, once: {seconds:.0f} s on a free core")


def _in_cache(kernel: Any) -> bool:
    """Return whether Warp's cache, whose names are hashes of the code, has a kernel for the CPU; if unsure, True."""
    import warp as wp

    try:
        name = kernel.module.get_module_identifier(1)  # threads of a block on a CPU
    except Exception:  # another version of Warp
        return True
    return (Path(str(wp.config.kernel_cache_dir)) / name).is_dir()


def worth_a_thread(operations: int) -> bool:
    """Return whether a program takes longer to compile than another thread needs before it can begin."""
    return _SECONDS_AN_OPERATION * operations > _HEADERS


def load_side_by_side(first: Any, second: Any) -> None:
    """Compile two kernels for the CPU, the first in another thread, where they are not in Warp's cache."""
    import warp as wp

    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(wp.force_load, "cpu", [first.module])
        wp.force_load("cpu", [second.module])
        other.result()


def recorded_launch(kernel: Any, words: list[int], threads: int, blocks: int, device: str, block_dim: int = 0) -> Any:
    """Record a launch of a `block_kernel` with this table; `block_dim` threads per GPU block, 0 for Warp's default."""
    import warp as wp

    given = [0, blocks, _table(len(words))(*words)]
    return wp.launch(kernel, threads, inputs=given, device=device, record_cmd=True, block_dim=block_dim or None)


class CpuLaunch:
    """A compiled kernel on the CPU; safe to call from several threads at once."""

    def __init__(self, kernel: Any, words: int) -> None:
        # A recorded launch packs its arguments anew in every call, which takes longer than a small program.
        self._command: Any = recorded_launch(kernel, [0] * words, 1, 0, "cpu")
        self._bounds = ctypes.byref(self._command.bounds)
        self._run = cpu_kernel(self._command)
        self._arguments = struct.Struct(f"=ii{words}q")

    def __call__(self, first: int, last: int, words: list[int]) -> None:
        """Run the blocks `first` to `last - 1`."""
        self._run(self._bounds, self._arguments.pack(first, last, *words))


class CudaLaunch:
    """A kernel on a GPU. The words are kernel arguments, so a captured graph keeps their values."""

    def __init__(self, kernel: Any, words: int, threads: int, block: int, device: str) -> None:
        self._command: Any = recorded_launch(kernel, [0] * words, threads, threads, device, block)
        self._words = struct.Struct(f"={words}q")

    def __call__(self, words: list[int], stream: Any) -> None:
        """Launch on a stream."""
        self._words.pack_into(self._command.params[3], 0, *words)
        self._command.launch(stream)


def _rollout(
    state: Tensor, control: Tensor, given: Tensor, parameters: Tensor, weights: Tensor, program: int, frames: int,
    substeps: int,
) -> Tensor:  # fmt: skip
    native = object_of_handle(program)
    run = native.run(
        state, frames=frames, substeps=substeps, control=control, held=given, parameters=parameters, weights=weights
    )
    return native.forward(run, state)


def _fake(
    state: Tensor, control: Tensor, given: Tensor, parameters: Tensor, weights: Tensor, program: int, frames: int,
    substeps: int,
) -> Tensor:  # fmt: skip
    return state.new_empty(state.shape[0], frames + 1, state.shape[1])


rollout_operator = operator(
    "rollout",
    "(Tensor state, Tensor control, Tensor held, Tensor parameters, Tensor weights, int program, int frames, "
    "int substeps) -> Tensor",
    _rollout,
    _fake,
)
"""Returns the states at the frames of a program, shape [worlds, frames + 1, state], without gradients."""

_LEAST = 1 << 20
_MOST = 1 << 28
_spare_buffers: list[np.ndarray] = []
_lock = threading.RLock()  # the garbage collector may return a buffer while this thread takes one


def tape_memory(like: Tensor, size: int) -> Tensor:
    """Return `size` uninitialised numbers of the kind of `like`; on a CPU, up to 256 MiB of buffers are reused."""
    count = size * like.element_size()
    if count < _LEAST or not like.is_cpu:
        return like.new_empty(size)
    buffer = _take_buffer(count)
    view = buffer[:count]
    weakref.finalize(view, _return_buffer, buffer).atexit = False
    return torch.from_numpy(view).view(like.dtype)


def _take_buffer(count: int) -> np.ndarray:
    """Return the smallest spare buffer that is large enough, or a new one."""
    with _lock:
        fitting = [i for i, buffer in enumerate(_spare_buffers) if buffer.nbytes >= count]
        if fitting:
            return _spare_buffers.pop(min(fitting, key=lambda i: _spare_buffers[i].nbytes))
    # Aligned to vector registers; numpy requests huge pages, torch does not.
    whole = np.empty(count + 64, dtype=np.uint8)
    start = -whole.ctypes.data % 64
    return whole[start : start + count]


def _return_buffer(buffer: np.ndarray) -> None:
    """Keep a buffer for reuse; drop the smallest ones beyond the memory limit."""
    if buffer.nbytes > _MOST:
        return
    with _lock:
        _spare_buffers.append(buffer)
        _spare_buffers.sort(key=lambda x: x.nbytes)
        while sum(x.nbytes for x in _spare_buffers) > _MOST:
            _spare_buffers.pop(0)
