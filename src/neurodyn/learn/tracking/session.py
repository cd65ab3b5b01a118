# SPDX-License-Identifier: Apache-2.0
"""Which tracker a training has, RUN/tracker.json, and what happens when a tracker fails."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from neurodyn.core import artifacts
from neurodyn.core.errors import InputError, notice
from neurodyn.learn.devices import current_ranks
from neurodyn.learn.tracking.tracker import DEFAULT, TRACKERS, Logger, Opening, Tracker, find, name_of

FILE = "tracker.json"


@dataclass(frozen=True)
class _Choice:
    """What `tracking` was called with: the tracker, and the outermost folder that is written."""

    logger: Logger
    root: Path


_CHOICE: ContextVar[_Choice | None] = ContextVar("tracker", default=None)


@contextmanager
def tracking(logger: Logger | None, out: str | Path) -> Iterator[None]:
    """Have the trainings within followed by a tracker.

    Args:
        logger: The tracker; None for that of the calling loop, else that of the run where it goes on, else TensorBoard.
        out: Folder that is written: of the run, or of a loop that trains in several.

    Raises:
        InputError: There is no such tracker, it is not installed, or its server cannot be reached.
    """
    if logger is None and _CHOICE.get() is not None:
        yield
        return
    token = _CHOICE.set(_Choice(require_tracker(logger, out), Path(out)))
    try:
        yield
    finally:
        _CHOICE.reset(token)


def require_tracker(logger: Logger | None, out: str | Path) -> Logger:
    """Return the tracker that `tracking` would choose, if it can work; arguments and errors are those of `tracking`."""
    chosen = _recorded(Path(out)) if logger is None else logger
    tracker, options = find(chosen)
    if current_ranks().leads:  # of several processes, the one that writes
        tracker.require(options)
    return chosen


def chosen_tracker() -> Logger | None:
    """Return what follows the training under way; None outside of one."""
    choice = _CHOICE.get()
    return None if choice is None else choice.logger


def open_tracker(run: Path, step: int = 0, *, late: bool = False) -> "GuardedTracker":
    """Open the tracker of a run that begins, or that goes on after a step; as `tracking` chose.

    Args:
        run: Run directory.
        step: The step.
        late: Whether work was done already, so that a tracker which cannot be opened is no error but a notice; within a
            loop over several runs it always is.

    Raises:
        InputError: It cannot be opened.
    """
    choice = _CHOICE.get()
    root = run if choice is None else choice.root
    logger = _recorded(run) if choice is None else choice.logger
    top = root.resolve()
    within = top in run.resolve().parents
    tracker, options = find(logger)
    before = read_tracker_file(run)
    name = "/".join((top.name, *run.resolve().relative_to(top).parts)) if within else run.resolve().name
    known = before.get("runs", {}).get(name_of(logger), {})
    guarded = GuardedTracker(run, logger, step)
    try:
        guarded.tracker = tracker(Opening(run, name, top.name if within else "", step, known), **options)
        if (logger, before) != (DEFAULT, {}):
            runs = {**before.get("runs", {}), name_of(logger): guarded.tracker.identity()}
            artifacts.write_json(run / FILE, {"logger": name_of(logger), "runs": {k: v for k, v in runs.items() if v}})
    except Exception as error:  # whatever a tracker raises is about the tracker
        if within or late:
            guarded.lose(step, error)
        elif isinstance(error, InputError):
            raise
        else:
            raise InputError(f"logger {name_of(logger)}: {_one_line(error)}; valid: another --logger") from error
    return guarded


def read_tracker_file(run: Path) -> dict[str, Any]:
    """Return RUN/tracker.json: `logger`, `runs` (by tracker, what finds the run again), and `lost` where it failed.

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
    """A tracker whose failure ends it with a notice, while the training goes on.

    Attributes:
        tracker: The tracker; None after it failed.
    """

    def __init__(self, run: Path, logger: Logger, step: int) -> None:
        """Guard a tracker that is not yet open."""
        self.tracker: Tracker | None = None
        self._run, self._name, self._step = run, name_of(logger), step

    def write(self, step: int, scalars: Mapping[str, float]) -> None:
        """Call `Tracker.write`."""
        self._step = step
        self._try(lambda tracker: tracker.write(step, scalars))

    def describe(self, config: dict[str, Any], manifest: dict[str, Any]) -> None:
        """Call `Tracker.describe`."""
        self._try(lambda tracker: tracker.describe(config, manifest))

    def keep_model(self, files: Sequence[Path]) -> None:
        """Call `Tracker.keep_model`."""
        self._try(lambda tracker: tracker.keep_model(files, self._step))

    def keep_state(self, files: Sequence[Path]) -> None:
        """Call `Tracker.keep_state`."""
        self._try(lambda tracker: tracker.keep_state(files, self._step))

    def keep_file(self, path: Path) -> None:
        """Call `Tracker.keep_file`."""
        self._try(lambda tracker: tracker.keep_file(path))

    def show_table(self, title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Call `Tracker.show_table`."""
        self._try(lambda tracker: tracker.show_table(title, head, rows, self._step))

    def show_film(self, path: Path) -> None:
        """Call `Tracker.show_film`."""
        self._try(lambda tracker: tracker.show_film(path, self._step))

    def conclude(self, summary: Mapping[str, Any]) -> None:
        """Call `Tracker.conclude`."""
        self._try(lambda tracker: tracker.conclude(summary))

    def close(self, failed: bool) -> None:
        """Call `Tracker.close`."""
        self._try(lambda tracker: tracker.close(failed))

    def lose(self, step: int, error: Exception) -> None:
        """Give the tracker up, and say so on the terminal and in RUN/tracker.json."""
        lost, self.tracker = self.tracker, None
        title, reason = self._name if lost is None else lost.title, _one_line(error)
        if lost is not None:
            with suppress(Exception):
                lost.abandon(error)
        notice(f"{self._run}: {title}'s log ends here, because {reason}; work goes on without it")
        if self._run.is_dir():
            lost = {"step": step, "reason": reason}
            with suppress(InputError, OSError):  # the disk may be why
                known = {"logger": self._name, **read_tracker_file(self._run)}
                artifacts.write_json(self._run / FILE, {**known, "lost": lost})

    def _try(self, call: Callable[[Tracker], None]) -> None:
        if self.tracker is None:
            return
        try:
            call(self.tracker)
        except Exception as error:  # whatever a tracker raises is about the tracker
            self.lose(self._step, error)


def _recorded(run: Path) -> Logger:
    """Return the tracker that a run names, of those that are registered: no code of a class that a file names runs."""
    name = read_tracker_file(run).get("logger", DEFAULT)
    if isinstance(name, str) and name in TRACKERS:
        return name
    notice(f"{run}: was followed by a logger of your own, which goes on only where you name it again by --logger")
    return DEFAULT


def _one_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
