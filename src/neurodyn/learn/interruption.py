# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C and SIGTERM, which a training obeys between two steps, so that what it saves is whole."""

import signal
import threading
from types import FrameType, TracebackType
from typing import Any, Self

KEPT = "interrupted; what was finished is kept"


class Interrupted(KeyboardInterrupt):
    """A training was asked to stop.

    Attributes:
        code: Exit code of the process: 130 for Ctrl-C, 143 for SIGTERM.
    """

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


class Interruption:
    """Catches the first Ctrl-C or SIGTERM; a second one ends the process as usual.

    Attributes:
        signal: The signal that was caught; None while there was none.
    """

    def __init__(self) -> None:
        self.signal: int | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._catch)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._release()
        if self.signal is not None and kind is None:  # too late for the training, but not for what follows it
            raise self.error(KEPT)

    def error(self, message: str) -> Interrupted:
        """Return what ends the process."""
        return Interrupted(message, 128 + (self.signal or signal.SIGINT))

    def _catch(self, number: int, frame: FrameType | None) -> None:
        self.signal = number
        self._release()

    def _release(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}
