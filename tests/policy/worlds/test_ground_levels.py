# SPDX-License-Identifier: Apache-2.0
"""Terrain that grows as worlds master it."""

import numpy as np
import pytest
import torch

from neurodyn.core.description.scene import Terrain
from neurodyn.dynamics.analytic import AnalyticDynamics
from neurodyn.dynamics.hybrid.declared import declared_hybrid
from neurodyn.geometry.solids import terrain_heights
from neurodyn.policy.worlds.ground_levels import LEVELS, GroundLevels, level_heights
from neurodyn.robots import load as load_robot
from neurodyn.sim.sampling import ground_height
from neurodyn.tasks import load

STAIRS = Terrain(style="mixed", tiles=("stairs", "flat"), amplitude=0.15, feature=0.56, seed=1)


def test_levels_rise_to_the_whole_terrain_without_cliffs():
    heights = level_heights(STAIRS)
    whole = terrain_heights(Terrain(style="mixed", tiles=("stairs", "flat"), amplitude=0.15, feature=0.56, seed=1,
                                    size=((heights.shape[1] - 1) * 0.05, (heights.shape[0] - 1) * 0.05)))  # fmt: skip
    columns = {level: slice(320 + 240 * level, 320 + 240 * level + 200) for level in range(LEVELS + 1)}
    for level, part in columns.items():
        assert np.allclose(heights[:, part], level / LEVELS * whole[:, part])
        assert np.ptp(heights[:, part]) > 0 or not level
    assert np.abs(np.diff(heights, axis=1)).max() <= 0.05 + 1e-9


@pytest.fixture(scope="module")
def levels():
    return GroundLevels(load("velocity@go2"), STAIRS, 64, 0)


def test_worlds_that_survive_rise_and_those_that_fall_sink():
    task = load("velocity@go2")
    levels = GroundLevels(task, STAIRS, 64, 0)
    assert levels.share == 0.0
    every, none = torch.ones(64, dtype=torch.bool), torch.zeros(64, dtype=torch.bool)
    levels.renew(every, every)
    assert (levels.level == 0).all()
    for level in range(1, LEVELS + 1):
        levels.renew(every, none)
        assert (levels.level == level).all()
    levels.renew(every, none)
    assert set(levels.level.tolist()) == {LEVELS - 1, LEVELS}
    before, poses = levels.level.clone(), levels.environment.ground.pose.clone()
    some = torch.arange(64) < 32
    levels.renew(some, every)
    assert torch.equal(levels.level[:32], before[:32] - 1)
    assert torch.equal(levels.level[32:], before[32:])
    assert torch.equal(levels.environment.ground.pose[32:], poses[32:])


def test_robots_start_above_the_ground_of_their_level(levels):
    every, none = torch.ones(64, dtype=torch.bool), torch.zeros(64, dtype=torch.bool)
    for _ in range(LEVELS):
        levels.renew(every, none)
    ground = levels.environment.ground
    assert len(ground.pose[:, :2].unique(dim=0)) > 8
    assert float(ground_height(ground, torch.zeros(64, 2)).max()) < 1e-3
    assert float(ground_height(ground, torch.zeros(64, 2)).min()) < -0.02
    saved = levels.state()
    levels.renew(every, none)
    after = levels.environment.ground.pose.clone()
    levels.load(saved)
    assert torch.equal(levels.environment.ground.pose, saved["pose"])
    levels.renew(every, none)
    assert torch.equal(levels.environment.ground.pose, after)


def test_only_one_terrain_in_hybrid_dynamics_has_levels():
    task, hybrid = load("velocity@go2"), declared_hybrid("go2")
    assert GroundLevels.of(task, "steps", hybrid, 4, 0) is not None
    assert GroundLevels.of(task, "tilted", hybrid, 4, 0) is None
    assert GroundLevels.of(load("ant-run"), "steps", declared_hybrid("ant"), 4, 0) is None
    assert GroundLevels.of(task, "steps", AnalyticDynamics(load_robot("go2")), 4, 0) is None
