# SPDX-License-Identifier: Apache-2.0
"""TensorBoard: RUN/tensorboard."""

from collections.abc import Mapping, Sequence
from textwrap import indent
from typing import Any

from neurodyn.core.config import to_yaml
from neurodyn.learn.tracking.tracker import Opening, Tracker

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
        if self._has_folder():  # its thread fails with a traceback without it
            self._board.close()

    def _write_text(self, name: str, text: str, step: int = 0) -> None:
        self._require_folder()
        self._board.add_text(name, text, step)

    def _has_folder(self) -> bool:
        return (self.run / FOLDER).is_dir()

    def _require_folder(self) -> None:
        if not self._has_folder():
            raise FileNotFoundError("its folder is gone")
