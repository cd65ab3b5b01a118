# SPDX-License-Identifier: Apache-2.0
"""Named quantities of your own robot: its declaration is the one that the model was made for, from any folder."""

import math
import shutil
from pathlib import Path

import msgspec
import pytest
import torch
import yaml

from neurodyn.core.description.contacts import ContactPoint
from neurodyn.core.description.mechanism import Link, Mechanism
from neurodyn.core.description.scene import IDENTITY
from neurodyn.core.errors import Notice
from neurodyn.dynamics.artifact import load, save
from neurodyn.dynamics.batch import State
from neurodyn.dynamics.hybrid.model import HybridDynamics
from neurodyn.multibody.engine import EngineConfig
from neurodyn.robots import Robot, locate
from neurodyn.robots import assets as bundle
from neurodyn.robots import load as load_robot
from tests.multibody import machines

TIP = (0.0, 0.0, -0.7)
END = {
    "joints": [
        {"name": "shoulder", "kind": "revolute", "parent": -1, "axis": [0, 1, 0],
         "parent_frame": [*IDENTITY], "child_frame": [*IDENTITY]},
    ],
    "joint": "shoulder",
    "point": [*TIP],
}  # fmt: skip


def declare(folder: Path, name: str) -> Robot:
    """Write the declaration of an arm with an end effector, a ball that can touch the ground, and a name."""
    folder.mkdir(parents=True)
    (folder / "arm.urdf").write_text("<robot name='arm'/>")
    declaration = {
        "name": name, "asset": "arm.urdf", "dt": 0.01, "actuated": {"shoulder": 1.0},
        "joints": [{"name": "shoulder", "kind": "revolute"}],
        "contacts": {"TIP": ["tip*"]}, "end_effector": END,
    }  # fmt: skip
    (folder / "robot.yaml").write_text(yaml.safe_dump(declaration))
    return load_robot(folder)


def make(robot: Robot, declaration: str) -> HybridDynamics:
    link = Link(joint=machines.joint("shoulder", "revolute"), mass=1.0, com=TIP, inertia=(0.1,) * 3 + (0.0,) * 3)
    mechanism = Mechanism(links=(link,), points=(ContactPoint(name="tip/0", joint=0, point=TIP, radius=0.05),))
    return HybridDynamics(robot.spec, mechanism, EngineConfig(contact="force"), declaration=declaration)


@pytest.mark.parametrize("name", ["my-arm", "ant"])
def test_a_model_knows_the_declaration_it_was_made_for(name, tmp_path, monkeypatch):
    """Even where the robot has the name of another one, and in another folder than that of the training."""
    monkeypatch.chdir(tmp_path)
    robot = declare(tmp_path / "robots" / "arm", name)
    model = make(robot, locate("robots/arm"))
    save(tmp_path / "run", model)
    elsewhere = tmp_path / "elsewhere"
    declare(elsewhere / name, "decoy")  # a folder with the robot's bare name
    monkeypatch.chdir(elsewhere)
    state = State(torch.tensor([[0.0], [1.0]], dtype=torch.float64), torch.zeros(2, 1, dtype=torch.float64))
    for dynamics in (model, load(tmp_path / "run")):
        assert dynamics.robot is not None
        assert msgspec.structs.replace(dynamics.robot, folder=robot.folder) == robot
        found = dynamics.quantities(state)
        assert found.contact_names == ("TIP",)
        wanted = torch.tensor([[0.0, 0.0, -0.7], [-0.7 * math.sin(1.0), 0.0, -0.7 * math.cos(1.0)]])
        torch.testing.assert_close(found["end_effector_position"].float(), wanted, rtol=0.0, atol=1e-6)
        assert found["contact"].tolist() == [[0.0], [0.0]]  # in free space


def test_a_bare_name_is_never_a_path(tmp_path, monkeypatch):
    robot = declare(tmp_path / "my-arm", "my-arm")
    model = make(robot, "my-arm")
    monkeypatch.chdir(tmp_path)
    assert model.declaration == "my-arm"
    assert model.robot is None


def test_quantities_of_a_robot_whose_declaration_is_gone_have_no_contacts(tmp_path):
    robot = declare(tmp_path / "arm", "my-arm")
    model = make(robot, str(tmp_path / "arm"))
    shutil.rmtree(tmp_path / "arm")
    state = State(torch.zeros(1, 1, dtype=torch.float64), torch.zeros(1, 1, dtype=torch.float64))
    assert "end_effector_position" not in model.quantities(state)
    assert model.quantities(state).contact_names == ()


def test_a_saved_model_knows_its_robot_after_the_declaration_is_gone_and_the_run_moved(tmp_path):
    robot = declare(tmp_path / "arm", "my-arm")
    save(tmp_path / "run", make(robot, str(tmp_path / "arm")))
    shutil.rmtree(tmp_path / "arm")
    shutil.move(tmp_path / "run", tmp_path / "moved")
    model = load(tmp_path / "moved")
    assert model.declaration == str(tmp_path.resolve() / "moved" / "robot")
    state = State(torch.zeros(1, 1, dtype=torch.float64), torch.zeros(1, 1, dtype=torch.float64))
    assert model.quantities(state).contact_names == ("TIP",)
    save(tmp_path / "again", model)
    assert (tmp_path / "again" / "robot" / "arm.urdf").is_file()


def test_a_robot_that_is_too_large_is_left_where_it_is_with_a_notice(tmp_path, monkeypatch):
    monkeypatch.setattr(bundle, "LARGEST", 10)
    robot = declare(tmp_path / "arm", "my-arm")
    with pytest.warns(Notice, match="are not copied"):
        save(tmp_path / "run", make(robot, str(tmp_path / "arm")))
    assert not (tmp_path / "run" / "robot").exists()
    assert load(tmp_path / "run").robot == robot


def test_the_name_of_a_robot_that_ships_suffices(tmp_path):
    model = make(declare(tmp_path / "arm", "my-arm"), "pendulum")
    save(tmp_path / "run", model)
    assert not (tmp_path / "run" / "robot").exists()
    assert load(tmp_path / "run").declaration == "pendulum"
