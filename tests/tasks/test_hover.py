# SPDX-License-Identifier: Apache-2.0
"""Hovering of any body on rotors: rewards by hand, axes, the commands that carry it, a fall and a climb, refusals."""

import math
from pathlib import Path

import pytest
import torch
import yaml

from neurodyn import tasks
from neurodyn.control.task_frames import TaskFrames
from neurodyn.core.errors import InputError
from neurodyn.dynamics.batch import State
from neurodyn.dynamics.hybrid.declared import declared_hybrid
from tests.tasks.quantities import given, with_command

CRAZYFLIE = Path(__file__).resolve().parents[2] / "examples" / "real_robots" / "crazyflie"
TURNED = torch.tensor([0.0, 0.0, math.sin(math.pi / 4), math.cos(math.pi / 4)])  # by 90 degrees, to the left


@pytest.fixture(scope="module")
def hover():
    return tasks.load(f"hover@{CRAZYFLIE}")


def at(place, turning=0.0, up=-1.0):
    rotated = [[0.0, -1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]
    return given(
        base_position=place, base_rotation=rotated, base_linear_velocity=[0.0, 0.5, 0.0],
        base_angular_velocity=[0.0, 0.0, turning], projected_gravity=[0.0, 0.0, up], joint_velocity=[],
    )  # fmt: skip


def test_a_frame_by_hand(hover):
    now, action = at([0.2, 0.0, 1.0], turning=2.0), torch.full((1, 4), 0.5)
    memory = with_command(hover, now, [0.2, 0.05, 1.0])
    terms = {name: float(term) for name, term in hover.reward(now, memory, action).items()}
    wanted = {
        "near": 1.0 - math.tanh(0.1), "there": math.exp(-1.0), "speed": -0.005, "turning": -0.04, "jump": -0.1,
    }  # fmt: skip
    assert terms == pytest.approx(wanted, rel=1e-4)
    assert hover.observe(now, memory)[0, :3].tolist() == pytest.approx([0.05, 0.0, 0.0], abs=1e-7)  # base axes
    assert not hover.terminated(now, memory)
    assert hover.terminated(at([0.2, 0.0, 1.0], up=-0.1), memory)
    assert hover.terminated(at([4.0, 0.0, 1.0]), memory)
    assert hover.succeeded(at([0.2, 0.04, 1.0]), memory)


def test_starts_and_goals_are_about_the_height(hover):
    generator = torch.Generator().manual_seed(1)
    state, goals = hover.start(200, generator), hover.commands(200, generator)
    assert state.q.shape == (200, 7)
    assert bool((state.q[:, 2] == 1.0).all())
    tilts = 2.0 * torch.linalg.vector_norm(state.q[:, 3:5], dim=-1).asin()  # of x and y in the quaternion
    assert 0.2 < float(tilts.max()) < math.sqrt(2) * 0.3 + 1e-5
    assert float((goals - torch.tensor([0.0, 0.0, 1.0])).abs().max()) < 0.5


def test_commands_of_hovering_carry_an_off_centre_body_under_any_heading(tmp_path):
    """With its mass off the centre, rotors differ; without an action it stays where it is, level."""
    asset = (CRAZYFLIE / "cf21.xml").read_text().replace('inertial pos="0 0 0"', 'inertial pos="0.004 -0.002 0"')
    (tmp_path / "cf21.xml").write_text(asset)
    (tmp_path / "robot.yaml").write_text((CRAZYFLIE / "robot.yaml").read_text())
    task, dynamics = tasks.load(f"hover@{tmp_path}"), declared_hybrid(tmp_path)
    frames, generator = TaskFrames(task, dynamics), torch.Generator().manual_seed(0)
    q = torch.cat([torch.tensor([0.0, 0.0, 1.0]), TURNED])[None]
    current = frames.begin(State(q, torch.zeros(1, 6)), generator)
    control = task.control(torch.zeros(1, 4), current.now, current.memory).target
    assert float(control.sum()) == pytest.approx(0.030 * 9.81, rel=1e-5)
    assert float(control.max() - control.min()) > 0.01
    for _ in range(50):
        current, _, _ = frames.frame(current, torch.zeros(1, 4), generator)
    assert float((current.now["base_position"] - q[:, :3]).norm()) < 2e-3
    assert float(current.now["base_angular_velocity"].norm()) < 1e-2
    climbing, _, _ = frames.frame(current, torch.ones(1, 4), generator)
    assert float(climbing.now["base_linear_velocity"][0, 2]) > float(current.now["base_linear_velocity"][0, 2]) + 0.03


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"tasks": {"hover": {"near": 0.0}}}, "near is 0"),
        ({"gravity": [0.0, 0.0, -98.1]}, r"push by .* N, it weighs 2.94 N"),
    ],
)
def test_refusals(tmp_path, change, complaint):
    robot = yaml.safe_load((CRAZYFLIE / "robot.yaml").read_text()) | {"asset": str(CRAZYFLIE / "cf21.xml")} | change
    del robot["log"]
    (tmp_path / "robot.yaml").write_text(yaml.safe_dump(robot))
    with pytest.raises(InputError, match=complaint):
        tasks.load(f"hover@{tmp_path}")


def test_robots_without_rotors_are_refused():
    with pytest.raises(
        InputError, match="task 'hover' is not for robot 'go2'; valid: a floating body pushed by rotors"
    ):
        tasks.load("hover@go2")
