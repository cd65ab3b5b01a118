# SPDX-License-Identifier: Apache-2.0
"""Recordings as Rerun files (.rrd): links as moving meshes, coordinates and their errors over time."""

import importlib
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from neurodyn.core.artifacts import atomic
from neurodyn.core.errors import InputError
from neurodyn.report.recording import Recording

_COLOURS = {"predicted": (217, 72, 15), "truth": (25, 113, 194)}


def require_rerun() -> Any:
    """Return Rerun's package.

    Raises:
        InputError: It is not installed.
    """
    try:
        return importlib.import_module("rerun")
    except ImportError as error:
        raise InputError(
            f"rrd needs a package that is not installed ({error}); install it with: pip install 'neurodyn[rerun]', "
            "or ask for --format html"
        ) from None


def write_rrd(recording: Recording, path: Path, *, world: int = 0) -> None:
    """Write a roll-out as a Rerun file, atomically.

    Entities: `PREDICTION/LINK` and `TRUTH/LINK`, with poses over the timeline `time`, at the place where both happen;
    `coordinates/NAME/PREDICTION` and `coordinates/NAME/TRUTH`. Where Newton is not installed, the links are left out.

    Args:
        recording: What to show.
        path: File to write.
        world: Which roll-out.

    Raises:
        InputError: Rerun is not installed, or the file cannot be written.
    """
    rerun = require_rerun()
    spec = recording.robot.spec
    paths = {recording.predicted_label: recording.predicted, recording.truth_label: recording.truth}
    with atomic(path) as partial:
        stream = rerun.RecordingStream("neurodyn")
        stream.save(partial)
        stream.send_recording_name(f"{recording.robot.name}, {recording.title}, {recording.worlds[world]}")
        for (label, motion), colour in zip(paths.items(), _COLOURS.values(), strict=True):
            q = motion.q[world].detach().cpu()
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
    from neurodyn.sim.views.link_motion import link_motion

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
    """Return a name as a part of an entity's path."""
    return "".join(c if c.isalnum() or c in "-_." else "-" for c in name)
