# SPDX-License-Identifier: Apache-2.0
"""What all verbs show on the terminal in the same way."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from neurodyn.core.verdict import require_usable

if TYPE_CHECKING:
    from rich.console import Console

    from neurodyn.core.records import Record
    from neurodyn.learn.loop import TrainState


_PAGE = "report.html"


def terminal(width: int = 0, **options: Any) -> "Console":
    """Return a console that prints text as it is: `pretrained:ant` is no emoji, and units stand in brackets.

    Args:
        width: Least width where the output is no terminal: a file has no edge at which to cut names.
        options: Further options of `rich.console.Console`.
    """
    from rich.console import Console

    class Terminal(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError  # which the command line takes for the end of what somebody wanted to read

    console = Terminal(markup=False, emoji=False, **options)
    if not console.is_terminal:
        console.width = max(console.width, width)
    return console


@contextmanager
def claimed(json: Path | None, out: Path | None) -> Iterator[None]:
    """Hold the folder that `keep_result` will write into; arguments are its own.

    Raises:
        InputError: One of its files cannot be written, or another process is writing into the folder.
    """
    from neurodyn.core.artifacts import require_writable
    from neurodyn.core.locks import exclusive

    require_writable(json, None if out is None else out / _PAGE, text=True)
    with nullcontext() if out is None else exclusive(out):
        yield


def keep_result(result: "Record", json: Path | None, out: Path | None, write_page: Callable[[Path], object]) -> None:
    """Write what was measured: figures to a file, and figures and a page to a folder.

    Args:
        result: What was measured.
        json: File for the figures; None for none.
        out: Folder for result.json and report.html; None for none.
        write_page: Writes the page to a path.
    """
    from neurodyn.core.artifacts import write_json

    if json is not None:
        write_json(json, result.plain())
        print(f"figures: {json}")
    if out is not None:
        write_json(out / "result.json", result.plain())
        write_page(out / _PAGE)
        print(f"report: {out / _PAGE}")


def report_training(out: Path, end: "TrainState") -> None:
    """Say what a training did, what to do next, and whether its result can be used.

    Raises:
        InputError: It cannot.
    """
    print(f"trained {end.step} steps in {end.seconds:.0f} s ({end.cpu_seconds:.0f} CPU-s); model in {out / 'model'}")
    require_usable(end.verdict, out)
    if end.starved:
        print(
            f"note: others took this machine's cores: {end.cpu_seconds:.0f} of {end.seconds:.0f} s were left for "
            "the training; more --minutes with --resume make up for it, and so does `clock: cpu` in the settings"
        )
    print(f"next: neurodyn evaluate {out}")
    print(f"verdict: {end.verdict}")
