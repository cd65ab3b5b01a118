# SPDX-License-Identifier: Apache-2.0
"""Memory for tapes, kept for the next tape: fresh memory of tens of megabytes takes longer to map than to fill."""

import threading
import weakref

import numpy as np
import torch
from torch import Tensor

_LEAST = 1 << 20
_MOST = 1 << 28
_spare: list[np.ndarray] = []
_lock = threading.RLock()  # a buffer may come back while this thread takes one


def tape_memory(like: Tensor, size: int) -> Tensor:
    """Return a tensor of `size` numbers, not initialised, in the precision and on the device of another.

    On the processor up to 256 MiB that tensors of this function gave back are used again.
    """
    count = size * like.element_size()
    if count < _LEAST or not like.is_cpu:
        return like.new_empty(size)
    buffer = _taken(count)
    view = buffer[:count]
    weakref.finalize(view, _returned, buffer).atexit = False
    return torch.from_numpy(view).view(like.dtype)


def _taken(count: int) -> np.ndarray:
    """Return the least spare buffer that is large enough, or a new one."""
    with _lock:
        fitting = [i for i, buffer in enumerate(_spare) if buffer.nbytes >= count]
        if fitting:
            return _spare.pop(min(fitting, key=lambda i: _spare[i].nbytes))
    # Aligned to whole vectors; numpy asks for large pages, torch does not.
    whole = np.empty(count + 64, dtype=np.uint8)
    start = -whole.ctypes.data % 64
    return whole[start : start + count]


def _returned(buffer: np.ndarray) -> None:
    """Keep a buffer, and drop the smallest as long as too much is kept."""
    if buffer.nbytes > _MOST:
        return
    with _lock:
        _spare.append(buffer)
        _spare.sort(key=lambda x: x.nbytes)
        while sum(x.nbytes for x in _spare) > _MOST:
            _spare.pop(0)
