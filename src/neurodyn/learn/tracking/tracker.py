# SPDX-License-Identifier: Apache-2.0
"""Trackers by name, and rsl_rl writers (the `LogWriter` protocol of rsl-rl-lib 5.5) as trackers.

The tracker of a training: its choice, RUN/tracker.json, and failures of trackers.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from textwrap import indent
from typing import Any, Concatenate, ParamSpec

from neurodyn.core import artifacts
from neurodyn.core.artifacts import write_text
from neurodyn.core.config import to_yaml
from neurodyn.core.errors import InputError, notice, unknown
from neurodyn.core.provenance import repositories, repository_state
from neurodyn.core.registry import Registry
from neurodyn.learn.devices import current_ranks, first_line


@dataclass(frozen=True)
class Opening:
    """The run for which a tracker is opened.

    Attributes:
        run: Run directory.
        name: Name of its folder, after that of the loop that trains it, if there is one.
        group: Name of the loop over several runs; empty for a single run.
        step: Step from which the run resumes; 0 for a new run.
        known: Result of `Tracker.identity` when the run was tracked before.
    """

    run: Path
    name: str = ""
    group: str = ""
    step: int = 0
    known: Mapping[str, Any] = field(default_factory=dict)


class Tracker:
    """Tracker of one run; a subclass overrides what it supports. If a method raises, training continues without it.

    Attributes:
        title: Its name in messages.
        run: Run directory.
    """

    title: str = "tracker"

    @classmethod
    def require(cls, options: Mapping[str, Any]) -> None:
        """Raise an InputError, before anything is written, if the tracker is unavailable with these options.

        Args:
            options: Further arguments of `__init__`.
        """
        if options:
            raise InputError(f"logger {cls.title}: takes no options, and was given {', '.join(options)}")

    def __init__(self, opening: Opening) -> None:
        self.run = opening.run

    def identity(self) -> dict[str, Any]:
        """Return plain data for RUN/tracker.json that identifies the run."""
        return {}

    def describe(self, config: dict[str, Any], manifest: dict[str, Any]) -> None:
        """Show the run's config.yaml and manifest.json."""

    def write(self, step: int, scalars: Mapping[str, float]) -> None:
        """Show numbers of a step by name; parts of a name are separated by slashes."""

    def keep_model(self, files: Sequence[Path], step: int) -> None:
        """Upload the files of the best model so far."""

    def keep_state(self, files: Sequence[Path], step: int) -> None:
        """Upload the checkpoint to resume from; called when the training ends or is stopped."""

    def keep_file(self, path: Path) -> None:
        """Upload any other file."""

    def show_table(self, title: str, head: Sequence[str], rows: Sequence[Sequence[str]], step: int) -> None:
        """Show a table."""

    def show_film(self, path: Path, step: int) -> None:
        """Show a video or a page: .mp4, .gif or .html."""

    def conclude(self, summary: Mapping[str, Any]) -> None:
        """Show the verdict and the last figures."""

    def close(self, failed: bool) -> None:
        """Close the tracker; `failed` says whether the training raised an error."""

    def abandon(self, error: Exception) -> None:
        """Release resources after a method has failed."""


class NoTracker(Tracker):
    """No tracker; metrics.jsonl alone."""

    title = "none"


TRACKERS: Registry[type[Tracker]] = Registry(
    "logger",
    none=f"{__name__}:NoTracker",
    tensorboard="neurodyn.learn.tracking.tracker:TensorBoard",
    wandb="neurodyn.learn.tracking.wandb_run:WandbRun",
)
"""Trackers by their `--logger` name."""

DEFAULT = "tensorboard"


def write_code_state(run: Path) -> list[Path]:
    """Write commit, status and diff of each repository of the code to RUN/git/NAME.diff.

    Returns:
        The written files; a resumed run keeps its files, and they are not returned.
    """
    written = []
    for repository in repositories():
        path = run / "git" / f"{repository.name}.diff"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            write_text(path, repository_state(repository))
            written.append(path)
    return written


class ServedWriter(Tracker):
    """Calls a `LogWriter` as rsl_rl's Logger does: built with `log_dir`, then one call for each number."""

    title = "LogWriter"

    @classmethod
    def require(cls, options: Mapping[str, Any]) -> None:
        """Raise an InputError for a class without `add_scalar`, or with other arguments than the given ones."""
        writer, arguments = _split(options)
        name = f"{writer.__module__}:{writer.__qualname__}"
        if not callable(getattr(writer, "add_scalar", None)):
            raise InputError(f"logger {name!r} has no add_scalar; valid: a Tracker, or a LogWriter of rsl_rl")
        missing = sorted(getattr(writer, "__abstractmethods__", ()))
        if missing:
            raise InputError(f"logger {name!r} does not define {', '.join(missing)}")
        try:
            inspect.signature(writer).bind(log_dir="", **arguments)
        except TypeError as error:
            raise InputError(
                f"logger {name!r}: {error}; valid: from Python, logger={{'class_name': {name!r}, ...}} with arguments"
            ) from None

    def __init__(self, opening: Opening, **options: Any) -> None:
        super().__init__(opening)
        writer, arguments = _split(options)
        self.title = writer.__name__
        self._writer = writer(log_dir=str(self.run), **arguments)

    def describe(self, config: dict[str, Any], manifest: dict[str, Any]) -> None:
        """Pass on the environment, the settings, and the state of the code."""
        environment = {name: value for name, value in config.items() if name != "settings"}
        training = {**(config.get("settings") or {}), "manifest": manifest}
        self._call("store_config", _Settings(environment), training)
        for path in write_code_state(self.run):
            self.keep_file(path)

    def write(self, step: int, scalars: Mapping[str, float]) -> None:
        """Pass on each number."""
        for tag, value in scalars.items():
            self._writer.add_scalar(tag, value, step)

    def keep_model(self, files: Sequence[Path], step: int) -> None:
        """Pass on the weights as a model, and the other files as files."""
        for path in files:
            if path.suffix in (".safetensors", ".pt"):
                self._call("save_model", str(path), step)
            else:
                self.keep_file(path)

    def keep_file(self, path: Path) -> None:
        """Pass on a file."""
        self._call("save_file", str(path))

    def show_film(self, path: Path, step: int) -> None:
        """Pass on a video; an HTML page is passed on as a file."""
        if path.suffix == ".html":
            self.keep_file(path)
        else:
            self._call("save_video", path, step)

    def close(self, failed: bool) -> None:
        """Stop the writer."""
        self._call("stop")

    def _call(self, name: str, *arguments: Any) -> None:
        """Call an optional method of the writer."""
        method = getattr(self._writer, name, None)
        if method is not None:
            method(*arguments)


class _Settings(dict[str, Any]):
    """Settings of an environment, which rsl_rl writers read by `to_dict`."""

    def to_dict(self) -> dict[str, Any]:
        return dict(self)


def _split(options: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    arguments = dict(options)
    return arguments.pop("writer"), arguments


Logger = str | Mapping[str, Any]
"""Specification of a tracker: a name in `TRACKERS`, "package.module:Class", or a mapping of `class_name` and the
arguments of that class, as rsl_rl's `cfg["logger"]`."""


def name_of(logger: Logger) -> str:
    """Return the name of a tracker or of its class, or raise an InputError for a mapping without one."""
    if isinstance(logger, str):
        return logger
    name = logger.get("class_name")
    if not isinstance(name, str):
        raise InputError("logger: a mapping needs class_name, the name of a logger or PACKAGE.MODULE:CLASS")
    return name


def require_name(logger: str) -> None:
    """Raise an InputError unless a text is a registered name or formatted as a class; imports nothing."""
    module, colon, attribute = logger.partition(":")
    is_class = bool(colon) and all(part.isidentifier() for part in (*module.split("."), *attribute.split(".")))
    if logger not in TRACKERS and not is_class:
        raise unknown("logger", logger, [*TRACKERS, "PACKAGE.MODULE:CLASS"])


def find(logger: Logger) -> tuple[type[Tracker], dict[str, Any]]:
    """Return the class of a tracker and its options, or raise an InputError if there is none of that name."""
    name = name_of(logger)
    options = {} if isinstance(logger, str) else {key: value for key, value in logger.items() if key != "class_name"}
    require_name(name)
    if name in TRACKERS:
        return TRACKERS[name], options
    found = _imported(name)
    if issubclass(found, Tracker):
        return found, options
    return ServedWriter, {"writer": found, **options}


def _imported(name: str) -> type[Any]:
    module, _, attribute = name.partition(":")
    try:
        found: Any = import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except Exception as error:  # its module may raise anything
        raise InputError(f"logger {name!r} cannot be imported ({type(error).__name__}: {error})") from error
    if not isinstance(found, type):
        raise InputError(f"logger {name!r} is no class; valid: a Tracker, or a LogWriter of rsl_rl")
    return found


FOLDER = "tensorboard"


class TensorBoard(Tracker):
    """Writes numbers as scalars, and the configuration, tables and the verdict as texts."""

    title = "TensorBoard"

    def __init__(self, opening: Opening) -> None:
        """Open the log; a resumed run hides the events after its step."""
        from torch.utils.tensorboard import SummaryWriter

        super().__init__(opening)
        self._board = SummaryWriter(str(self.run / FOLDER), purge_step=opening.step + 1 if opening.step else None)

    def describe(self, config: dict[str, Any], manifest: dict[str, Any]) -> None:
        """Write the configuration as a text."""
        self._write_text("config", indent(to_yaml(config), "    ", lambda line: True))

    def write(self, step: int, scalars: Mapping[str, float]) -> None:
        """Write scalars."""
        self._require_folder()
        for name, value in scalars.items():
            self._board.add_scalar(name, value, step)

    def show_table(self, title: str, head: Sequence[str], rows: Sequence[Sequence[str]], step: int) -> None:
        """Write a table as a text in Markdown."""
        lines = [[text.replace("|", "\\|") for text in line] for line in (head, ["---"] * len(head), *rows)]
        self._write_text(title, "\n".join(f"| {' | '.join(line)} |" for line in lines), step)

    def conclude(self, summary: Mapping[str, Any]) -> None:
        """Write the verdict as a text."""
        if summary.get("verdict"):
            self._write_text("verdict", str(summary["verdict"]), int(summary.get("step", 0)))

    def close(self, failed: bool) -> None:
        """Flush and close the log."""
        if self._has_folder():  # without it, its thread fails with a traceback
            self._board.close()

    def _write_text(self, name: str, text: str, step: int = 0) -> None:
        self._require_folder()
        self._board.add_text(name, text, step)

    def _has_folder(self) -> bool:
        return (self.run / FOLDER).is_dir()

    def _require_folder(self) -> None:
        if not self._has_folder():
            raise FileNotFoundError("its folder is gone")


FILE = "tracker.json"

P = ParamSpec("P")

_CHOICE: ContextVar[tuple[Logger, Path] | None] = ContextVar("tracker", default=None)
"""Tracker of the current training, and the outermost folder that it writes."""


@contextmanager
def tracking(logger: Logger | None, out: str | Path) -> Iterator[None]:
    """Log the trainings within the context to a tracker.

    Args:
        logger: The tracker; None for that of the enclosing loop, else that of a resumed run, else TensorBoard.
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
    if current_ranks().leads:  # other ranks do not write
        tracker.require(options)
    return chosen


def chosen_tracker() -> Logger | None:
    """Return the tracker of the current training; None if there is none."""
    choice = _CHOICE.get()
    return None if choice is None else choice[0]


def open_tracker(run: Path, step: int = 0, *, late: bool = False) -> "GuardedTracker":
    """Open the tracker that `tracking` chose for a run.

    Args:
        run: Run directory.
        step: Step from which the run resumes; 0 for a new run.
        late: Whether the work is already done, so that a failure to open the tracker gives a notice instead of an
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
    """A tracker that is dropped with a notice when it fails, while training continues.

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
        """Drop the tracker, with a notice and an entry in RUN/tracker.json."""
        lost, self.tracker = self.tracker, None
        title, reason = self._name if lost is None else lost.title, first_line(error)
        if lost is not None:
            with suppress(Exception):
                lost.abandon(error)
        notice(f"{self._run}: {title}'s log ends here, because {reason}; work goes on without it")
        if self._run.is_dir():
            lost = {"step": self.step, "reason": reason}
            with suppress(InputError, OSError):  # the disk may be the cause
                known = {"logger": self._name, **read_tracker_file(self._run)}
                artifacts.write_json(self._run / FILE, {**known, "lost": lost})


def _recorded(run: Path) -> Logger:
    """Return a run's recorded tracker if it is registered; never import a class named in a file."""
    name = read_tracker_file(run).get("logger", DEFAULT)
    if isinstance(name, str) and name in TRACKERS:
        return name
    notice(f"{run}: was followed by a logger of your own, which goes on only where you name it again by --logger")
    return DEFAULT
