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
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError):
        have = "cpu, cuda" if torch.cuda.is_available() else "cpu"
        raise InputError(f"device {name!r} is not to be had here; valid: {have}") from None
    return device
