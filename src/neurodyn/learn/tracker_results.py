# SPDX-License-Identifier: Apache-2.0
"""What is measured after a training, in the tracker that followed it: tables, pages and films."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from neurodyn.core.artifacts import PRETRAINED, PRETRAINED_POLICY
from neurodyn.core.errors import InputError
from neurodyn.core.locks import exclusive
from neurodyn.learn.metrics import model_files, read_metrics
from neurodyn.learn.tracking.lookup import Logger
from neurodyn.learn.tracking.session import open_tracker, require_tracker, tracking

Cells = tuple[str, Sequence[str], Sequence[Sequence[str]]]
"""A table: its title, the names of its columns, and its rows of text."""


def require_followed(logger: Logger | None, run: str | Path) -> None:
    """Refuse, before work, to show results where that is not possible; nothing is asked for by None.

    Raises:
        InputError: The run ships with the package, or the tracker cannot work.
    """
    if logger is None:
        return
    if str(run).startswith((PRETRAINED, PRETRAINED_POLICY)):
        raise InputError(f"{run}: ships with the package and has no tracker; valid: a run directory, or no --logger")
    require_tracker(logger, run)


def show_results(
    run: str | Path,
    logger: Logger | None,
    *,
    tables: Iterable[Cells] = (),
    films: Sequence[Path] = (),
    summary: dict[str, Any] | None = None,
    model: bool = False,
) -> None:
    """Show results in the tracker of a run, which goes on with what it has of the training.

    Args:
        run: Run directory.
        logger: The tracker; None to show nothing.
        tables: Tables; those without rows are left out.
        films: Films and pages.
        summary: Figures beside those of the training.
        model: Whether the model of the run directory is another than the training ended with.

    Raises:
        InputError: As of `require_followed`, or another process writes the run.
    """
    require_followed(logger, run)
    if logger is None:
        return
    folder = Path(run)
    step = max((entry["step"] for entry in read_metrics(folder)), default=0)
    with exclusive(folder), tracking(logger, folder):
        tracker = open_tracker(folder, step, late=True)
        if model:
            tracker.keep_model(model_files(folder))
        for title, head, rows in tables:
            if rows:
                tracker.show_table(title, head, rows)
        for film in films:
            tracker.show_film(film)
        if summary:
            tracker.conclude({"step": step, **summary})
        tracker.close(failed=False)
