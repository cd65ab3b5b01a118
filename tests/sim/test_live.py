# SPDX-License-Identifier: Apache-2.0
"""Motions in Newton's viewer: every frame as it was, side by side, and a clear line where there is no window."""

import math
import sys

import numpy as np
import pytest
import torch

from neurodyn.core.errors import InputError
from neurodyn.robots import Robot, load

pytest.importorskip("newton")

from neurodyn.sim import pictures as live
from neurodyn.sim.pictures import ViewedCopies, link_motion


@pytest.fixture(scope="module")
def cartpole() -> Robot:
    return load("cartpole")


def motion(frames: int = 4) -> torch.Tensor:
    """A cart that moves by 10 cm a frame, and a pole that turns by a quarter."""
    k = torch.arange(frames)
    return torch.stack([0.1 * k, math.pi / 2 * k], 1).double()


def test_links_are_where_the_coordinates_say(cartpole: Robot):
    found = link_motion(cartpole, motion())
    assert found.poses.shape == (4, len(found.names), 7)
    moved = found.poses[:, :, :3] - found.poses[:1, :, :3]
    cart = next(k for k, name in enumerate(found.names) if "cart" in name)
    assert np.linalg.norm(moved[:, cart], axis=-1) == pytest.approx([0.0, 0.1, 0.2, 0.3], abs=1e-5)
    assert np.linalg.norm(found.poses[..., 3:], axis=-1) == pytest.approx(1.0, abs=1e-5)
    for points, triangles in found.meshes:
        assert len(triangles)
        assert triangles.max() == len(points) - 1
        assert np.isfinite(points).all()


def test_a_frame_that_is_not_finite_repeats_the_one_before(cartpole: Robot):
    q = motion()
    q[2] = float("nan")
    found = link_motion(cartpole, q)
    assert np.array_equal(found.poses[2], found.poses[1])
    with pytest.raises(InputError, match=r"q has shape \[4, 1\]; valid: \[frames, 2\]"):
        link_motion(cartpole, q[:, :1])


def test_both_motions_are_shown_frame_by_frame_and_begin_anew(cartpole: Robot):
    from newton.viewer import ViewerNull

    seen = []

    class Watched(ViewerNull):
        def log_state(self, state):
            seen.append(state.joint_q.numpy().copy())
            super().log_state(state)

    q, still = motion(3), torch.zeros(3, 2).double()
    shown = live.play(cartpole, [q, still], Watched(num_frames=6), dt=0.5, real_time=False)
    assert shown == 6
    wanted = [q[0], q[1], q[2], q[2], q[2], q[0]]
    assert np.allclose(seen, [np.concatenate([row.numpy(), np.zeros(2)]) for row in wanted], atol=1e-6)


def test_real_time_waits_for_its_frames(cartpole: Robot):
    import time

    from newton.viewer import ViewerNull

    begun = time.monotonic()
    live.play(cartpole, [motion(3)], ViewerNull(num_frames=4), dt=0.05)
    assert time.monotonic() - begun >= 0.15


def test_copies_are_one_world_each(cartpole: Robot):
    assert ViewedCopies(cartpole, 3).model.world_count == 3


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="displays have other names elsewhere")
def test_without_a_display_or_a_package_there_is_a_line(monkeypatch: pytest.MonkeyPatch):
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(InputError, match="neither DISPLAY nor WAYLAND_DISPLAY is set; valid: a desktop session"):
        live.require_live()
    monkeypatch.setenv("DISPLAY", ":77")
    monkeypatch.setattr(live, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"not installed \(pyglet, imgui_bundle\)"):
        live.require_live()
    with pytest.raises(InputError, match="--live: Newton's viewer cannot open a window"):
        live.window()
