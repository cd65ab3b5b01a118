# SPDX-License-Identifier: Apache-2.0
"""What a tracker is, which there are, writers of rsl_rl (its `LogWriter` protocol, rsl-rl-lib 5.5) as trackers.

And from what users call a tracker to the tracker.
"""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from neurodyn.core.artifacts import write_text
from neurodyn.core.errors import InputError, unknown
from neurodyn.core.provenance import repositories, repository_state
from neurodyn.core.registry import Registry


@dataclass(frozen=True)
class Opening:
    """What a tracker is opened with.

    Attributes:
        run: Run directory.
        name: What the run is called: the name of its folder, below that of the loop that trains it.
        group: Name of the loop that trains in several runs; empty for a run by itself.
        step: Step after which the run goes on; 0 for one that begins.
        known: What `Tracker.identity` returned when the run was tracked before.
    """

    run: Path
    name: str = ""
    group: str = ""
    step: int = 0
    known: Mapping[str, Any] = field(default_factory=dict)


class Tracker:
    """Follows one run; a subclass overrides what it can show. What a method raises ends the tracker, not the training.

    Attributes:
        title: What it is called in messages.
        run: Run directory.
    """

    title: str = "tracker"

    @classmethod
    def require(cls, options: Mapping[str, Any]) -> None:
        """Refuse to work where it cannot; called before anything is read or written.

        Args:
            options: Further arguments of `__init__`.

        Raises:
            InputError: A package is not installed, a server cannot be reached, or an option is unknown.
        """
        if options:
            raise InputError(f"logger {cls.title}: takes no options, and was given {', '.join(options)}")

    def __init__(self, opening: Opening) -> None:
        """Begin, or go on."""
        self.run = opening.run

    def identity(self) -> dict[str, Any]:
        """Return what finds the run again, as plain data for RUN/tracker.json."""
        return {}

    def describe(self, config: dict[str, Any], manifest: dict[str, Any]) -> None:
        """Show how the run is made: its config.yaml and manifest.json."""

    def write(self, step: int, scalars: Mapping[str, float]) -> None:
        """Show numbers of a step, by names with slashes between their parts."""

    def keep_model(self, files: Sequence[Path], step: int) -> None:
        """Keep the files of the best model so far."""

    def keep_state(self, files: Sequence[Path], step: int) -> None:
        """Keep the checkpoint from which the training goes on; called as it ends or is stopped."""

    def keep_file(self, path: Path) -> None:
        """Keep any other file."""

    def show_table(self, title: str, head: Sequence[str], rows: Sequence[Sequence[str]], step: int) -> None:
        """Show a table."""

    def show_film(self, path: Path, step: int) -> None:
        """Show a film or a page: .mp4, .gif or .html."""

    def conclude(self, summary: Mapping[str, Any]) -> None:
        """Show what the training came to: its verdict and last figures."""

    def close(self, failed: bool) -> None:
        """End."""

    def abandon(self, error: Exception) -> None:
        """Let go after a method has failed."""


class NoTracker(Tracker):
    """Nothing beside metrics.jsonl."""

    title = "none"


TRACKERS: Registry[type[Tracker]] = Registry(
    "logger",
    none=f"{__name__}:NoTracker",
    tensorboard="neurodyn.learn.tracking.tensorboard:TensorBoard",
    wandb="neurodyn.learn.tracking.wandb_run:WandbRun",
)
"""Trackers, by the name behind `--logger`."""

DEFAULT = "tensorboard"


FOLDER = "git"


def write_code_state(run: Path) -> list[Path]:
    """Write commit, status and difference of each repository that the code lies in, as RUN/git/NAME.diff.

    Returns:
        The files; those of a run that goes on stay as they are, with none returned.
    """
    written = []
    for repository in repositories():
        path = run / FOLDER / f"{repository.name}.diff"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            write_text(path, repository_state(repository))
            written.append(path)
    return written


WEIGHTS = (".safetensors", ".pt")
"""Suffixes of files of weights."""


class ServedWriter(Tracker):
    """Calls a `LogWriter` as rsl_rl's own Logger does: built with `log_dir`, then one call for each number."""

    title = "LogWriter"

    @classmethod
    def require(cls, options: Mapping[str, Any]) -> None:
        """Refuse classes without `add_scalar`, and arguments that they do not take."""
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
        """Build the writer."""
        super().__init__(opening)
        writer, arguments = _split(options)
        self.title = writer.__name__
        self._writer = writer(log_dir=str(self.run), **arguments)

    def describe(self, config: dict[str, Any], manifest: dict[str, Any]) -> None:
        """Pass on where the training takes place and its settings, and what differs from the commit."""
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
        """Pass on the weights as a model, and what belongs to them as files."""
        for path in files:
            if path.suffix in WEIGHTS:
                self._call("save_model", str(path), step)
            else:
                self.keep_file(path)

    def keep_file(self, path: Path) -> None:
        """Pass on a file."""
        self._call("save_file", str(path))

    def show_film(self, path: Path, step: int) -> None:
        """Pass on a film; pages go as files."""
        if path.suffix == ".html":
            self.keep_file(path)
        else:
            self._call("save_video", path, step)

    def close(self, failed: bool) -> None:
        """Stop the writer."""
        self._call("stop")

    def _call(self, name: str, *arguments: Any) -> None:
        """Call what a writer need not have."""
        method = getattr(self._writer, name, None)
        if method is not None:
            method(*arguments)


class _Settings(dict[str, Any]):
    """Settings of an environment as writers of rsl_rl ask for them: by `to_dict`."""

    def to_dict(self) -> dict[str, Any]:
        """Return them."""
        return dict(self)


def _split(options: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    arguments = dict(options)
    return arguments.pop("writer"), arguments


Logger = str | Mapping[str, Any]
"""A tracker as users name it: a name in `TRACKERS`, "package.module:Class", or, as rsl_rl's `cfg["logger"]`, a mapping
of `class_name` and the arguments of that class."""


def name_of(logger: Logger) -> str:
    """Return the name of a tracker, or of its class.

    Raises:
        InputError: A mapping has no such name.
    """
    if isinstance(logger, str):
        return logger
    name = logger.get("class_name")
    if not isinstance(name, str):
        raise InputError("logger: a mapping needs class_name, the name of a logger or PACKAGE.MODULE:CLASS")
    return name


def require_name(logger: str) -> None:
    """Refuse what is neither a registered name nor the form of a class; nothing is imported.

    Raises:
        InputError: It is neither.
    """
    if logger not in TRACKERS and not _is_class(logger):
        raise unknown("logger", logger, [*TRACKERS, "PACKAGE.MODULE:CLASS"])


def find(logger: Logger) -> tuple[type[Tracker], dict[str, Any]]:
    """Return the tracker that a user names, and its options.

    Raises:
        InputError: There is none of that name, or its class cannot be imported.
    """
    name = name_of(logger)
    options = {} if isinstance(logger, str) else {key: value for key, value in logger.items() if key != "class_name"}
    require_name(name)
    if name in TRACKERS:
        return TRACKERS[name], options
    found = _imported(name)
    if issubclass(found, Tracker):
        return found, options
    return ServedWriter, {"writer": found, **options}


def _is_class(name: str) -> bool:
    module, colon, attribute = name.partition(":")
    parts = [*module.split("."), *attribute.split(".")]
    return bool(colon) and all(part.isidentifier() for part in parts)


def _imported(name: str) -> type[Any]:
    module, _, attribute = name.partition(":")
    try:
        found: Any = import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except Exception as error:  # whatever its module raises is about the class
        raise InputError(f"logger {name!r} cannot be imported ({type(error).__name__}: {error})") from error
    if not isinstance(found, type):
        raise InputError(f"logger {name!r} is no class; valid: a Tracker, or a LogWriter of rsl_rl")
    return found
