# SPDX-License-Identifier: Apache-2.0
"""Motions in Newton's viewer, in real time, side by side."""

import os
import sys
import time
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from neurodyn.core.errors import InputError
from neurodyn.geometry.ground import Ground
from neurodyn.robots import Robot
from neurodyn.sim.engine import import_newton
from neurodyn.sim.views.link_motion import Stage

_GAP = 1.5
"""Distance between two copies, of the extent of their motion."""
_END = 1.0
"""Time that the last frame stands before a motion begins anew [s]."""


def require_live() -> None:
    """Refuse to go on where no window can be opened, before anything is computed.

    Raises:
        InputError: There is no display, or Newton's viewer or what it needs is not installed.
    """
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
    """Open Newton's viewer (`newton.viewer.ViewerGL`).

    Raises:
        InputError: The window cannot be opened.
    """
    import_newton()
    from newton.viewer import ViewerGL

    try:
        return ViewerGL()
    except Exception as error:  # of pyglet, of the display, of the driver
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
    """Play motions side by side, again and again, until the viewer is closed.

    Args:
        robot: The declared robot.
        motions: Positions [rad or m], each of shape [T, nq].
        viewer: One of Newton's viewers (`newton.viewer.ViewerBase`).
        dt: Time between two frames [s].
        ground: The ground at one pose; None for free space.
        real_time: Whether to wait for the time of each frame.

    Returns:
        Number of frames that were shown.
    """
    stage = Stage(robot, len(motions), ground)
    q = torch.stack([motion.detach().cpu().float() for motion in motions])
    viewer.set_model(stage.model)
    viewer.set_world_offsets((0.0, _spacing(stage, q), 0.0))
    frames, shown = q.shape[1], 0
    begun = time.monotonic()
    while viewer.is_running():
        passed = time.monotonic() - begun
        frame = int(passed / dt) if real_time else shown
        frame %= frames + round(_END / dt)
        stage.pose(q[:, min(frame, frames - 1)])
        viewer.begin_frame(min(frame, frames - 1) * dt)
        viewer.log_state(stage.state)
        viewer.end_frame()
        shown += 1
        if real_time:
            time.sleep(max(0.0, (int(passed / dt) + 1) * dt - (time.monotonic() - begun)))
    viewer.close()
    return shown


def _spacing(stage: Stage, q: Tensor) -> float:
    """Return a distance at which copies do not touch: that of their links' extent."""
    places = []
    for frame in range(0, q.shape[1], max(1, q.shape[1] // 20)):
        stage.pose(q[:, frame])
        places.append(torch.from_numpy(stage.state.body_q.numpy()[:, :3].copy()))
    seen = torch.cat(places)
    return _GAP * max(1.0, float((seen.amax(0) - seen.amin(0)).max()))
