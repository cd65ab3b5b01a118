# SPDX-License-Identifier: Apache-2.0
"""Tasks on other grounds: heights count from the ground, and each world starts above a piece of its own."""

import math

import pytest
import torch

from neurodyn.control.starts import SIZE, heights_above, task_ground
from neurodyn.core.description.scene import Terrain
from neurodyn.core.errors import InputError
from neurodyn.dynamics.quantities import Quantities
from neurodyn.sim.sampling import ground_height
from neurodyn.tasks import load


@pytest.fixture(scope="module")
def rough():
    return task_ground(load("ant-spin"), "rough", 6, 3).ground


def test_heights_count_from_the_ground_below():
    ground = task_ground(load("ant-run"), "tilted", 3, 0).ground
    place = torch.tensor([[0.0, 0.0, 1.0], [2.0, 5.0, 1.0], [-3.0, 0.0, 1.0]])
    quantities = heights_above(Quantities("here", {"base_position": lambda _: place}), ground)
    slope = math.tan(2 * math.asin(0.08715574))
    lowered = ground.pose[0, 2]
    assert float(lowered) < 0.0
    expected = 1.0 - (lowered - slope * place[:, 0])
    assert torch.allclose(quantities["base_position"][:, 2], expected, atol=1e-3)
    assert torch.equal(quantities["base_height"][:, 0], quantities["base_position"][:, 2])
    assert torch.equal(quantities["base_position"][:, :2], place[:, :2])


def test_robots_start_above_pieces_of_their_own(rough):
    heights = torch.stack([ground_height(rough, 0.5 * torch.randn(6, 2).clamp(-1, 1)) for _ in range(20)])
    assert heights.max() < 0.02  # between the places that were measured
    assert heights.min() > -0.25
    assert len(rough.pose[:, 0].unique()) == 6


def test_a_terrain_is_as_wide_as_an_episode_is_long(rough):
    (shape,) = rough.scene.shapes
    assert isinstance(shape, Terrain)
    assert shape.size == SIZE


def test_the_seed_makes_the_pieces(rough):
    again = task_ground(load("ant-spin"), "rough", 6, 3).ground
    other = task_ground(load("ant-spin"), "rough", 6, 4).ground
    assert torch.equal(again.pose, rough.pose)
    assert not torch.equal(other.pose, rough.pose)


def test_a_ground_that_is_not_there_is_refused():
    with pytest.raises(InputError, match="no ground of robot 'ant'; valid: "):
        task_ground(load("ant-run"), "moon", 1, 0)
