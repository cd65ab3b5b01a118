# SPDX-License-Identifier: Apache-2.0
"""Memory that large arrays leave is kept for the next ones, instead of being returned to the system each time."""

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_TRIM, _MAPPED = -1, -4
"""glibc's M_TRIM_THRESHOLD and M_MMAP_MAX."""
_KEPT, _USUAL = (1 << 31) - 1, 1 << 17
"""Free memory at the heap's end that is kept [bytes]."""
_MAPS = 65536


@contextmanager
def keeping_memory() -> Iterator[None]:
    """Keep freed memory in the process meanwhile.

    glibc maps each array of megabytes anew, and the system clears its pages: a third of the CPU time of a fit, whose
    arrays have the same sizes again and again. Without glibc nothing changes.
    """
    set_option = _mallopt()
    if set_option is None:
        yield
        return
    set_option(_MAPPED, 0)
    set_option(_TRIM, _KEPT)
    try:
        yield
    finally:
        set_option(_MAPPED, _MAPS)
        set_option(_TRIM, _USUAL)


def _mallopt() -> "ctypes._NamedFuncPointer | None":
    if not sys.platform.startswith("linux"):
        return None
    return getattr(ctypes.CDLL(None), "mallopt", None)
