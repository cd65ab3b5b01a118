# SPDX-License-Identifier: Apache-2.0
"""Recordings as files (interactive page, GIF, MP4, Rerun), sample roll-outs and drawn motions on pages."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from torch import Tensor

from neurodyn.core.artifacts import atomic, write_text
from neurodyn.core.description.spec import StateSpec
from neurodyn.core.errors import InputError
from neurodyn.core.extras import import_extra
from neurodyn.evaluate.records import Simulated
from neurodyn.report.gather import ReportMaterial
from neurodyn.report.numbers import capital
from neurodyn.report.page import data_uri, element, grid, header, heading, page, paragraph, section
from neurodyn.report.plots import PREDICTED, TRUTH, PlotCurve, Span, legend_list, plot
from neurodyn.report.recording import Recording, film, film_writer, gif_bytes, pictures, still_bytes, write_mp4
from neurodyn.robots import Robot
from neurodyn.sim.bodies import rotation

_COLOURS = {"predicted": (217, 72, 15), "truth": (25, 113, 194)}
MOST_COORDINATES = 8


def require_rerun() -> Any:
    """Return the rerun package, or raise an InputError if it is not installed."""
    return import_extra("rerun", "rrd", "rerun", package="rerun-sdk", instead="ask for --format html")


def write_rrd(recording: Recording, path: Path) -> None:
    """Write the first roll-out as a Rerun file, atomically.

    Entities: `PREDICTION/LINK` and `TRUTH/LINK` with poses over the timeline `time`; `coordinates/NAME/PREDICTION` and
    `coordinates/NAME/TRUTH`. Link poses need Newton, and are left out without it.
    """
    rerun = require_rerun()
    spec = recording.robot.spec
    paths = {recording.predicted_label: recording.predicted, recording.truth_label: recording.truth}
    with atomic(path) as partial:
        stream = rerun.RecordingStream("neurodyn")
        stream.save(partial)
        stream.send_recording_name(f"{recording.robot.name}, {recording.title}, {recording.worlds[0]}")
        for (label, motion), colour in zip(paths.items(), _COLOURS.values(), strict=True):
            q = motion.q[0].detach().cpu()
            for i, (name, unit) in enumerate(zip(spec.q_names, spec.q_units, strict=True)):
                entity = f"coordinates/{_part(name)}/{_part(label)}"
                line = rerun.SeriesLines(colors=[colour], names=[f"{name} [{unit}], {label}"])
                stream.log(entity, line, static=True)
                values = rerun.Scalars.columns(scalars=q[:, i].double().numpy())
                stream.send_columns(entity, indexes=[_times(rerun, spec.dt, len(q))], columns=values)
            _write_links(rerun, stream, recording, label, q, colour)
        stream.flush()
        stream.disconnect()


def _write_links(
    rerun: Any, stream: Any, recording: Recording, label: str, q: Tensor, colour: tuple[int, int, int]
) -> None:
    from neurodyn.sim.pictures import link_motion

    try:
        motion = link_motion(recording.robot, q)
    except InputError:
        return
    for i, (name, (points, triangles)) in enumerate(zip(motion.names, motion.meshes, strict=True)):
        entity = f"{_part(label)}/{_part(name)}"
        if len(triangles):
            mesh = rerun.Mesh3D(vertex_positions=points, triangle_indices=triangles, albedo_factor=(*colour, 255))
            stream.log(entity, mesh, static=True)
        pose = motion.poses[:, i].astype(np.float32)
        columns = rerun.Transform3D.columns(translation=pose[:, :3], quaternion=pose[:, 3:])
        stream.send_columns(entity, indexes=[_times(rerun, recording.robot.dt, len(q))], columns=columns)


def _times(rerun: Any, dt: float, states: int) -> Any:
    return rerun.TimeColumn("time", duration=dt * np.arange(states))


def _part(name: str) -> str:
    return "".join(c if c.isalnum() or c in "-_." else "-" for c in name)


def moving(material: ReportMaterial) -> str:
    """Return the animation; empty without one."""
    if material.frames is None:
        return ""
    recording, frames = material.recordings[0], material.frames
    caption = (
        f"{material.result.about.robot}, {recording.title}: {recording.predicted_label} beside "
        f"{recording.truth_label}, {recording.worlds[0]}, in real time"
    )
    return film(frames, material.interval, caption)


def trajectories(material: ReportMaterial) -> str:
    """Return the section with plots of the sample roll-outs."""
    if not material.recordings:
        return ""
    first = material.recordings[0]
    legend = legend_list([(first.predicted_label, PREDICTED), (first.truth_label, TRUTH)])
    evaluated = material.result.about.horizon * material.result.about.dt
    parts = [part for k, r in enumerate(material.recordings) for part in trajectory_plots(r, f"sample-{k}", evaluated)]
    lead = (
        "The first roll-outs of the seed, not chosen by how well they went."
        if isinstance(material.result, Simulated)
        else "Windows drawn by seed from those in which the robot moves, not chosen by how well they went. The model "
        "sees the recorded commands and nothing of the recorded motion after time 0."
    )
    return section("Sample trajectories", legend, *parts, lead=lead)


def trajectory_plots(recording: Recording, name: str, evaluated: float | None = None) -> list[str]:
    """Return headings and plots of position coordinates over time for all roll-outs of a recording.

    `name` prefixes the plot names; the time beyond the `evaluated` horizon [s] is marked.
    """
    spec = recording.robot.spec
    seconds = [k * spec.dt for k in range(recording.frames + 1)]
    spans = []
    if evaluated is not None and evaluated < recording.seconds - spec.dt:
        spans = [Span(0.0, evaluated, "evaluated"), Span(evaluated, recording.seconds, "beyond the evaluation")]
    parts = []
    for world, where in enumerate(recording.worlds):
        plots = []
        for i, coordinate, unit in _first_coordinates(spec):
            truth, predicted = recording.truth.q[world, :, i], recording.predicted.q[world, :, i]
            curves = [
                PlotCurve(recording.truth_label, seconds, truth.tolist(), TRUTH, "-", 4.0, 0.5),
                PlotCurve(recording.predicted_label, seconds, predicted.tolist(), PREDICTED, "-", 1.2),
            ]
            caption, words = f"{coordinate} [{unit}]", f"{coordinate} over time, {where}"
            key = f"{name}-{world}-{i}"
            plots.append(plot(key, curves, caption=caption, legend=False, spans=spans, description=words))
        parts += [heading(f"{capital(recording.title)}: {where}"), grid(plots)]
    return parts


def _first_coordinates(spec: StateSpec) -> list[tuple[int, str, str]]:
    """Return index, name and unit of the first coordinates, without quaternion components."""
    named = [(i, *of) for i, of in enumerate(zip(spec.q_names, spec.q_units, strict=True)) if of[1] != "1"]
    return named[:MOST_COORDINATES]


Format = Literal["html", "mp4", "gif", "rrd"]

_SCRIPT = Path(__file__).resolve().parent / "player.js"


def format_of(out: Path | None, asked: Format | None) -> Format:
    """Return the requested format, or that of a file's known suffix; "html" without a file."""
    suffix = "html" if out is None else out.suffix.lower().removeprefix(".")
    kind_of_file = asked or next((kind for kind in get_args(Format) if kind == suffix), None)
    if kind_of_file is None:
        raise InputError(
            f"{out}: no known kind of recording; valid: a name that ends in .html, .mp4, .gif or .rrd; or --format"
        )
    return kind_of_file


def write_recording(recording: Recording, path: Path, kind: Format) -> None:
    """Write a recording, atomically; images show the first roll-out. Without Newton, HTML pages have plots only.

    Raises:
        InputError: Newton, the MP4 encoder or Rerun is missing, or the file cannot be written.
    """
    if kind == "html":
        write_text(path, recording_page(recording))
        return
    if kind == "rrd":
        write_rrd(recording, path)
        return
    if kind == "mp4":
        film_writer()  # raises before rendering if missing
    frames, interval = pictures(recording)
    if kind == "mp4":
        write_mp4(frames, interval, path)
        return
    data = gif_bytes(frames, interval)
    with atomic(path) as partial:
        partial.write_bytes(data)


def recording_page(recording: Recording) -> str:
    """Return a self-contained page: an animation with controls, and coordinates over time."""
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
    """Write a README GIF of at most `most_bytes`, at the highest image rate that fits; return its size [bytes].

    Raises:
        InputError: Newton is not installed, or the file is too large at every rate.
    """
    for rate in (20.0, 15.0, 10.0, 5.0):
        data = gif_bytes(*pictures(recording, width=320, height=190, rate=rate), colours=48)
        if len(data) <= most_bytes:
            with atomic(path) as partial:
                partial.write_bytes(data)
            return len(data)
    raise InputError(f"{path}: {recording.seconds:g} s of pictures exceed {most_bytes:,} bytes; record a shorter time")


DRAWN = Path(__file__).resolve().parent / "drawn.js"
"""Script required by pages with `drawn_motions`."""
_ROUND = ("sphere", "capsule", "cylinder")
_PANEL, _SEEN = (520, 400), 3.6  # panel size in pixels; width that it shows in metres


def drawn_motions(robot: Robot, motions: Mapping[str, np.ndarray], interval: float, caption: str) -> str:
    """Return the HTML of a robot's motions side by side, drawn by the reader's browser without rendering here.

    Args:
        robot: A robot with spheres, capsules and cylinders; other shapes are left out.
        motions: Positions by label, shape [T, nq]; shorter motions stop at their last frame.
        interval: Time between them [s].
        caption: Text below.
    """
    from neurodyn.sim.simulators import articulation

    built = articulation(robot)
    shapes = [shape for shape in built.shapes if shape.kind in _ROUND]
    colours = ("--predicted", "--truth", "--second", "--third")
    drawn = []
    for (label, q), colour in zip(motions.items(), colours, strict=False):
        links = built.kinematics(q)
        ends = []
        for shape in shapes:
            half = rotation(shape.place)[:, 2] * (0.0 if shape.kind == "sphere" else shape.size[1])
            own = shape.place[:3] + np.stack([-half, half])  # in its link's frame, shape [2, 3]
            ends.append(links.points([shape.joint] * 2, own).reshape(-1, 6))
        eye = links.origins[:, 0, :2]
        placed = np.stack(ends, 1).round(3).tolist()
        drawn.append({"label": label, "colour": colour, "ends": placed, "eye": eye.round(3).tolist()})
    scene = {"interval": interval, "width": _SEEN, "radii": [s.size[0] for s in shapes], "motions": drawn}
    most = max(len(q) for q in motions.values()) - 1
    return element("drawn", json.dumps(scene), _PANEL[0] * len(drawn), _PANEL[1], most, caption)


def _player(frames: np.ndarray, interval: float, caption: str) -> str:
    sources = [data_uri(still_bytes(frame, quality=75), "image/webp") for frame in frames]
    height, width = frames.shape[1:3]
    return element("player", sources, f"{1000 * interval:.3f}", width, height, caption)
