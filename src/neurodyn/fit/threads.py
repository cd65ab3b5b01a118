# SPDX-License-Identifier: Apache-2.0
"""How many threads tensor operations use: one is fastest for small networks, and gives the same bits everywhere."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Let tensor operations use `count` threads inside the context."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
