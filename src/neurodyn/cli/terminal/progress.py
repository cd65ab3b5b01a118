# SPDX-License-Identifier: Apache-2.0
"""How far a verb is: a bar on a terminal, a line now and then where its output goes to a file."""

import sys
import time
from contextlib import ExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Self

from neurodyn.cli.terminal.console import terminal
from neurodyn.core.progress import showing

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID

_SOON = 2.0
"""Time after which a verb says how far it is [s]; quicker ones say what they found."""
_SECONDS = 30.0
"""Longest time between two lines where there is no terminal, at which each tenth of the work gets one [s]."""


class ProgressBar:
    """Shows on standard error how far a verb is, with percentage and time left; a context manager.

    Work within it that says how far it is (`core.progress`) is shown; trainings are given the bar.
    """

    def __init__(self, title: str, console: "Console | None" = None) -> None:
        """Prepare a bar; nothing is shown before the first update.

        Args:
            title: What is being done.
            console: Where it is shown; None for standard error.
        """
        self._title, self._console = title, terminal(stderr=True) if console is None else console
        self._lines = not self._console.is_terminal or self._console.is_dumb_terminal
        self._clock = Clock()
        self._stack = ExitStack()
        self._bar: tuple[Progress, TaskID] | None = None
        self._printed: tuple[float, float] | None = None  # share and time of the last line

    def __enter__(self) -> Self:
        self._stack.enter_context(showing(self))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()
        if self._bar is not None:
            self._bar[0].stop()

    def say(self, text: str) -> None:
        """Print a line of the result on standard output, above the bar."""
        print(text, flush=True)

    def update(self, done: float, text: str) -> None:
        """Show the share of the work that is done, and a line on how it goes."""
        self._clock.update(done)
        if self._lines:
            self._line(done, text)
            return
        if self._bar is None:
            self._bar = self._begun()
        bar, task = self._bar
        bar.update(task, completed=done, text=text)

    def _begun(self) -> "tuple[Progress, TaskID]":
        from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn
        from rich.table import Column
        from rich.text import Text

        clock, width = self._clock, self._console.width
        title, bar_width, percentage, left = min(len(self._title), width * 2 // 5), min(24, width // 7), 4, 10

        class TimeLeft(ProgressColumn):
            def render(self, task: Task) -> Text:
                return Text(clock.words, no_wrap=True)

        def wide(size: int, least: int = 0) -> Column:
            return Column(no_wrap=True, min_width=least or size, max_width=size)

        bar = Progress(
            TextColumn("{task.description}", markup=False, table_column=wide(title)),
            BarColumn(bar_width, table_column=wide(bar_width)),
            TextColumn("{task.percentage:>3.0f}%", table_column=wide(percentage)),
            TimeLeft(wide(left)),
            TextColumn(
                "{task.fields[text]}",
                markup=False,
                table_column=wide(max(1, width - title - bar_width - percentage - left - 4), 1),
            ),
            console=self._console, transient=True, redirect_stdout=sys.stdout.isatty(),
        )  # fmt: skip
        bar.start()
        return bar, bar.add_task(self._title, total=1.0, text="")

    def _line(self, done: float, text: str) -> None:
        now = time.monotonic()
        if self._printed is None:
            due = now - self._clock.begun >= _SOON and done < 1.0
        else:
            due = _tenth(done) > _tenth(self._printed[0]) or now - self._printed[1] >= _SECONDS
        if due:
            self._printed = done, now
            left = f"  {self._clock.words}" if self._clock.words else ""
            self._console.print(f"{self._title}: {done:4.0%}{left}  {text}".rstrip(), soft_wrap=True)


def _tenth(done: float) -> int:
    return int(10.0 * done + 1e-9)


class Clock:
    """Time that work has left, at the pace so far.

    Attributes:
        begun: Time of the beginning [s].
    """

    def __init__(self) -> None:
        self.begun = time.monotonic()
        self._first: tuple[float, float] | None = None
        self._last = (0.0, self.begun)

    def update(self, done: float) -> None:
        """Note which share of the work is done; of resumed work the first is what was done before."""
        now = time.monotonic()
        self._first = self._first or (done, now)
        if done > self._last[0]:
            self._last = (done, now)

    @property
    def left(self) -> float | None:
        """Time that is left [s]; None while nothing is known."""
        if self._first is None or self._last[0] <= self._first[0]:
            return None
        (before, begun), (done, at) = self._first, self._last
        return max(0.0, (1.0 - done) * (at - begun) / (done - before) - (time.monotonic() - at))

    @property
    def words(self) -> str:
        """The same, as 1:23 left; empty while nothing is known."""
        if self.left is None:
            return ""
        minutes, seconds = divmod(round(self.left), 60)
        hours, minutes = divmod(minutes, 60)
        return f"{hours}:{minutes:02}:{seconds:02} left" if hours else f"{minutes}:{seconds:02} left"
