# SPDX-License-Identifier: Apache-2.0
"""Where tensor operations run, and on how many threads."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from neurodyn.core.errors import InputError


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Let tensor operations use `count` threads inside the context.

    One is fastest for small networks, and gives the same bits on every machine.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def require_device(name: str) -> torch.device:
    """Return a torch device by name.

    Raises:
        InputError: There is no such device here.
    """
    found = torch.cuda.device_count() if torch.cuda.is_available() else 0
    have = ["cpu", *(["cuda"] if found else []), *(f"cuda:{i}" for i in range(found))]
    if name not in have:
        why = "" if found or not name.startswith("cuda") else ": torch finds no CUDA GPU"
        raise InputError(f"device {name!r} is not available{why}; valid: {', '.join(have)}")
    return torch.device(name)


def lacks_memory(error: BaseException) -> bool:
    """Return whether an error says that a device has too little memory: torch's, or Warp's, which has no type."""
    if isinstance(error, torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and "Failed to allocate" in str(error)
