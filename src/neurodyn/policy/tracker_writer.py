# SPDX-License-Identifier: Apache-2.0
"""Our trackers inside rsl_rl's own runners: a `LogWriter` (rsl-rl-lib 5.5) that writes what our trainings write."""

import math
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any

from rsl_rl.utils import LogWriter

from neurodyn.learn.metrics import MetricsLog
from neurodyn.learn.tracking.tracker import Logger, tracking

_SECONDS = "/time"
"""End of the tags whose step rsl_rl gives in seconds of training; the same numbers come by iteration, too."""


class TrackerWriter(LogWriter):
    """Writes `log_dir/metrics.jsonl` and a tracker from a runner of rsl_rl.

    In its configuration: `cfg["logger"] = {"class_name": "neurodyn.policy:TrackerWriter", "logger": "wandb"}`.
    """

    def __init__(self, log_dir: str, logger: Logger = "tensorboard") -> None:
        """Open the log of a run; raises an InputError where the tracker (`learn.train`) is unknown or cannot work."""
        self._run = Path(log_dir)
        with tracking(logger, self._run):
            self._log = MetricsLog(self._run)
        self._step, self._line = 0, dict[str, float]()

    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> None:
        """Add a number to the line of its iteration, which is written when the next one begins."""
        if tag.endswith(_SECONDS):
            return
        if global_step != self._step:
            self._write_line()
            self._step = global_step
        self._line[tag] = float(scalar_value)

    def store_config(self, env_cfg: dict[str, Any] | object, train_cfg: dict[str, Any]) -> None:
        """Show the configurations."""
        self._log.describe({"environment": _plain(env_cfg), "settings": _plain(train_cfg)})

    def save_model(self, model_path: str, it: int) -> None:
        """Keep a checkpoint."""
        self._write_line()
        self._log.keep_files([Path(model_path)])

    def save_file(self, path: str) -> None:
        """Keep a file."""
        self._log.keep_file(Path(path))

    def save_video(self, video: Path, it: int) -> None:
        """Show a film."""
        self._log.show_film(Path(video))

    def stop(self) -> None:
        """Write the last line, and end."""
        self._write_line()
        self._log.__exit__(None, None, None)

    def _write_line(self) -> None:
        if self._line:
            self._log.write(self._step, **self._line)
        self._line = {}


def _plain(value: Any) -> Any:
    """Return a configuration as plain data: what else is in it becomes text."""
    if hasattr(value, "to_dict"):
        return _plain(value.to_dict())
    if is_dataclass(value) and not isinstance(value, type):
        return _plain(asdict(value))
    if isinstance(value, dict):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    plain = value is None or isinstance(value, bool | int | str) or (isinstance(value, float) and math.isfinite(value))
    return value if plain else str(value)
