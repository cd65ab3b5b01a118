# SPDX-License-Identifier: Apache-2.0
"""Motions of a robot for viewers: link poses with meshes, and Newton's viewer in real time."""

import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from torch import Tensor

from neurodyn.core.errors import InputError
from neurodyn.geometry.ground import Ground
from neurodyn.robots import Robot
from neurodyn.sim.articulation import short_label
from neurodyn.sim.bodies import rotation
from neurodyn.sim.engine import import_newton
from neurodyn.sim.pictures import ViewedCopies


@dataclass(frozen=True)
class ViewedMotion:
    """Poses of links over time, and their meshes."""

    names: tuple[str, ...]
    poses: np.ndarray  # position [m] and quaternion (scalar last), world axes, shape [T, links, 7]
    meshes: tuple[tuple[np.ndarray, np.ndarray], ...]  # vertices [m] in link axes, shape [n, 3], and triangles


def link_motion(robot: Robot, q: Tensor) -> ViewedMotion:
    """Return the poses of a robot's links along positions, shape [T, nq]; a non-finite frame repeats the one before."""
    if q.ndim != 2 or q.shape[1] != robot.spec.nq:
        raise InputError(f"motion of {robot.name!r}: q has shape {list(q.shape)}; valid: [frames, {robot.spec.nq}]")
    stage = ViewedCopies(robot, 1)
    poses = []
    for row in q:
        stage.pose(row[None])
        poses.append(stage.state.body_q.numpy().copy())
    names = [short_label(label) for label in stage.model.body_label]
    names = [name if names.count(name) == 1 else f"{name}-{k}" for k, name in enumerate(names)]
    meshes = tuple(_mesh_of(stage.model, body) for body in range(len(names)))
    return ViewedMotion(tuple(names), np.stack(poses), meshes)


def _mesh_of(model: Any, body: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the visible shapes of a link as one mesh in its frame."""
    visible = int(import_newton().ShapeFlags.VISIBLE)
    flags, poses = model.shape_flags.numpy(), model.shape_transform.numpy()
    points, triangles, count = [np.empty((0, 3))], [np.empty((0, 3), int)], 0
    for shape in np.flatnonzero(model.shape_body.numpy() == body):
        made = _mesh(model, int(shape)) if flags[shape] & visible else None
        if made is not None:
            points.append(poses[shape][:3] + made[0] @ rotation(poses[shape]).T)
            triangles.append(made[1] + count)
            count += len(made[0])
    return np.concatenate(points).astype(np.float32), np.concatenate(triangles)


def _mesh(model: Any, shape: int) -> tuple[np.ndarray, np.ndarray] | None:
    """Return a shape as vertices and triangles; None for a kind without a mesh."""
    newton = import_newton()
    kinds, mesh = newton.GeoType, newton.Mesh
    scale: Sequence[float] = [float(x) for x in model.shape_scale.numpy()[shape]]
    made = {
        int(kinds.BOX): lambda: mesh.create_box(*scale, compute_inertia=False),
        int(kinds.SPHERE): lambda: mesh.create_sphere(scale[0], compute_inertia=False),
        int(kinds.CAPSULE): lambda: mesh.create_capsule(*scale[:2], up_axis=newton.Axis.Z, compute_inertia=False),
        int(kinds.CYLINDER): lambda: mesh.create_cylinder(*scale[:2], up_axis=newton.Axis.Z, compute_inertia=False),
        int(kinds.CONE): lambda: mesh.create_cone(*scale[:2], up_axis=newton.Axis.Z, compute_inertia=False),
        int(kinds.ELLIPSOID): lambda: mesh.create_ellipsoid(*scale, compute_inertia=False),
    }.get(int(model.shape_type.numpy()[shape]))
    source = model.shape_source[shape]
    if made is not None:
        found, factor = made(), np.ones(3)
    elif isinstance(source, mesh):
        found, factor = source, np.array(scale)
    else:
        return None
    return np.asarray(found.vertices) * factor, np.asarray(found.indices).reshape(-1, 3)


_GAP = 1.5
"""Distance between copies, relative to the extent of their motion."""

_END = 1.0
"""Pause on the last frame before a motion restarts [s]."""


def require_live() -> None:
    """Raise InputError if no window can be opened: no display, or Newton's viewer or its dependencies missing."""
    if sys.platform.startswith("linux") and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        raise InputError(
            "--live needs a display, and neither DISPLAY nor WAYLAND_DISPLAY is set; valid: a desktop session, or a "
            "recording (--format html, mp4, gif or rrd)"
        )
    missing = [name for name in ("pyglet", "imgui_bundle") if find_spec(name) is None]
    if missing:
        raise InputError(
            f"--live needs packages that are not installed ({', '.join(missing)}); install them with: "
            "pip install 'neurodyn[live]'"
        )


def window() -> Any:
    """Open Newton's viewer (`newton.viewer.ViewerGL`), or say why there cannot be a window."""
    import_newton()
    from newton.viewer import ViewerGL

    try:
        return ViewerGL()
    except Exception as error:  # raised by pyglet, the display or the driver
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InputError(
            f"--live: Newton's viewer cannot open a window ({reason}); valid: a display with OpenGL, or a recording "
            "(--format html, mp4, gif or rrd)"
        ) from None


def play(
    robot: Robot,
    motions: Sequence[Tensor],
    viewer: Any,
    *,
    dt: float,
    ground: Ground | None = None,
    real_time: bool = True,
) -> int:
    """Play motions side by side in a loop until the viewer is closed; return the number of frames shown.

    Args:
        robot: The declared robot.
        motions: Positions [rad or m], each of shape [T, nq].
        viewer: One of Newton's viewers (`newton.viewer.ViewerBase`).
        dt: Time between two frames [s].
        ground: The ground at one pose; None for free space.
        real_time: Whether to play at real-time speed.
    """
    stage = ViewedCopies(robot, len(motions), ground)
    q = torch.stack([motion.detach().cpu().float() for motion in motions])
    viewer.set_model(stage.model)
    viewer.set_world_offsets((0.0, _spacing(stage, q), 0.0))
    frames, shown = q.shape[1], 0
    begun = time.monotonic()
    while viewer.is_running():
        passed = time.monotonic() - begun
        frame = min((int(passed / dt) if real_time else shown) % (frames + round(_END / dt)), frames - 1)
        stage.pose(q[:, frame])
        viewer.begin_frame(frame * dt)
        viewer.log_state(stage.state)
        viewer.end_frame()
        shown += 1
        if real_time:
            time.sleep(max(0.0, (int(passed / dt) + 1) * dt - (time.monotonic() - begun)))
    viewer.close()
    return shown


def _spacing(stage: ViewedCopies, q: Tensor) -> float:
    """Return a distance at which copies do not touch, from the extent of their links' motion."""
    places = []
    for frame in range(0, q.shape[1], max(1, q.shape[1] // 20)):
        stage.pose(q[:, frame])
        places.append(torch.from_numpy(stage.state.body_q.numpy()[:, :3].copy()))
    seen = torch.cat(places)
    return _GAP * max(1.0, float((seen.amax(0) - seen.amin(0)).max()))
