# SPDX-License-Identifier: Apache-2.0
"""Metrics of a training, as JSON lines and in its tracker, and later results shown in the tracker."""

import copy
import json
import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from neurodyn.core.artifacts import PRETRAINED, PRETRAINED_POLICY, make_folder, read_json, write_text
from neurodyn.core.config import to_dict
from neurodyn.core.errors import InputError, notice
from neurodyn.core.locks import exclusive
from neurodyn.core.plain_data import read_text
from neurodyn.learn.manifest import MANIFEST, RunRecord, start_run
from neurodyn.learn.tracking import Logger, Tracker, open_tracker, require_tracker, tracking

if TYPE_CHECKING:
    import torch


_MODELS = ("model/*", "policy.safetensors", "config.json", "policy/*", "blueprint.yaml", "config.yaml", "manifest.json")


class MetricsLog:
    """Writes the metrics of a training to RUN/metrics.jsonl and to the tracker chosen by `learn.tracking`."""

    def __init__(self, run: Path, step: int = 0) -> None:
        """Open the log; a resumed training removes the closing line and all lines after `step`.

        Raises:
            InputError: The tracker cannot be opened.
        """
        make_folder(run)
        self._first, self._run, self._tracker = 0, run, open_tracker(run, step)
        path = run / "metrics.jsonl"
        entries = [(line, _entry(line, path)) for line in _complete_lines(path)] if step else []
        kept = (line for line, entry in entries if entry and entry["step"] <= step and not entry.get("finished"))
        write_text(path, "".join(kept))
        self._file = path.open("a", encoding="utf-8")
        self._kept: dict[Path, tuple[int, int]] = {}

    def start(self, record: RunRecord[Any], device: "torch.device | str" = "cpu") -> None:
        """Write config.yaml and manifest.json (`manifest.start_run`), and show both in the tracker."""
        start_run(self._run, record, device=device)
        self.describe(to_dict(record), read_json(self._run / MANIFEST))

    def describe(self, config: dict[str, Any], manifest: dict[str, Any] | None = None) -> None:
        """Show a configuration in the tracker."""
        self._tracker.attempt(Tracker.describe, config, manifest or {})

    def write(self, step: int, **values: Any) -> None:
        """Append one line, and pass its numbers to the tracker. Numbers that are not finite are written as null."""
        step += self._first
        self._file.write(json.dumps({"step": step, **_finite(values)}, allow_nan=False) + "\n")
        self._file.flush()
        self._tracker.step = step
        self._tracker.attempt(Tracker.write, step, dict(_scalars(values)))
        if values.get("finished"):
            self._tracker.attempt(Tracker.conclude, {"step": step, **_finite(values)})

    def keep_model(self) -> None:
        """Upload the model in the run directory to the tracker if it has changed."""
        files = model_files(self._run)
        stamps = {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in files}
        if any(path.suffix == ".safetensors" for path in files) and stamps != self._kept:
            self._kept = stamps
            self.keep_files(files)

    def keep_files(self, files: Sequence[Path]) -> None:
        """Upload the files of a model to the tracker."""
        self._tracker.attempt(Tracker.keep_model, files, self._tracker.step)

    def keep_file(self, path: Path) -> None:
        """Upload any other file to the tracker."""
        self._tracker.attempt(Tracker.keep_file, path)

    def show_film(self, path: Path) -> None:
        """Show a video in the tracker."""
        self._tracker.attempt(Tracker.show_film, path, self._tracker.step)

    def conclude(self, **summary: Any) -> None:
        """Show the outcome of a training in the tracker, for trainings without a closing line of metrics."""
        self._tracker.attempt(Tracker.conclude, _finite(summary))

    def show_table(self, title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Show a table in the tracker."""
        self._tracker.attempt(Tracker.show_table, title, head, rows, self._tracker.step)

    def after(self, first: int) -> "MetricsLog":
        """Return the same log for a stage whose step numbers start at `first`."""
        stage = copy.copy(self)
        stage._first = first
        return stage

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
        self.keep_model()
        state = _files(self._run, "state/*")
        if state:
            self._tracker.attempt(Tracker.keep_state, state, self._tracker.step)
        self._tracker.attempt(Tracker.close, failed=kind is not None)


def read_metrics(run: Path) -> list[dict[str, Any]]:
    """Return the lines of RUN/metrics.jsonl; an empty list if there is no such file."""
    path = run / "metrics.jsonl"
    entries = [_entry(line, path) for line in _complete_lines(path)]
    return [entry for entry in entries if entry is not None]


def best_metric(run: Path, name: str, best: Callable[[list[float]], float]) -> float | None:
    """Return the best value, by `min` or `max`, of a metric during a training; None if it was never measured.

    Validations with fewer roll-outs that are finite count only if no other has more (`rollout_errors.Ranking`).
    """
    lines = [line for line in read_metrics(run) if isinstance(line.get(name), int | float)]
    finite = [line.get("finite_fraction", 1.0) for line in lines]
    values = [float(line[name]) for line, share in zip(lines, finite, strict=True) if share == max(finite)]
    return best(values) if values else None


def _complete_lines(path: Path) -> list[str]:
    if not path.exists():
        return []
    text = read_text(path, "lines of JSON", errors="replace")
    return [line for line in text.splitlines(keepends=True) if line.endswith("\n")]


def _entry(line: str, path: Path) -> dict[str, Any] | None:
    """Return the entry of a line; None, with a notice, if the line is damaged."""
    with suppress(ValueError, RecursionError):
        entry = json.loads(line)
        if isinstance(entry, dict) and isinstance(entry.get("step"), int):
            return entry
    notice(f"{path}: left out a damaged line ({line.strip()[:40]!r})")
    return None


def model_files(run: Path) -> list[Path]:
    """Return the files from which the model of a run directory, or a policy, is read."""
    return _files(run, *_MODELS)


def _files(run: Path, *patterns: str) -> list[Path]:
    return [path for pattern in patterns for path in sorted(run.glob(pattern)) if path.is_file()]


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _scalars(values: dict[str, Any], prefix: str = "") -> list[tuple[str, float]]:
    """Return finite numbers by names with slashes."""
    scalars = []
    for name, value in values.items():
        if isinstance(value, dict):
            scalars += _scalars(value, f"{prefix}{name}/")
        elif isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
            scalars.append((prefix + name, float(value)))
    return scalars


def require_followed(logger: Logger | None, run: str | Path) -> None:
    """Raise an InputError, before the work, if `logger` is given but results cannot be shown in the run's tracker.

    That is so if the run ships with the package, or the tracker is unavailable.
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
    tables: Iterable[tuple[str, Sequence[str], Sequence[Sequence[str]]]] = (),
    films: Sequence[Path] = (),
    summary: dict[str, Any] | None = None,
    model: bool = False,
) -> None:
    """Add results to a run's training in its tracker.

    Args:
        run: Run directory.
        logger: The tracker; None to show nothing.
        tables: Title, column names and rows of text of each table; tables without rows are left out.
        films: Videos and HTML pages.
        summary: Figures to add to the training's.
        model: Whether the model in the run directory was replaced after the training.

    Raises:
        InputError: See `require_followed`; or another process writes the run.
    """
    require_followed(logger, run)
    if logger is None:
        return
    folder = Path(run)
    step = max((entry["step"] for entry in read_metrics(folder)), default=0)
    with exclusive(folder), tracking(logger, folder):
        tracker = open_tracker(folder, step, late=True)
        if model:
            tracker.attempt(Tracker.keep_model, model_files(folder), step)
        for title, head, rows in tables:
            if rows:
                tracker.attempt(Tracker.show_table, title, head, rows, step)
        for film in films:
            tracker.attempt(Tracker.show_film, film, step)
        if summary:
            tracker.attempt(Tracker.conclude, {"step": step, **summary})
        tracker.attempt(Tracker.close, failed=False)
