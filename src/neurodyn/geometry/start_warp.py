# SPDX-License-Identifier: Apache-2.0
"""The start of Warp, without its banner and without warnings of a missing GPU."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_once = [True]


def start_warp() -> None:
    """Start Warp once, without its banner (set NEURODYN_VERBOSE to see it)."""
    if not _once:
        return
    _once.clear()
    import warp

    if os.environ.get("NEURODYN_VERBOSE"):
        warp.init()
        return
    warp.config.log_level = max(warp.config.log_level, warp.LOG_WARNING)
    with _stderr_of_native_code_dropped():
        warp.init()


@contextmanager
def _stderr_of_native_code_dropped() -> Iterator[None]:
    """Warp's native library warns of a missing GPU driver, which is no fault on a machine without a GPU."""
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
