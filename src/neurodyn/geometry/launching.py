# SPDX-License-Identifier: Apache-2.0
"""Warp started without its banner, and recorded launches of its kernels on torch tensors."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
import warp as wp
from torch import Tensor

_MOST = 16


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
        whole = [wp.from_torch(*x, requires_grad=False) if isinstance(x, tuple) else x for x in arguments]
        self._command: Any = wp.launch(kernel, dim, inputs=whole, device=warp_device(device), record_cmd=True)

    def __call__(self, tensors: list[tuple[Tensor, Any]]) -> None:
        """Launch with these tensors (and their Warp types) in place of those it was recorded with."""
        for index, (tensor, kind) in zip(self._changing, tensors, strict=True):
            self._command.set_param_at_index_from_ctype(index, wp.from_torch(tensor, kind, False, None, True))
        stream = wp.stream_from_torch(torch.cuda.current_stream(self._device)) if self._device.type == "cuda" else None
        self._command.launch(stream)


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
