# SPDX-License-Identifier: Apache-2.0
"""Flags that say what of the machine a verb uses."""

import contextlib
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

from tyro.constructors import PrimitiveConstructorSpec

from neurodyn.cli.terminal.choice import read_by
from neurodyn.core.errors import InputError

if TYPE_CHECKING:
    from neurodyn.core.workers import Executor

MOST_THREADS = 4096
"""More than any machine has cores."""


def _count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= MOST_THREADS:
        raise InputError(f"--threads is {text!r}; valid: a whole number from 1 to {MOST_THREADS:,}")
    return int(text)


Threads = Annotated[int, read_by(_count, "N", int)] | None
"""How many cores a verb uses; None for its default."""


def _device(name: str) -> str:
    if name != "cpu":  # which is there without torch, whose import takes a second
        from neurodyn.learn.devices import require_device

        try:
            require_device(name)
        except InputError as error:
            raise InputError(f"--{error}") from None
    return name


Device = Annotated[str, read_by(_device, "cpu|cuda|cuda:N", str)]
"""Where a verb computes: a torch device that is there."""


def _gpus(given: list[str]) -> tuple[int, ...]:
    import torch

    found = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if not found:
        raise InputError("--gpu-ids: torch finds no CUDA GPU; valid: --device cpu, here")
    if given == ["all"]:
        return tuple(range(found))
    known = {str(number) for number in range(found)}
    if not given or not known.issuperset(given) or len(set(given)) < len(given):
        valid = f"all, or some of 0 to {found - 1}, each once" if found > 1 else "all, or 0"
        raise InputError(f"--gpu-ids is {' '.join(given) or 'empty'}; valid: {valid}")
    return tuple(map(int, given))


GpuIds = Annotated[
    tuple[int, ...],
    PrimitiveConstructorSpec(
        nargs="*",
        metavar="all|N [N ...]",
        instance_from_str=_gpus,
        is_instance=lambda value: isinstance(value, tuple),
        str_from_instance=lambda value: [str(one) for one in value],
    ),
]
"""GPUs that a training uses, one process on each, counted among those that CUDA_VISIBLE_DEVICES leaves."""


def own_device(device: str, gpu_ids: tuple[int, ...]) -> str:
    """Return the device of this process.

    Raises:
        InputError: `learn.ranks` cannot place the processes so, or both flags name a device.
    """
    if gpu_ids and device not in {"cpu", "cuda"}:
        raise InputError(f"--device {device} and --gpu-ids both name GPUs; give one")
    from neurodyn.learn.ranks import here

    return here().device(device, gpu_ids)


@contextlib.contextmanager
def cluster_of(address: str | None, workers: int | None, memory: float | None) -> "Iterator[Executor | None]":
    """Yield the cluster that --cluster, --workers and --worker-memory ask for; None for this machine alone."""
    if address is None:
        if (workers, memory) != (None, None):
            raise InputError("--workers and --worker-memory are of a cluster; valid: with --cluster")
        yield None
        return
    from neurodyn.cluster.workers import Cluster

    with Cluster(address, workers=workers, memory=memory) as cluster:
        yield cluster


def out_of_memory(error: Exception) -> InputError | None:
    """Return in one line that a device has too little memory, where an error says so; None for other errors."""
    if isinstance(error, MemoryError):
        detail = f" ({error})" if str(error) else ""
        return InputError(f"too little memory{detail}; valid: fewer worlds, smaller batches, fewer --threads")
    if "torch" not in sys.modules:
        return None
    from neurodyn.learn.devices import lacks_memory

    if not lacks_memory(error):
        return None
    first = str(error).partition(". ")[0].strip()
    return InputError(f"--device: too little memory ({first}); valid: fewer worlds, smaller batches, another device")
