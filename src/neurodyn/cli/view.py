# SPDX-License-Identifier: Apache-2.0
"""`neurodyn view`: a recording of what a model does, beside its simulator or beside a log."""

from pathlib import Path

from neurodyn.cli.terminal.command import command
from neurodyn.cli.terminal.flags import Format, LoggerFlag
from neurodyn.report.requests import RecordingRequest


@command(RecordingRequest, after={"out": "run", "format": "run"})
def view(
    request: RecordingRequest,
    *,
    out: Path | None = None,
    format: Format | None = None,  # noqa: A002
    live: bool = False,
    logger: LoggerFlag = None,
) -> None:
    """Record a model and its simulator, or a log, side by side from the same start.

    Flags:
        out: File to write; by default RUN/view.html, or view-NAME.html here for a pretrained model.
        format: html, mp4 (needs the extra `view`), gif, or rrd for Rerun's viewer (needs the extra `rerun`); by
            default as the file's name ends, else html.
        live: Show it in a window, in Newton's viewer (needs the extra `live` and a display), until that is closed; a
            file is written with --out or --format alone.
        logger: Show the result in the run's tracker, too: wandb (the run of its training goes on) or tensorboard.

    Example:
        neurodyn view runs/cartpole --out cartpole.gif
    """
    from neurodyn.cli.terminal.flags import keep_recording, recording_file
    from neurodyn.core.artifacts import resolve_run
    from neurodyn.report.recording import record_run

    if live:
        from neurodyn.sim.viewer import require_live

        require_live()
    run, file = str(request.run), None
    if not live or out is not None or format is not None:
        file = recording_file(run, "view", out, format, resolve_run)
    recording = keep_recording(run, logger, file, lambda: record_run(request))
    what = f"{recording.seconds:.3g} s of {recording.robot.name}, {recording.title}, {recording.worlds[0]}"
    if file is not None:
        print(f"{what}: {file.path}")
    if live:
        from neurodyn.sim.viewer import play, window

        print(f"{what}: {recording.predicted_label} and {recording.truth_label}, until the window is closed")
        motions = [path.q[0] for path in (recording.predicted, recording.truth)]
        play(recording.robot, motions, window(), dt=recording.robot.dt, ground=recording.ground)
