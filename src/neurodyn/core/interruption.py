# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C and SIGTERM: the first stops a command cleanly (a training between two steps), the second exits at once."""

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any, Self

from neurodyn.core.errors import InputError

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_SAME_SECONDS = 3.0
"""In a multi-process training, the time within which a second signal counts as the same one: the terminal and torchrun
both send it [s].
"""


class Interrupted(KeyboardInterrupt):
    """Work was interrupted.

    Attributes:
        code: Exit code of the process: 130 for Ctrl-C, 143 for SIGTERM.
        what: What was interrupted, and where; empty if nothing is known of it.
    """

    def __init__(self, code: int, what: str = "", *, resumes: bool = False) -> None:
        # Work that `resumes` was saved, and the same command goes on with `--resume`.
        super().__init__(
            f"{what}; the same command with --resume goes on"
            if resumes
            else what or "interrupted; what was finished is kept"
        )
        self.code, self.what = code, what


class Interruption:
    """Catches the first Ctrl-C or SIGTERM as `signal`; a second one exits as usual."""

    def __init__(self) -> None:
        self.signal: int | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                self._before[number] = signal.signal(number, self._catch)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._release()
        if self.signal is not None and kind is None:  # too late to stop the training, but not what follows it
            raise Interrupted(self.code)

    @property
    def code(self) -> int:
        """Exit code of the process."""
        return 128 + (self.signal or signal.SIGINT)

    def _catch(self, number: int, frame: FrameType | None) -> None:
        self.signal = number
        self._release()
        if signal.getsignal(number) is _stop:
            _quit_next_time()

    def _release(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}


@contextmanager
def stoppable() -> Iterator[None]:
    """Stop the enclosed command cleanly at the first Ctrl-C or SIGTERM, and exit at once at the second.

    If the interruption itself is swallowed, for example in a package's import, the resulting error counts as one.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, _stop) for number in _SIGNALS}
    hook, again = sys.unraisablehook, list[threading.Timer]()

    def send_again_if_lost(lost: "sys.UnraisableHookArgs") -> None:
        """Send the first signal again if its exception came where Python drops them: a finaliser or a callback of C.

        Otherwise the command would go on, and the user's second Ctrl-C would end it at once.
        """
        if not isinstance(lost.exc_value, Interrupted):
            hook(lost)
            return
        number = lost.exc_value.code - 128
        signal.signal(number, _stop)
        again.append(threading.Timer(_LATER, os.kill, (os.getpid(), number)))
        again[-1].daemon = True
        again[-1].start()

    sys.unraisablehook = send_again_if_lost
    _stopped_by.clear()
    try:
        yield
    except Exception as error:
        if not _stopped_by or isinstance(error, InputError):
            raise
        raise Interrupted(128 + _stopped_by[0]) from error
    finally:
        sys.unraisablehook = hook
        for timer in again:
            timer.cancel()
        for number, handler in before.items():
            signal.signal(number, handler)


_stopped_by: list[int] = []
"""Signal that stopped the command, once received."""
_LATER = 0.05
"""Time after which a signal that Python lost is sent again: the finaliser has ended by then [s]."""


def _stop(number: int, frame: FrameType | None) -> None:
    _stopped_by.append(number)
    _quit_next_time()
    raise Interrupted(128 + number)


def _quit_next_time() -> None:
    since = time.monotonic()

    def handle(number: int, frame: FrameType | None) -> None:
        if os.environ.get("WORLD_SIZE", "1") == "1" or time.monotonic() - since > _SAME_SECONDS:
            _quit(number, frame)

    for number in _SIGNALS:
        signal.signal(number, handle)


def _quit(number: int, frame: FrameType | None) -> None:
    sys.stderr.write("neurodyn: stopped at once; files are as they were before the last write\n")
    os._exit(128 + number)
