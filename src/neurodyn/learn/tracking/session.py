# SPDX-License-Identifier: Apache-2.0
"""The tracker of a training: its choice, RUN/tracker.json, and failures of trackers."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Concatenate, ParamSpec

from neurodyn.core import artifacts
from neurodyn.core.errors import InputError, notice
from neurodyn.learn.devices import current_ranks, first_line
from neurodyn.learn.tracking.tracker import DEFAULT, TRACKERS, Logger, Opening, Tracker, find, name_of

FILE = "tracker.json"

P = ParamSpec("P")

_CHOICE: ContextVar[tuple[Logger, Path] | None] = ContextVar("tracker", default=None)
"""Tracker of the training under way, and the outermost folder that it writes."""


@contextmanager
def tracking(logger: Logger | None, out: str | Path) -> Iterator[None]:
    """Follow the trainings within the context by a tracker.

    Args:
        logger: The tracker; None for that of the calling loop, else that of a resumed run, else TensorBoard.
        out: Folder of the run, or of a loop that trains in several runs.

    Raises:
        InputError: There is no such tracker, it is not installed, or its server cannot be reached.
    """
    if logger is None and _CHOICE.get() is not None:
        yield
        return
    token = _CHOICE.set((require_tracker(logger, out), Path(out)))
    try:
        yield
    finally:
        _CHOICE.reset(token)


def require_tracker(logger: Logger | None, out: str | Path) -> Logger:
    """Return the tracker that `tracking` would choose; arguments and errors: see `tracking`."""
    chosen = _recorded(Path(out)) if logger is None else logger
    tracker, options = find(chosen)
    if current_ranks().leads:  # the others do not write
        tracker.require(options)
    return chosen


def chosen_tracker() -> Logger | None:
    """Return the tracker of the training under way; None if there is no training."""
    choice = _CHOICE.get()
    return None if choice is None else choice[0]


def open_tracker(run: Path, step: int = 0, *, late: bool = False) -> "GuardedTracker":
    """Open the tracker that `tracking` chose for a run.

    Args:
        run: Run directory.
        step: Step after which the run goes on; 0 for a new run.
        late: Whether the work is already done, so that a tracker which cannot be opened gives a notice instead of an
            error. Within a loop over several runs it always does.

    Raises:
        InputError: It cannot be opened.
    """
    logger, root = _CHOICE.get() or (_recorded(run), run)
    top = root.resolve()
    within = top in run.resolve().parents
    tracker, options = find(logger)
    before = read_tracker_file(run)
    name = "/".join((top.name, *run.resolve().relative_to(top).parts)) if within else run.resolve().name
    known = before.get("runs", {}).get(name_of(logger), {})
    guarded = GuardedTracker(run, name_of(logger), step)
    try:
        guarded.tracker = tracker(Opening(run, name, top.name if within else "", step, known), **options)
        if (logger, before) != (DEFAULT, {}):
            runs = {**before.get("runs", {}), name_of(logger): guarded.tracker.identity()}
            artifacts.write_json(run / FILE, {"logger": name_of(logger), "runs": {k: v for k, v in runs.items() if v}})
    except Exception as error:  # trackers raise anything
        if within or late:
            guarded.lose(error)
        elif isinstance(error, InputError):
            raise
        else:
            raise InputError(f"logger {name_of(logger)}: {first_line(error)}; valid: another --logger") from error
    return guarded


def read_tracker_file(run: Path) -> dict[str, Any]:
    """Return RUN/tracker.json: `logger`, `runs` (identity of the run by tracker), and `lost` if the tracker failed.

    Raises:
        InputError: The file is damaged.
    """
    path = run / FILE
    if not path.is_file():
        return {}
    found = artifacts.read_json(path)
    if not (isinstance(found, dict) and isinstance(found.get("runs", {}), dict)):
        raise InputError(f"{path}: not the tracker file of a run; remove it to begin another one there")
    return found


class GuardedTracker:
    """A tracker that is given up with a notice when it fails, while the training goes on.

    Attributes:
        tracker: The tracker; None before it is open and after it failed.
        step: Step of the last numbers.
    """

    def __init__(self, run: Path, name: str, step: int) -> None:
        self.tracker: Tracker | None = None
        self.step = step
        self._run, self._name = run, name

    def attempt(self, method: Callable[Concatenate[Tracker, P], None], *args: P.args, **options: P.kwargs) -> None:
        """Call a method of the tracker, for example `attempt(Tracker.keep_file, path)`."""
        if self.tracker is None:
            return
        try:
            getattr(self.tracker, method.__name__)(*args, **options)
        except Exception as error:  # trackers raise anything
            self.lose(error)

    def lose(self, error: Exception) -> None:
        """Give the tracker up, with a notice and an entry in RUN/tracker.json."""
        lost, self.tracker = self.tracker, None
        title, reason = self._name if lost is None else lost.title, first_line(error)
        if lost is not None:
            with suppress(Exception):
                lost.abandon(error)
        notice(f"{self._run}: {title}'s log ends here, because {reason}; work goes on without it")
        if self._run.is_dir():
            lost = {"step": self.step, "reason": reason}
            with suppress(InputError, OSError):  # the disk may be why
                known = {"logger": self._name, **read_tracker_file(self._run)}
                artifacts.write_json(self._run / FILE, {**known, "lost": lost})


def _recorded(run: Path) -> Logger:
    """Return the tracker that a run names if it is registered; a class that a file names is never imported."""
    name = read_tracker_file(run).get("logger", DEFAULT)
    if isinstance(name, str) and name in TRACKERS:
        return name
    notice(f"{run}: was followed by a logger of your own, which goes on only where you name it again by --logger")
    return DEFAULT
