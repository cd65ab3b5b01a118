# SPDX-License-Identifier: Apache-2.0
"""How verbs record: where the file goes, refused before any work, progress, and the tracker."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from neurodyn.learn.tracking.lookup import Logger
    from neurodyn.report.recording import Recording

Format = Literal["html", "mp4", "gif", "rrd"]
"""Format of a recording's file."""

_RECORD = 0.4
"""Share of the progress up to which motion is computed; the file takes the rest."""


@dataclass(frozen=True)
class RecordingFile:
    """The file of a recording.

    Attributes:
        path: Where it goes.
        kind: Its format.
    """

    path: Path
    kind: Format


def recording_file(
    run: str, stem: str, out: Path | None, asked: Format | None, resolve: Callable[[str], Path]
) -> RecordingFile:
    """Return the file that a recording of a run goes to.

    Args:
        run: Run, or policy.
        stem: Name of the file where the user gives none.
        out: File that the user gives.
        asked: Format that the user gives.
        resolve: Returns the folder of the run.

    Raises:
        InputError: The file cannot be written, its name says no format, or what writes it is not installed.
    """
    from neurodyn.core.artifacts import require_writable
    from neurodyn.report.recording import default_output
    from neurodyn.report.recording_files import format_of
    from neurodyn.report.rerun_file import require_rerun

    kind = format_of(out, asked)
    if kind == "rrd":
        require_rerun()
    path = default_output(run, stem, f".{kind}", resolve) if out is None else out
    require_writable(path)
    return RecordingFile(path, kind)


def keep_recording(
    run: str, logger: "Logger | None", file: RecordingFile | None, record: "Callable[[], Recording]"
) -> "Recording":
    """Record, write the file, and show it in the tracker of the run.

    Args:
        run: Run, or policy.
        logger: The tracker; None for none.
        file: The file; None to write none.
        record: Computes the motion.

    Raises:
        InputError: As of what records and writes, or the tracker cannot work.
    """
    from neurodyn.cli.terminal.progress import ProgressBar
    from neurodyn.core.progress import stage
    from neurodyn.learn.tracker_results import require_followed, show_results
    from neurodyn.report.recording_files import write_recording

    require_followed(logger, run)
    with ProgressBar(f"recording {run}"):
        with stage(0.0, 1.0 if file is None else _RECORD):
            recording = record()
        if file is not None:
            with stage(_RECORD, 1.0):
                write_recording(recording, file.path, file.kind)
    if file is not None:
        show_results(run, logger, films=[file.path])
    return recording
