# SPDX-License-Identifier: Apache-2.0
"""What a tracker is, and which there are."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from neurodyn.core.errors import InputError
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
