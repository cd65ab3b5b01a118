# SPDX-License-Identifier: Apache-2.0
"""Grounds are found by name or file, and each world stands on its own part of them."""

from pathlib import Path

import numpy as np
import pytest
import torch

from neurodyn.core.errors import InputError
from neurodyn.evaluate.named_scenarios import Scenario, scenario, scenarios
from neurodyn.robots import Robot, load


@pytest.fixture(scope="module")
def ant() -> Robot:
    return load("ant")


def test_the_default_ground_is_the_declared_one(ant: Robot, cartpole: Robot):
    assert (scenario(ant).name, scenario(ant).scene) == (ant.ground, ant.grounds["flat"])
    assert scenario(ant).grounded
    assert scenario(cartpole) == Scenario()
    assert not scenario(cartpole).grounded


def test_a_ground_is_found_by_name(ant: Robot):
    assert scenario(ant, "rough").scene == ant.grounds["rough"]


def test_a_ground_is_read_from_a_file_and_knows_where_its_own_files_are(ant: Robot, tmp_path: Path):
    path = tmp_path / "mine.yaml"
    path.write_text("shapes: [{kind: plane}, {kind: box, half: [1, 1, 0.2], position: [2, 0, 0]}]")
    scene = scenario(ant, str(path)).scene
    assert scene is not None
    assert [type(shape).__name__ for shape in scene.shapes] == ["Plane", "Box"]
    assert scene.folder == str(tmp_path)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("moon", r"'moon' is no ground of robot 'ant'; valid: all, flat, mixed, rough, steps, tilted, or a file"),
        ("gone.yaml", "gone.yaml: no such file"),
    ],
)
def test_a_ground_that_is_none_is_named(name: str, message: str, ant: Robot):
    with pytest.raises(InputError, match=message):
        scenario(ant, name)


def test_a_file_that_is_no_scene_is_named(ant: Robot, tmp_path: Path):
    path = tmp_path / "bad.yaml"
    path.write_text("shapes: [{kind: cone}]")
    with pytest.raises(InputError, match=r"bad\.yaml"):
        scenario(ant, str(path))


def test_all_grounds_begin_with_the_default(ant: Robot, cartpole: Robot):
    assert next(iter(scenarios(ant))) == "flat"
    assert set(scenarios(ant)) == set(ant.grounds)
    with pytest.raises(InputError, match="declares no grounds"):
        scenarios(cartpole)


def test_floating_robots_stand_on_different_parts_of_a_ground(ant: Robot):
    pytest.importorskip("newton")
    _, environment = scenario(ant, "rough").begin(ant, 32, np.random.default_rng(0))
    assert environment.ground is not None
    pose = environment.ground.pose
    assert pose is not None
    assert pose[:, :2].std(0).min() > 2.0
    assert pose[:, :2].abs().max() <= 7.0  # three metres from the edge of a terrain of twenty
    assert torch.equal(pose[:, 2:], torch.tensor([0.0, 0, 0, 0, 1]).expand(32, 5))
    part = environment.rows(slice(4, 6)).ground
    assert part is not None
    assert torch.equal(part.pose, pose[4:6])
