# SPDX-License-Identifier: Apache-2.0
"""The one place that imports Newton: quietly, and with a clear error where it is not installed."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

from neurodyn.core.errors import InputError


def import_newton() -> ModuleType:
    """Import Newton without Warp's banner (set NEURODYN_VERBOSE to see it).

    Raises:
        InputError: Newton is not installed.
    """
    if sys.modules.get("newton") is not None:
        return sys.modules["newton"]
    try:
        if not os.environ.get("NEURODYN_VERBOSE"):
            _start_warp_quietly()
        import newton
    except ImportError as error:
        raise InputError(f"Newton cannot be imported ({error}); install it with: pip install 'neurodyn[sim]'") from None
    return newton


def short_label(label: str) -> str:
    """Return the name of a joint or body without the prefixes of world and articulation."""
    return label.rsplit("/", 1)[-1]


def _start_warp_quietly() -> None:
    import warp

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
