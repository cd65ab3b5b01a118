# SPDX-License-Identifier: Apache-2.0
"""Poses of links along a motion, with their meshes."""

import math

import numpy as np
import pytest
import torch

from neurodyn.core.errors import InputError
from neurodyn.robots import Robot, load

pytest.importorskip("newton")

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


def test_copies_are_one_world_each(cartpole: Robot):
    assert ViewedCopies(cartpole, 3).model.world_count == 3
