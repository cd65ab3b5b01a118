# SPDX-License-Identifier: Apache-2.0
"""What all verbs show on the terminal in the same way."""

from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from neurodyn.core.errors import InputError
from neurodyn.core.verdict import grade_of

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import TaskID

    from neurodyn.learn.loop import TrainState


def terminal(width: int = 0, **options: Any) -> "Console":
    """Return a console that prints text as it is: `pretrained:ant` is no emoji, and units stand in brackets.

    Args:
        width: Least width where the output is no terminal: a file has no edge at which to cut names.
        options: Further options of `rich.console.Console`.
    """
    from rich.console import Console

    console = Console(markup=False, emoji=False, **options)
    if not console.is_terminal:
        console.width = max(console.width, width)
    return console


class TrainingBar:
    """A progress bar that carries the held-out roll-out error; plain lines where there is no terminal."""

    def __init__(self, title: str) -> None:
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

        self._console = terminal()
        self._title = title
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            TextColumn("{task.percentage:>3.0f}%"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[text]}", markup=False),
            console=self._console,
            disable=not self._console.is_terminal,
        )
        self._task: TaskID | None = None
        self._printed = -1.0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def say(self, text: str) -> None:
        """Print a line above the bar."""
        self._console.print(text, soft_wrap=True)

    def update(self, done: float, text: str) -> None:
        """Show the share of the work that is done, and a line on how it goes."""
        if self._task is None:
            self._progress.start()
            self._task = self._progress.add_task(self._title, total=1.0, text="")
        self._progress.update(self._task, completed=done, text=text)
        if not self._console.is_terminal and (done - self._printed >= 0.1 or done >= 1.0):
            self._printed = done
            self._console.print(f"{self._title}: {done:4.0%}  {text}", soft_wrap=True)


def report_training(out: Path, end: "TrainState") -> None:
    """Say what a training did, what to do next, and whether its result can be used.

    Raises:
        InputError: It cannot.
    """
    print(f"trained {end.step} steps in {end.seconds:.0f} s ({end.cpu_seconds:.0f} CPU-s); model in {out / 'model'}")
    if grade_of(end.verdict) == "fails":
        raise InputError(f"{out}: verdict: {end.verdict}")
    print(f"next: neurodyn evaluate {out}")
    print(f"verdict: {end.verdict}")
