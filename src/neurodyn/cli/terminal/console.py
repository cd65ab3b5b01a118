# SPDX-License-Identifier: Apache-2.0
"""Terminal output shared by all verbs: results and progress."""

import shlex
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Self

from neurodyn.core.artifacts import require_writable, write_json
from neurodyn.core.locks import exclusive
from neurodyn.core.progress import showing
from neurodyn.core.verdict import parts_of, require_usable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID

    from neurodyn.core.config import Record
    from neurodyn.learn.budget import TrainState


_PAGE = "report.html"


def terminal(**options: Any) -> "Console":
    """Return a console that prints text verbatim: `pretrained:ant` is no emoji, and brackets hold units.

    Through a pipe it is as wide as the terminal at its end, or 80 columns.
    """
    from rich.console import Console

    class Terminal(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError  # treated as a reader that has read enough

    return Terminal(markup=False, emoji=False, **options)


def print_verdict(verdict: object) -> None:
    """Print a verdict at the end of a command's output, as wide as the terminal, each finding from a new line."""
    first, *others = parts_of(str(verdict))
    for begin, text in (("verdict: ", first), *(("  ", text) for text in others)):
        lines = textwrap.wrap(
            begin + text, terminal().width, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False
        )
        print("\n".join(lines))


def shell_word(path: object) -> str:
    """Return a path or a name as one word of a shell, for commands to copy."""
    return shlex.quote(str(path))


@contextmanager
def locked_output(json: Path | None, out: Path | None) -> Iterator[None]:
    """Lock the folder that `write_result` will write into; same arguments.

    Raises:
        InputError: One of its files cannot be written, or another process is writing into the folder.
    """
    require_writable(json, None if out is None else out / _PAGE, text=True)
    with nullcontext() if out is None else exclusive(out):
        yield


def write_figures(json: Path | None, figures: object) -> None:
    """Write figures to the file given with --json, if any, and say so."""
    if json is not None:
        write_json(json, figures)
        print(f"figures: {json}")


def write_result(result: "Record", json: Path | None, out: Path | None, write_page: Callable[[Path], object]) -> None:
    """Write the figures of a result to `json`, and result.json and report.html to the folder `out`, if not None."""
    write_figures(json, result.plain())
    if out is not None:
        write_json(out / "result.json", result.plain())
        write_page(out / _PAGE)
        print(f"report: {out / _PAGE}")


def time_of(end: "TrainState") -> str:
    """Return what a training took, and what of it --minutes do not count."""
    others = f", {end.waited:.0f} s taken by other processes and not counted" if end.waited >= 1.0 else ""
    return f"{end.seconds:.0f} s ({end.cpu_seconds:.0f} CPU-s{others})"


def report_training(out: Path, end: "TrainState") -> None:
    """Report what a training did, what to do next, and whether its result is usable.

    Raises:
        InputError: The result is not usable.
    """
    print(f"trained {end.step} steps in {time_of(end)}; model in {out / 'model'}")
    require_usable(end.verdict, out)
    if end.starved:
        print(
            f"note: others took this machine's cores: {end.cpu_seconds:.0f} of {end.seconds:.0f} s were left for "
            "the training; more --minutes with --resume make up for it, and so does `clock: own` in the settings"
        )
    print(f"next: neurodyn evaluate {shell_word(out)}")
    print_verdict(end.verdict)


_SOON = 2.0
"""Time after which a verb shows progress [s]; faster verbs only show their result."""
_SECONDS = 30.0
"""Longest time between two progress lines without a terminal, where each tenth of the work gets one [s]."""


class ProgressBar:
    """Shows a verb's progress on standard error, with percentage and time left; a context manager.

    It shows work inside it that reports progress (`core.progress`); trainings get the bar as an argument. For other
    work it shows the elapsed time. A bar started inside another replaces it.
    """

    _open: ClassVar["list[ProgressBar]"] = []
    """Started bars, innermost last."""

    def __init__(self, title: str, console: "Console | None" = None) -> None:
        """Prepare a bar, by default on standard error; nothing is shown before the first update."""
        self._title, self._console = title, terminal(stderr=True) if console is None else console
        self._lines = not self._console.is_terminal or self._console.is_dumb_terminal
        self._clock = Clock()
        self._stack = ExitStack()
        self._bar: tuple[Progress, TaskID] | None = None
        self._printed: tuple[float, float] | None = None  # fraction and time of the last line
        self._last: tuple[float, str] | None = None  # last report
        self._lock, self._ended = threading.RLock(), threading.Event()
        self._pulse = threading.Thread(target=self._repeat, daemon=True)

    def __enter__(self) -> Self:
        self._stack.enter_context(showing(self))
        self._open.append(self)
        for outer in self._open[:-1]:
            outer.hide()
        self._pulse.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()
        self._ended.set()
        self._pulse.join()
        self.hide()
        self._open.remove(self)

    def hide(self) -> None:
        """Take the bar off the screen until it is shown again."""
        with self._lock:
            if self._bar is not None:
                self._bar[0].stop()
                self._bar = None

    def say(self, text: str) -> None:
        """Print a line of the result on standard output, above the bar."""
        print(text, flush=True)

    def update(self, done: float, text: str) -> None:
        """Show the finished fraction of the work, and a status line."""
        with self._lock:
            self._clock.update(done)
            self._last = done, text
            self._show()

    def _repeat(self) -> None:
        """Repeat the last report if nothing new comes, to show that silent work does not hang."""
        wait = _SOON
        while not self._ended.wait(wait):
            with self._lock:
                self._show()
            wait = _SECONDS if self._lines else _SOON

    def _show(self) -> None:
        if self._open[-1:] != [self]:  # another bar has replaced it
            return
        if self._lines:
            self._line()
            return
        if self._bar is None:
            self._bar = self._begin()
        bar, task = self._bar
        if self._last is not None:
            bar.update(task, completed=self._last[0], total=1.0)

    def _begin(self) -> "tuple[Progress, TaskID]":
        from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskProgressColumn, TextColumn
        from rich.table import Column
        from rich.text import Text

        width = self._console.width
        title, bar_width, percentage, left = min(len(self._title), width * 2 // 5), min(24, width // 7), 4, 11
        rest = max(1, width - title - bar_width - percentage - left - 4)

        outer = self

        class WithStatus(Progress):
            """Shows the status below the bar, on as many lines as it takes, if it does not fit behind it."""

            def get_renderables(self) -> Iterator[Any]:
                text = "" if outer._last is None else outer._last[1]
                for task in self.tasks:
                    task.fields["text"] = text if len(text) <= rest else ""
                yield from super().get_renderables()
                if len(text) > rest:
                    yield Text(text)

        class Times(ProgressColumn):
            def render(self, task: Task) -> Text:
                return Text(outer._time, no_wrap=True)

        def wide(size: int, least: int = 0) -> Column:
            return Column(no_wrap=True, min_width=least or size, max_width=size)

        bar = WithStatus(
            TextColumn("{task.description}", markup=False, table_column=wide(title)),
            BarColumn(bar_width, table_column=wide(bar_width)),
            TaskProgressColumn(table_column=wide(percentage)),
            Times(wide(left)),
            TextColumn("{task.fields[text]}", markup=False, table_column=wide(rest, 1)),
            console=self._console,
            transient=True,
            redirect_stdout=sys.stdout.isatty(),
        )
        bar.start()
        return bar, bar.add_task(self._title, total=None, text="")

    def _line(self) -> None:
        now, (done, text) = time.monotonic(), self._last or (0.0, "")
        if self._printed is None:
            due = now - self._clock.begun >= _SOON and done < 1.0
        else:
            due = _tenth(done) != _tenth(self._printed[0]) or now - self._printed[1] >= _SECONDS
        if due:
            self._printed = done, now
            share = "" if self._last is None else f"{done:4.0%}"
            said = "  ".join(word for word in (share, self._time, text) if word)
            self._console.print(f"{self._title}: {said}", soft_wrap=True)

    @property
    def _time(self) -> str:
        """Time left or, while unknown, time elapsed."""
        return self._clock.words or f"{_clock_time(self._clock.passed)} so far"


def _tenth(done: float) -> int:
    return int(10.0 * done + 1e-9)


class Clock:
    """Estimates the time left at the pace so far."""

    def __init__(self) -> None:
        self.begun = time.monotonic()
        self._first: tuple[float, float] | None = None
        self._last = (0.0, self.begun)

    def update(self, done: float) -> None:
        """Record the finished fraction; the first call gives the fraction done before a resume."""
        now = time.monotonic()
        if done < 1.0 <= self._last[0]:  # more work after all, such as another trial
            self._first, self._last = None, (0.0, now)
        self._first = self._first or (done, now)
        if done > self._last[0]:
            self._last = (done, now)

    @property
    def left(self) -> float | None:
        """Time left [s]; None while unknown, also where a part takes longer than all that was expected."""
        if self._first is None or self._last[0] <= self._first[0]:
            return None
        (before, begun), (done, at) = self._first, self._last
        left = (1.0 - done) * (at - begun) / (done - before) - (time.monotonic() - at)
        return max(0.0, left) if left > 0.0 or done >= 1.0 else None

    @property
    def passed(self) -> float:
        """Time since the start [s]."""
        return time.monotonic() - self.begun

    @property
    def words(self) -> str:
        """Time left, such as "1:23 left"; empty while unknown."""
        return "" if self.left is None else f"{_clock_time(self.left)} left"


def _clock_time(duration: float) -> str:
    """Format a duration [s] like a clock."""
    minutes, seconds = divmod(round(duration), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
