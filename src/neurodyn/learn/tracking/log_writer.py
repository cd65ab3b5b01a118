# SPDX-License-Identifier: Apache-2.0
"""Writers of rsl_rl (its `LogWriter` protocol, rsl-rl-lib 5.5) as trackers.

rsl_rl is not imported here: a writer is whatever has `add_scalar`.
"""

import inspect
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from neurodyn.core.errors import InputError
from neurodyn.learn.tracking.code_state import write_code_state
from neurodyn.learn.tracking.tracker import Opening, Tracker

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
