# SPDX-License-Identifier: Apache-2.0
"""What a training reports as it goes: JSON lines always, and TensorBoard."""

import copy
import json
import math
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from neurodyn.core.artifacts import write_text
from neurodyn.core.notices import notice
from neurodyn.core.plain_data import read_text


class MetricsLog:
    """RUN/metrics.jsonl and RUN/tensorboard, cut back to where a resumed training goes on."""

    def __init__(self, run: Path, step: int = 0) -> None:
        """Open the log; lines that a killed training wrote after `step`, and the note of an end, are dropped."""
        from torch.utils.tensorboard import SummaryWriter

        run.mkdir(parents=True, exist_ok=True)
        path = run / "metrics.jsonl"
        kept = [line for line in _complete_lines(path) if _before(_entry(line, path), step)] if step else []
        write_text(path, "".join(kept))
        self._first, self._run = 0, run
        self._file = path.open("a", encoding="utf-8")
        self._board = SummaryWriter(str(run / "tensorboard"), purge_step=step or None)

    def write(self, step: int, **values: Any) -> None:
        """Append one line; numbers also go to TensorBoard. What is not finite becomes null, as JSON has no NaN."""
        step += self._first
        self._file.write(json.dumps({"step": step, **_finite(values)}, allow_nan=False) + "\n")
        self._file.flush()
        if not self._has_board():
            notice(f"{self._run}: TensorBoard's log ends here, because its folder is gone; the training goes on")
            return
        with suppress(OSError, RuntimeError, ValueError):  # its own thread met a full disk
            for name, value in _scalars(values):
                self._board.add_scalar(name, value, step)

    def after(self, first: int) -> "MetricsLog":
        """Return the same log for a stage whose steps count from `first`."""
        stage = copy.copy(self)
        stage._first = first
        return stage

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
        with suppress(OSError, RuntimeError, ValueError):
            if self._has_board():
                self._board.close()

    def _has_board(self) -> bool:
        """Return whether TensorBoard's folder is there, without which its thread fails with a traceback."""
        return (self._run / "tensorboard").is_dir()


def read_metrics(run: Path) -> list[dict[str, Any]]:
    """Return the lines of RUN/metrics.jsonl; none where there is no such file."""
    path = run / "metrics.jsonl"
    entries = [_entry(line, path) for line in _complete_lines(path)]
    return [entry for entry in entries if entry is not None]


def _complete_lines(path: Path) -> list[str]:
    if not path.exists():
        return []
    text = read_text(path, "lines of JSON", errors="replace")
    return [line for line in text.splitlines(keepends=True) if line.endswith("\n")]


def _entry(line: str, path: Path) -> dict[str, Any] | None:
    """Return a line as it was written; None of one that is damaged, with a notice."""
    with suppress(ValueError, RecursionError):
        entry = json.loads(line)
        if isinstance(entry, dict) and isinstance(entry.get("step"), int):
            return entry
    notice(f"{path}: left out a damaged line ({line.strip()[:40]!r})")
    return None


def _before(entry: dict[str, Any] | None, step: int) -> bool:
    return entry is not None and entry["step"] <= step and not entry.get("finished")


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _scalars(values: dict[str, Any], prefix: str = "") -> list[tuple[str, float]]:
    found = []
    for name, value in values.items():
        if isinstance(value, dict):
            found += _scalars(value, f"{prefix}{name}/")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            found.append((prefix + name, float(value)))
    return found
