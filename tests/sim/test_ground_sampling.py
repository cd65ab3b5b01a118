# SPDX-License-Identifier: Apache-2.0
"""Random poses of the ground fill the declared ranges."""

import math

import msgspec
import pytest
import torch

from neurodyn import robots
from neurodyn.core.description.scene import Plane, Scene
from neurodyn.core.seeds import generator
from neurodyn.geometry.ground import Ground
from neurodyn.robots.sections import GroundSampling
from neurodyn.sim.sampling import FAR_BELOW, data_scene, ground_height, sample_grounds

COUNT = 4000


@pytest.fixture(scope="module")
def cube():
    return robots.load("cube")


def poses(robot, **changes):
    sampling = GroundSampling(ground="flat", **changes)
    return sample_grounds(msgspec.structs.replace(robot, ground_sampling=sampling), COUNT, generator(0, "x"))


def test_lift_tilt_and_absence_fill_their_ranges(cube):
    pose = poses(cube, height=(-0.5, 1.0), tilt=0.4, absent=0.25)
    absent = pose[:, 2] == FAR_BELOW
    assert absent.float().mean() == pytest.approx(0.25, abs=0.03)
    pose = pose[~absent]
    assert (pose[:, 2].amin(), pose[:, 2].amax()) == (pytest.approx(-0.5, abs=0.01), pytest.approx(1.0, abs=0.01))
    tilt = torch.arccos((1 - 2 * (pose[:, 3] ** 2 + pose[:, 4] ** 2)).clamp(-1, 1))
    assert tilt.max() == pytest.approx(0.4, abs=1e-3)
    assert tilt.mean() == pytest.approx(0.2, abs=0.01)


def test_the_tilt_is_about_the_point_below_the_robot(cube):
    pose = poses(cube, height=(0.2, 0.2), tilt=0.5, extent=10.0)
    assert pose[:, 0].abs().max() > 8
    height = ground_height(Ground(data_scene(cube), pose), torch.zeros(COUNT, 2))
    torch.testing.assert_close(height, torch.full((COUNT,), 0.2), atol=2e-4, rtol=0)


def test_shifts_and_headings_reach_all_of_the_ground(cube):
    pose = poses(cube, extent=3.0)
    heading = 2 * torch.atan2(pose[:, 5], pose[:, 6])
    c, s = torch.cos(heading), torch.sin(heading)
    # The scene's point that lies at the world's origin: R^T (0 - p).
    x, y = -(c * pose[:, 0] + s * pose[:, 1]), -(c * pose[:, 1] - s * pose[:, 0])
    for value in (x, y):
        assert value.abs().max() == pytest.approx(3.0, abs=0.01)
        assert value.mean().abs() < 0.15
    assert torch.histc(torch.remainder(heading, 2 * math.pi), 4).min() > 0.2 * COUNT


def test_without_sampling_the_default_ground_stays_where_it_is(cube, cartpole):
    robot = msgspec.structs.replace(cube, ground_sampling=None)
    assert data_scene(robot) == robot.grounds["flat"]
    assert torch.equal(sample_grounds(robot, 2, generator(0, "x")), torch.tensor([[0, 0, 0, 0, 0, 0, 1.0]] * 2))
    assert sample_grounds(cartpole, 2, generator(0, "x")) is None
    assert data_scene(msgspec.structs.replace(robot, grounds={"flat": Scene()})) is None
    assert data_scene(cube) == Scene(shapes=(Plane(),))
