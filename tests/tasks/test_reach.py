# SPDX-License-Identifier: Apache-2.0
"""Reaching by any bolted robot: rewards by hand, goals that poses reach, places by joints alone, and refusals."""

import math
from pathlib import Path

import mujoco
import numpy as np
import pytest
import torch
import yaml

from neurodyn import tasks
from neurodyn.control.planning.planner import Planner
from neurodyn.control.task_frames import TaskFrames
from neurodyn.core.errors import InputError
from neurodyn.dynamics.hybrid.declared import declared_hybrid
from neurodyn.dynamics.quantities import Quantities
from tests.tasks.quantities import given, with_command

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
SO101 = EXAMPLES / "real_robots" / "so101"


@pytest.fixture(scope="module")
def reach():
    return tasks.load(f"reach@{SO101}")


def at(place):
    return given(joint_position=[0.1] * 6, joint_velocity=[0.0] * 6, end_effector_position=place)


def test_a_reach_by_hand(reach):
    now, action = at([0.2, 0.0, 0.1]), torch.full((1, 6), 0.5)
    memory = with_command(reach, now, [0.2, 0.0, 0.11])
    terms = {name: float(term) for name, term in reach.reward(now, memory, action).items()}
    assert terms == pytest.approx({"near": 1.0 - math.tanh(0.1), "there": math.exp(-1.0), "jump": -0.15}, rel=1e-4)
    assert reach.succeeded(at([0.2, 0.0, 0.101]), memory)
    assert not reach.succeeded(at([0.2, 0.0, 0.095]), memory)
    assert reach.observe(now, memory)[0, 12:15].tolist() == pytest.approx([0.0, 0.0, 0.01], abs=1e-7)


def test_goals_are_above_the_ground_and_within_reach(reach):
    goals = reach.commands(500, torch.Generator().manual_seed(3))
    assert goals.shape == (500, 3)
    assert float(goals[:, 2].min()) >= 0.02
    shoulder = torch.tensor([0.0388, 0.0, 0.0624])
    assert float((goals - shoulder).norm(dim=-1).max()) < 0.55  # the arm's length


def test_places_by_joints_alone_are_mujocos(reach):
    """A model of a log knows no bodies: there, the joints of the asset place the end effector."""
    q = np.random.default_rng(0).uniform(-1.0, 1.0, (4, 6))
    plant = mujoco.MjModel.from_xml_path(str(SO101 / "so101.xml"))
    data, site = mujoco.MjData(plant), plant.site("gripperframe").id
    places = []
    for data.qpos[:] in q:
        mujoco.mj_kinematics(plant, data)
        places.append(data.site_xpos[site].copy())
    known = {"joint_position": torch.from_numpy(q), "joint_velocity": torch.zeros(4, 6, dtype=torch.float64)}
    now = Quantities("a world model", {}, known=known)
    torch.testing.assert_close(reach.place(now), torch.from_numpy(np.array(places)), rtol=0.0, atol=1e-7)


def test_goals_of_a_robot_that_hangs_are_below_it():
    hanging = tasks.load(f"reach@{EXAMPLES / 'real_robots' / 'xl330'}")
    goals = hanging.commands(50, torch.Generator())
    torch.testing.assert_close(torch.linalg.vector_norm(goals, dim=-1), torch.full((50,), 0.1))
    assert -0.2 < float(goals[:, 2].max()) < 0.0


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"end_effector": None}, "valid: a bolted robot that declares an end_effector"),
        ({"tasks": {"reach": {"lowest": 2.0}}}, "is at most .* m high; valid: tasks: {reach: {lowest"),
        ({"tasks": {"reach": {"span": 1.5}}}, "span is 1.5"),
    ],
)
def test_refusals(tmp_path, change, complaint):
    robot = yaml.safe_load((SO101 / "robot.yaml").read_text()) | {"asset": str(SO101 / "so101.xml")}
    robot = {name: value for name, value in (robot | change).items() if value is not None and name != "log"}
    (tmp_path / "robot.yaml").write_text(yaml.safe_dump(robot))
    with pytest.raises(InputError, match=complaint):
        tasks.load(f"reach@{tmp_path}").commands(1, torch.Generator())


def test_a_planner_reaches_a_goal_in_a_second(reach):
    dynamics = declared_hybrid(SO101)
    planner = Planner(dynamics, reach, "cem", seed=1)
    generator = torch.Generator().manual_seed(4)
    state = reach.start(1, generator)
    frames = TaskFrames(reach, dynamics)
    current = frames.begin(state, generator)
    for _ in range(50):
        planner.act(current.state, current.memory)
        current, _, _ = frames.frame(current, planner.decided, generator)
    assert float(reach.distance(current.now, current.memory)) < 0.02


def test_starts_are_poses_within_the_span_at_rest(reach):
    state = reach.start(200, torch.Generator().manual_seed(1))
    limits = torch.tensor([[joint.lower, joint.upper] for joint in reach.declaration().joints])
    middle, half = limits.mean(1), 0.5 * 0.4 * (limits[:, 1] - limits[:, 0])
    assert bool(((state.q - middle).abs() <= half + 1e-6).all())
    assert not state.qd.any()
