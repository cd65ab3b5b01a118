# SPDX-License-Identifier: Apache-2.0
"""`neurodyn view`: a recording of what a model does, beside its simulator or beside a log."""

from pathlib import Path
from typing import Annotated, Literal

import tyro

from neurodyn.cli.machine import Device


def view(
    run: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")],
    /,
    *,
    out: Path | None = None,
    format: Literal["html", "mp4", "gif"] | None = None,  # noqa: A002
    seed: int = 500,
    seconds: float | None = None,
    driven: bool = False,
    data: str | None = None,
    ground: str | None = None,
    device: Device = "cpu",
) -> None:
    """Record a model and its simulator, or a log, side by side from the same start.

    Args:
        run: Run directory, or pretrained:NAME.
        out: File to write; by default RUN/view.html, or view-NAME.html here for a pretrained model.
        format: html, mp4 (needs the extra `view`) or gif; by default as the file's name ends, else html.
        seed: Seed of the start and of the torques.
        seconds: Length; by default 6 s beside the simulator and 2 s along a log.
        driven: Drive the robot with random torques instead of leaving it passive.
        data: HDF5 store, or an npz log in the layout that the robot declares; by default the log that the model
            was trained on, where it was trained on one.
        ground: One of the robot's grounds by name, or a YAML file with a scene; by default the one that it declares.
        device: Where the model computes: cpu, cuda, cuda:1 ...
    """
    from neurodyn.core.artifacts import require_writable
    from neurodyn.core.errors import InputError
    from neurodyn.report.recording import default_output, record_run
    from neurodyn.report.recording_files import Format, write_recording

    suffix = out.suffix.lower().removeprefix(".") if out is not None else ""
    kinds: dict[str, Format] = {"html": "html", "mp4": "mp4", "gif": "gif"}
    kind = format or kinds.get(suffix) or ("html" if out is None else None)
    if kind is None:
        raise InputError(
            f"{out}: no known kind of recording; valid: a name that ends in .html, .mp4 or .gif, or --format"
        )
    path = out if out is not None else default_output(run, "view", f".{kind}")
    require_writable(path)
    recording = record_run(run, seconds=seconds, seed=seed, driven=driven, data=data, ground=ground, device=device)
    write_recording(recording, path, kind)
    print(f"{recording.seconds:.3g} s of {recording.robot.name}, {recording.title}, {recording.worlds[0]}: {path}")
