# SPDX-License-Identifier: Apache-2.0
"""Says how long the kernels of a simulator take to compile where Warp's cache lacks them: up to a minute on a CPU.

Warp names a cached kernel by a hash of its code, so that a new installation of the same code compiles nothing. What is
missing shows only when a simulator launches it; then Warp reports each module to its logger.
"""

import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from neurodyn.core.errors import notice

_COMPILED = re.compile(r"^\s*Module .* took ([\d.]+) ms\s+\(compiled\)")
_SILENCE = 2.0
"""Time of compilations that is not announcing [s]."""
_EVERY = 10.0
"""Time between two lines [s]."""


_lock = threading.Lock()
_within: list[str] = []
"""What is being compiled, in any thread; the logger is that of the first."""


@contextmanager
def announcing(what: str, seconds: float) -> Iterator[None]:
    """Announce compilations within, with the time left of at most `seconds` of CPU time for all kernels of `what`."""
    import warp as wp

    with _lock:
        before, level = wp.get_logger(), wp.config.log_level
        if not _within:
            wp.set_logger(_Announcements(what, seconds, before, level, quiet=level > wp.LOG_INFO))
            wp.config.log_level = min(level, wp.LOG_INFO)  # Warp times modules at this level alone
        _within.append(what)
    try:
        yield
    finally:
        with _lock:
            _within.remove(what)
            if not _within and isinstance(last := wp.get_logger(), _Announcements):
                wp.set_logger(last.logger)
                wp.config.log_level = last.level


class _Announcements:
    """A logger of Warp that passes everything on, and gives notices of what was compiled."""

    def __init__(self, what: str, seconds: float, logger: Any, level: int, *, quiet: bool) -> None:
        self._what, self._seconds, self.logger, self.level, self._quiet = what, seconds, logger, level, quiet
        self._cpu, self._begin = time.process_time(), time.perf_counter()
        self._spent, self._said = 0.0, -_EVERY

    def info(self, message: str) -> None:
        """Pass a message on if the user asked for it; note a module that was compiled."""
        if not self._quiet:
            self.logger.info(message)
        found = _COMPILED.match(message)
        if found is not None:
            self._spent += 1e-3 * float(found[1])
            self._announce()

    def _announce(self) -> None:
        cpu, wall = time.process_time() - self._cpu, time.perf_counter() - self._begin
        if self._spent < _SILENCE or wall - self._said < _EVERY:
            return
        self._said = wall
        left = max(0.0, self._seconds - cpu) * max(1.0, wall / max(cpu, 1e-3))  # at the pace so far
        notice(
            f"compiling {self._what} for this machine, once: at most {left:.0f} s left"
            if left
            else f"compiling {self._what} for this machine, once: {wall:.0f} s so far"
        )

    def debug(self, message: str) -> None:
        self.logger.debug(message)

    def warning(self, message: str, category: Any = None, stacklevel: int = 1) -> None:
        self.logger.warning(message, category, stacklevel + 1)

    def error(self, message: str) -> None:
        self.logger.error(message)
