# SPDX-License-Identifier: Apache-2.0
"""Recordings as files: a page with controls, a GIF, or a film."""

from html import escape
from pathlib import Path
from typing import Literal, get_args

import numpy as np

from neurodyn.core.artifacts import atomic, write_text
from neurodyn.core.errors import InputError
from neurodyn.report.page import data_uri, header, moving_picture, page, paragraph, section
from neurodyn.report.pictures import film_writer, gif_bytes, pictures, still_bytes, webp_bytes, write_mp4
from neurodyn.report.plots import PREDICTED, TRUTH, legend_list
from neurodyn.report.recording import Recording
from neurodyn.report.rerun_file import write_rrd
from neurodyn.report.samples import trajectory_plots

Format = Literal["html", "mp4", "gif", "rrd"]

_SCRIPT = Path(__file__).resolve().parent / "player.js"


def format_of(out: Path | None, asked: Format | None) -> Format:
    """Return the kind of recording that a user asks for: by its name, as the file's name ends, or a page.

    Raises:
        InputError: The name of the file says nothing.
    """
    suffix = "html" if out is None else out.suffix.lower().removeprefix(".")
    found = asked or next((kind for kind in get_args(Format) if kind == suffix), None)
    if found is None:
        raise InputError(
            f"{out}: no known kind of recording; valid: a name that ends in .html, .mp4, .gif or .rrd; or --format"
        )
    return found


def write_recording(recording: Recording, path: Path, kind: Format) -> None:
    """Write a recording, atomically.

    Without Newton a page still shows the motion as plots.

    Args:
        recording: What to show; of several roll-outs, pictures show the first.
        path: File to write.
        kind: "html", "mp4", "gif", or "rrd" for Rerun's viewer.

    Raises:
        InputError: Newton, or the package that writes films or Rerun files, is not installed, or the file cannot be
            written.
    """
    if kind == "html":
        write_text(path, recording_page(recording))
        return
    if kind == "rrd":
        write_rrd(recording, path)
        return
    if kind == "mp4":
        film_writer()  # whether it is there shows before anything is rendered
    frames, interval = pictures(recording)
    if kind == "mp4":
        write_mp4(frames, interval, path)
        return
    data = gif_bytes(frames, interval)
    with atomic(path) as partial:
        partial.write_bytes(data)


def recording_page(recording: Recording) -> str:
    """Return a self-contained page: pictures with controls, and the coordinates over time."""
    name = recording.robot.name
    title = f"{name}: {recording.predicted_label} beside {recording.truth_label}"
    caption = f"{name}, {recording.title}, {recording.worlds[0]}"
    legend = legend_list([(recording.predicted_label, PREDICTED), (recording.truth_label, TRUTH)])
    try:
        shown = _player(*pictures(recording), caption)
    except InputError as error:
        shown = paragraph(f"No pictures: {error}", "note")
    body = [
        header(title, f"{caption}.", eyebrow="neurodyn"),
        shown,
        section("Coordinates over time", legend, *trajectory_plots(recording, "view")),
    ]
    return page(title, body, _SCRIPT.read_text(encoding="utf-8"))


def readme_gif(recording: Recording, path: Path, *, most_bytes: int = 1_500_000) -> int:
    """Write a GIF that is small enough for a README, with as many pictures as fit.

    Args:
        recording: What to show.
        path: File to write.
        most_bytes: Greatest size.

    Returns:
        Size of the file [bytes].

    Raises:
        InputError: Newton is not installed, or no rate of pictures makes the file small enough.
    """
    for rate in (20.0, 15.0, 10.0, 5.0):
        data = gif_bytes(*pictures(recording, width=320, height=190, rate=rate), colours=48)
        if len(data) <= most_bytes:
            with atomic(path) as partial:
                partial.write_bytes(data)
            return len(data)
    raise InputError(f"{path}: {recording.seconds:g} s of pictures exceed {most_bytes:,} bytes; record a shorter time")


def _player(frames: np.ndarray, interval: float, caption: str) -> str:
    size = (frames.shape[2], frames.shape[1])
    sources = [data_uri(still_bytes(frame, quality=75), "image/webp") for frame in frames]
    listed = ",\n".join(f'"{source}"' for source in sources)
    without_script = moving_picture(webp_bytes(frames, interval), still_bytes(frames[0]), size, caption)
    return "\n".join(
        [
            f"<noscript>{without_script}</noscript>",
            f'<figure class="wide" id="player" data-interval="{1000 * interval:.3f}" hidden>',
            f'<img width="{size[0]}" height="{size[1]}" alt="{escape(caption)}">',
            '<div class="player"><button type="button">Pause</button>',
            f'<input type="range" min="0" max="{len(frames) - 1}" value="0" aria-label="time"></div>',
            f"<figcaption>{escape(caption)}, in real time</figcaption></figure>",
            f'<script type="application/json" id="frames">[{listed}]</script>',
        ]
    )
