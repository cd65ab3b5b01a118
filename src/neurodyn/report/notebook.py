# SPDX-License-Identifier: Apache-2.0
"""Progress bar in a notebook: one line of output that is updated."""

import sys
import time
from types import TracebackType
from typing import Any, Self

from neurodyn.report.numbers import span
from neurodyn.report.page import element

_SECONDS = 0.2
"""Minimum time between updates of the display [s]."""


class NotebookBar:
    """Progress bar in the output of a notebook cell; a context manager, and a `progress` argument of trainings.

        with neurodyn.report.NotebookBar("training") as bar:
            neurodyn.learn.train("pendulum", "pendulum.h5", "runs/pendulum", progress=bar)

    Outside notebooks it prints a line at each tenth of the work.
    """

    def __init__(self, title: str) -> None:
        """Prepare a bar with a title; nothing is shown before the first update."""
        self._title, self._begun = title, time.monotonic()
        self._handle: Any = None
        self._shown: tuple[float, float, str] | None = None  # fraction, time and text of the last update
        self._last = (0.0, "")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._shown is not None:
            done, text = self._last
            self._show(1.0 if error is None else done, text)

    def update(self, done: float, text: str) -> None:
        """Show the fraction of finished work, and a line of text."""
        self._last = (done, text)
        now = time.monotonic()
        if self._shown is None or done >= 1.0 or now - self._shown[1] >= _SECONDS:
            self._show(done, text)

    def _show(self, done: float, text: str) -> None:
        before, self._shown = self._shown, (done, time.monotonic(), text)
        if not _in_notebook():
            if before is None or int(10 * done) > int(10 * before[0]):
                print(f"{self._title}: {done:.0%}  {text}".rstrip(), file=sys.stderr)
            return
        from IPython.display import display

        content = {"text/html": self._html(done, text), "text/plain": f"{self._title}: {done:.0%}  {text}".rstrip()}
        if self._handle is None:
            self._handle = display(content, raw=True, display_id=True)
        else:
            self._handle.update(content, raw=True)

    def _html(self, done: float, text: str) -> str:
        passed = time.monotonic() - self._begun
        left = f"{span(passed * (1 - done) / done)} left" if 0 < done < 1 else span(passed)
        return element("progress", self._title, done, left, text)


def _in_notebook() -> bool:
    """Return whether output goes to a kernel, without importing IPython."""
    if "IPython" not in sys.modules:
        return False
    from IPython import get_ipython

    return hasattr(get_ipython(), "kernel")
