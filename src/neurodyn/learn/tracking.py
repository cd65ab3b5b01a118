# SPDX-License-Identifier: Apache-2.0
"""Trackers: where a training is logged beside RUN/metrics.jsonl, and the choice of one (RUN/tracker.json).

TensorBoard by torch's SummaryWriter, W&B by wandb, and writers of rsl_rl (the `LogWriter` protocol of rsl-rl-lib 5).
"""

import inspect
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from textwrap import indent
from typing import Any, Concatenate, Literal, ParamSpec

from neurodyn.core import artifacts
from neurodyn.core.config import to_yaml
from neurodyn.core.errors import InputError, notice, unknown
from neurodyn.core.extras import require_extra
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
        """Raise an InputError, before anything is written, if it is unavailable with these arguments of `__init__`."""
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


class _NoTracker(Tracker):
    """No tracker; metrics.jsonl alone."""

    title = "none"


class _TensorBoard(Tracker):
    """torch's SummaryWriter: numbers as scalars; the configuration, tables and the verdict as texts."""

    title = "TensorBoard"

    def __init__(self, opening: Opening) -> None:
        from torch.utils.tensorboard import SummaryWriter

        super().__init__(opening)
        self._folder = self.run / "tensorboard"
        # A resumed run hides the events after its step.
        self._board = SummaryWriter(str(self._folder), purge_step=opening.step + 1 if opening.step else None)

    def describe(self, config: dict[str, Any], manifest: dict[str, Any]) -> None:
        self._write_text("config", indent(to_yaml(config), "    ", lambda line: True))

    def write(self, step: int, scalars: Mapping[str, float]) -> None:
        self._require_folder()
        for name, value in scalars.items():
            self._board.add_scalar(name, value, step)

    def show_table(self, title: str, head: Sequence[str], rows: Sequence[Sequence[str]], step: int) -> None:
        lines = [[text.replace("|", "\\|") for text in line] for line in (head, ["---"] * len(head), *rows)]
        self._write_text(title, "\n".join(f"| {' | '.join(line)} |" for line in lines), step)

    def conclude(self, summary: Mapping[str, Any]) -> None:
        if summary.get("verdict"):
            self._write_text("verdict", str(summary["verdict"]), int(summary.get("step", 0)))

    def close(self, failed: bool) -> None:
        if self._folder.is_dir():  # without it, its thread fails with a traceback
            self._board.close()

    def _write_text(self, name: str, text: str, step: int = 0) -> None:
        self._require_folder()
        self._board.add_text(name, text, step)

    def _require_folder(self) -> None:
        if not self._folder.is_dir():
            raise FileNotFoundError("its folder is gone")


_Mode = Literal["online", "offline", "disabled"]
_MODES: dict[str, _Mode] = {"online": "online", "offline": "offline", "disabled": "disabled"}
ANSWER_SECONDS = 10
"""Time within which W&B's server must answer before a training begins [s]."""
_GONE = ("HandleAbandonedError", "MailboxClosedError")
"""wandb's errors when its process does not answer."""


class _WandbRun(Tracker):
    """One run of W&B (extra `wandb`), which a resumed training continues.

    It is on W&B's server if the user is logged in, else in files under RUN/wandb.
    """

    title = "W&B"

    @classmethod
    def require(cls, options: Mapping[str, Any]) -> None:
        super().require(options)
        require_extra(["wandb"], "logger wandb", "wandb")
        if _wandb_mode() == "online":
            import wandb

            try:
                wandb.Api(timeout=ANSWER_SECONDS)
            except Exception as error:  # wandb documents no errors of a login
                raise InputError(
                    f"logger wandb: {first_line(error)}; valid: `wandb login`, WANDB_MODE=offline, or another --logger"
                ) from None

    def __init__(self, opening: Opening) -> None:
        import wandb

        super().__init__(opening)
        self._wandb, self._name = wandb, opening.name
        mode, known, environment = _wandb_mode(), opening.known, os.environ
        options: dict[str, Any] = {"console": "off", "silent": True, "finish_timeout_raises": True}
        if "WANDB_FINISH_TIMEOUT" not in environment:
            options["finish_timeout"] = 120.0  # [s]; what is not sent stays on disk
        if code := repositories():
            options["git_root"] = str(code[-1])  # of the working directory, if it is in one
        self._run = wandb.init(
            dir=self.run, mode=mode, id=known.get("id"), resume="allow", reinit="create_new",
            project=known.get("project") or environment.get("WANDB_PROJECT") or "neurodyn", entity=known.get("entity"),
            name=(not opening.group and environment.get("WANDB_NAME")) or opening.name,
            group=environment.get("WANDB_RUN_GROUP") or opening.group or None, settings=wandb.Settings(**options),
        )  # fmt: skip
        if mode == "offline" and not environment.get("WANDB_MODE"):
            notice(
                f"{self.run}: W&B works offline, because you are not logged in; "
                f"`wandb sync {self.run}/wandb/offline-run-*` sends it later"
            )

    def identity(self) -> dict[str, Any]:
        run, offline = self._run, bool(self._run.offline)
        known = {"id": run.id, "project": run.project, "entity": run.entity, "url": None if offline else run.url}
        return {n: value for n, value in known.items() if value} | {"mode": "offline" if offline else "online"}

    def describe(self, config: dict[str, Any], manifest: dict[str, Any]) -> None:
        self._run.config.update({**config, "manifest": manifest}, allow_val_change=True)
        _keep_code_state(self)

    def write(self, step: int, scalars: Mapping[str, float]) -> None:
        self._run.log(dict(scalars), step=step)

    def keep_model(self, files: Sequence[Path], step: int) -> None:
        self._log_files("model", files, step, ["best", "latest"])

    def keep_state(self, files: Sequence[Path], step: int) -> None:
        self._log_files("checkpoint", files, step, ["latest"])

    def keep_file(self, path: Path) -> None:
        # A copy, because wandb would link to the file itself and warn where links are not possible.
        copy = Path(self._run.dir) / (path.relative_to(self.run) if path.is_relative_to(self.run) else path.name)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
        self._run.save(str(copy), base_path=self._run.dir, policy="now")

    def show_table(self, title: str, head: Sequence[str], rows: Sequence[Sequence[str]], step: int) -> None:
        table = self._wandb.Table(columns=list(head), data=[list(row) for row in rows])
        self._run.log({f"tables/{title}": table}, step=step)

    def show_film(self, path: Path, step: int) -> None:
        film = self._wandb.Html(str(path)) if path.suffix == ".html" else self._wandb.Video(str(path))
        self._run.log({f"films/{path.stem}": film}, step=step)

    def conclude(self, summary: Mapping[str, Any]) -> None:
        self._run.summary.update(dict(summary))

    def close(self, failed: bool) -> None:
        self._run.finish(exit_code=1 if failed else 0)

    def abandon(self, error: Exception) -> None:
        # Without its process, wandb fails at exit, with a traceback.
        if isinstance(error, ConnectionError) or type(error).__name__ in _GONE:
            self._wandb.teardown()

    def _log_files(self, kind: str, files: Sequence[Path], step: int, aliases: list[str]) -> None:
        artifact = self._wandb.Artifact(f"{self._run.id}-{kind}", type=kind, metadata={"step": step, "run": self._name})
        for path in files:
            inside = path.is_relative_to(self.run)
            artifact.add_file(str(path), name=path.relative_to(self.run).as_posix() if inside else path.name)
        self._run.log_artifact(artifact, aliases=aliases)


def _wandb_mode() -> _Mode:
    """Return the mode of WANDB_MODE or of wandb's settings file; by default online if the user is logged in."""
    asked = os.environ.get("WANDB_MODE", "")
    if asked:
        if asked not in _MODES:
            raise InputError(f"WANDB_MODE is {asked!r}; valid: {', '.join(_MODES)}")
        return _MODES[asked]
    import wandb

    written = wandb.setup().settings.mode  # set by `wandb offline` or `wandb disabled`
    if written == "online":
        try:
            known = wandb.login(prompt=False, verify=False) if wandb.run is None else not wandb.run.offline
        except Exception as error:  # wandb documents no errors of a login
            raise InputError(f"logger wandb: {first_line(error)}; valid: `wandb login`, WANDB_MODE=offline") from None
        return "online" if known else "offline"
    return "disabled" if written == "disabled" else "offline"


def _keep_code_state(tracker: Tracker) -> None:
    """Keep commit, status and diff of each repository of the code, RUN/git/NAME.diff; a resumed run has them."""
    for repository in repositories():
        path = tracker.run / "git" / f"{repository.name}.diff"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            artifacts.write_text(path, repository_state(repository))
            tracker.keep_file(path)


class _ServedWriter(Tracker):
    """Calls a `LogWriter` as rsl_rl's Logger does: built with `log_dir`, then one call for each number."""

    title = "LogWriter"

    @classmethod
    def require(cls, options: Mapping[str, Any]) -> None:
        arguments = dict(options)
        writer: Any = arguments.pop("writer")
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

    def __init__(self, opening: Opening, *, writer: Any, **arguments: Any) -> None:
        super().__init__(opening)
        self.title = writer.__name__
        self._writer = writer(log_dir=str(self.run), **arguments)

    def describe(self, config: dict[str, Any], manifest: dict[str, Any]) -> None:
        environment = _Settings({name: value for name, value in config.items() if name != "settings"})
        self._call("store_config", environment, {**(config.get("settings") or {}), "manifest": manifest})
        _keep_code_state(self)

    def write(self, step: int, scalars: Mapping[str, float]) -> None:
        for tag, value in scalars.items():
            self._writer.add_scalar(tag, value, step)

    def keep_model(self, files: Sequence[Path], step: int) -> None:
        for path in files:
            if path.suffix in (".safetensors", ".pt"):
                self._call("save_model", str(path), step)
            else:
                self.keep_file(path)

    def keep_file(self, path: Path) -> None:
        self._call("save_file", str(path))

    def show_film(self, path: Path, step: int) -> None:
        if path.suffix == ".html":
            self.keep_file(path)
        else:
            self._call("save_video", path, step)

    def close(self, failed: bool) -> None:
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


TRACKERS: Registry[type[Tracker]] = Registry("logger")
"""Trackers by their `--logger` name."""
TRACKERS.add("none", _NoTracker)
TRACKERS.add("tensorboard", _TensorBoard)
TRACKERS.add("wandb", _WandbRun)

FILE, DEFAULT = "tracker.json", "tensorboard"

Logger = str | Mapping[str, Any]
"""Specification of a tracker: a name in `TRACKERS`, "package.module:Class", or a mapping of `class_name` and the
arguments of that class, as rsl_rl's `cfg["logger"]`."""

P = ParamSpec("P")


def require_name(logger: str) -> None:
    """Raise an InputError unless a text is a registered name or formatted as a class; imports nothing."""
    module, colon, attribute = logger.partition(":")
    is_class = bool(colon) and all(part.isidentifier() for part in (*module.split("."), *attribute.split(".")))
    if logger not in TRACKERS and not is_class:
        raise unknown("logger", logger, [*TRACKERS, "PACKAGE.MODULE:CLASS"])


def _name_of(logger: Logger) -> str:
    name = logger if isinstance(logger, str) else logger.get("class_name")
    if not isinstance(name, str):
        raise InputError("logger: a mapping needs class_name, the name of a logger or PACKAGE.MODULE:CLASS")
    return name


def _class_of(logger: Logger) -> tuple[type[Tracker], dict[str, Any]]:
    """Return the class of a tracker and its options, or raise an InputError if there is none of that name."""
    name = _name_of(logger)
    options = {} if isinstance(logger, str) else {key: value for key, value in logger.items() if key != "class_name"}
    require_name(name)
    if name in TRACKERS:
        return TRACKERS[name], options
    module, _, attribute = name.partition(":")
    try:
        own: Any = import_module(module)
        for part in attribute.split("."):
            own = getattr(own, part)
    except Exception as error:  # its module may raise anything
        raise InputError(f"logger {name!r} cannot be imported ({type(error).__name__}: {error})") from error
    if not isinstance(own, type):
        raise InputError(f"logger {name!r} is no class; valid: a Tracker, or a LogWriter of rsl_rl")
    return (own, options) if issubclass(own, Tracker) else (_ServedWriter, {"writer": own, **options})


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
    chosen = _recorded_tracker(Path(out)) if logger is None else logger
    tracker, options = _class_of(chosen)
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
    logger, root = _CHOICE.get() or (_recorded_tracker(run), run)
    top, before, title = root.resolve(), read_tracker_file(run), _name_of(logger)
    within = top in run.resolve().parents
    tracker, options = _class_of(logger)
    name = "/".join((top.name, *run.resolve().relative_to(top).parts)) if within else run.resolve().name
    known = before.get("runs", {}).get(title, {})
    guarded = GuardedTracker(run, title, step)
    try:
        guarded.tracker = tracker(Opening(run, name, top.name if within else "", step, known), **options)
        if (logger, before) != (DEFAULT, {}):
            runs = {**before.get("runs", {}), title: guarded.tracker.identity()}
            artifacts.write_json(run / FILE, {"logger": title, "runs": {k: v for k, v in runs.items() if v}})
    except Exception as error:  # trackers raise anything
        if within or late:
            guarded.lose(error)
        elif isinstance(error, InputError):
            raise
        else:
            raise InputError(f"logger {title}: {first_line(error)}; valid: another --logger") from error
    return guarded


def read_tracker_file(run: Path) -> dict[str, Any]:
    """Return RUN/tracker.json, or raise an InputError if it is damaged.

    Its keys are `logger`, `runs` (identity of the run by tracker), and `lost` if the tracker failed.
    """
    path = run / FILE
    content = artifacts.read_json(path) if path.is_file() else {}
    if not (isinstance(content, dict) and isinstance(content.get("runs", {}), dict)):
        raise InputError(f"{path}: not the tracker file of a run; remove it to begin another one there")
    return content


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
        if self.tracker is not None:
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
        notice(f"{self._run}: {title}'s log ends here, because {reason}; the work continues without it")
        if self._run.is_dir():
            with suppress(InputError, OSError):  # the disk may be the cause
                known = {"logger": self._name, **read_tracker_file(self._run)}
                artifacts.write_json(self._run / FILE, {**known, "lost": {"step": self.step, "reason": reason}})


def _recorded_tracker(run: Path) -> Logger:
    """Return a run's recorded tracker if it is registered; never import a class named in a file."""
    name = read_tracker_file(run).get("logger", DEFAULT)
    if isinstance(name, str) and name in TRACKERS:
        return name
    notice(f"{run}: was followed by a logger of your own, which goes on only where you name it again by --logger")
    return DEFAULT
