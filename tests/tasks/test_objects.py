# SPDX-License-Identifier: Apache-2.0
"""Tasks with an object: rewards by hand, starts within their ranges, and refusals."""

import math
from pathlib import Path

import pytest
import torch
import yaml

from neurodyn import tasks
from neurodyn.core.errors import InputError
from neurodyn.dynamics.batch import State
from neurodyn.geometry import rotation
from neurodyn.robots import load
from neurodyn.tasks.objects import Lift, Push
from tests.tasks.quantities import given, with_command

SCENES = Path(__file__).resolve().parents[2] / "examples" / "objects"
TURNED = rotation.exponential(torch.tensor([0.2, -0.4, 1.1]))


@pytest.fixture(scope="module")
def lift():
    return tasks.load(f"lift@{SCENES / 'lifter'}")


@pytest.fixture(scope="module")
def push():
    return tasks.load(f"push@{SCENES / 'pusher'}")


def lifted(height=0.105, end=(0.45, 0.0, 0.105)):
    return given(**{
        "joint_position": [0.0, -0.9, 1.8, 0.7, 0.02, 0.02], "joint_velocity": [0.0] * 6,
        "end_effector_position": list(end), "end_effector_velocity": [0.0] * 3, "cube.position": [0.45, 0.0, height],
        "cube.orientation": TURNED.tolist(), "cube.linear_velocity": [0.1, 0.2, 0.3],
    })  # fmt: skip


def pushed(turn=(0.0, 0.0, 0.0, 1.0), ball=(0.5, 0.0, 0.1), speed=(0.25, 0.0, 0.0), down=(0.0, 0.0, -1.0)):
    return given(**{
        "joint_position": [0.0] * 8, "joint_velocity": [0.0] * 8, "base_position": [0.0, 0.0, 0.22],
        "base_orientation": list(turn), "base_linear_velocity": [0.3, 0.0, 0.0], "base_angular_velocity": [0.0] * 3,
        "projected_gravity": list(down), "ball.position": list(ball), "ball.orientation": list(turn),
        "ball.linear_velocity": list(speed),
    })  # fmt: skip


def test_a_lift_by_hand(lift):
    now = lifted()
    memory = with_command(lift, now, [0.45, 0.03, 0.145])
    terms = {name: float(term) for name, term in lift.reward(now, memory, torch.full((1, 5), 0.2)).items()}
    assert terms == pytest.approx(
        {
            "reach": 1.0, "lifted": 4.0, "goal": 8.0 * (1 - math.tanh(0.05 / 0.3)), "there": 8.0 * math.exp(-1.0),
            "effort": -0.01 * 5 * 0.04,
        },
        rel=1e-4,
    )  # fmt: skip
    assert not lift.succeeded(now, memory)
    assert lift.succeeded(now, with_command(lift, now, [0.45, 0.02, 0.145]))
    half = lift.reward(lifted(0.045, (0.45, 0.1, 0.045)), memory, torch.zeros(1, 5))
    assert float(half["lifted"]) == pytest.approx(2.0)  # half of the rise of .04 m from where the cube rests, .025 m
    assert float(half["reach"]) == pytest.approx(1 - math.tanh(1.0), rel=1e-4)


def test_a_push_by_hand(push):
    """The ball is .5 m ahead and the place behind it .22 m; it rolls to the goal at half of the speed that pays."""
    now = pushed()
    memory = with_command(push, now, [0.9, 0.0])
    terms = {name: float(term) for name, term in push.reward(now, memory, torch.zeros(1, 8)).items()}
    assert terms == pytest.approx(
        {
            "behind": 0.5 * (1 - math.tanh(0.22 / 0.3)), "approach": 0.5 * (0.3 * 0.22 / 0.3) / 0.5, "progress": 1.0,
            "near": 1 - math.tanh(0.4), "there": 4.0 * math.exp(-4.0), "effort": 0.0,
        },
        rel=1e-4, abs=1e-6,
    )  # fmt: skip
    assert not push.terminated(now, memory)
    assert push.terminated(pushed(down=(0.9, 0.0, -0.43)), memory)
    assert push.succeeded(now, with_command(push, now, [0.6, 0.1]))


def test_what_is_seen_turns_with_robot_object_and_goal(push):
    turn = rotation.exponential(torch.tensor([0.0, 0.0, 0.8]))

    def turned(vector):
        return rotation.rotate(turn, torch.tensor(vector)).tolist()

    straight = pushed()
    moved = pushed(turn.tolist(), turned([0.5, 0.0, 0.1]), turned([0.25, 0.0, 0.0]))
    goal = [0.9, -0.2]
    first = push.observe(straight, with_command(push, straight, goal))
    second = push.observe(moved, with_command(push, moved, turned([*goal, 0.0])[:2]))
    assert first.shape == (1, len(push.observations))
    torch.testing.assert_close(second, first, rtol=0, atol=1e-6)
    assert first[0, list(push.observations).index("object_x")] == pytest.approx(0.5)


def test_every_column_has_a_name(lift, push):
    for task, now, goal in ((lift, lifted(), [0.4, 0.0, 0.2]), (push, pushed(), [1.0, 0.0])):
        task.require(now)
        seen = task.observe(now, with_command(task, now, goal))
        assert seen.shape == (1, len(task.observations))
        assert len(set(task.observations)) == len(task.observations)
        assert seen.isfinite().all()


def test_actions_are_steps_of_servos_and_ranges_of_other_drives(lift):
    now = lifted()
    memory = with_command(lift, now, [0.4, 0.0, 0.2])
    target = lift.control(torch.tensor([[1.0, -1.0, 0.0, 1.0, -1.0]]), now, memory).target
    assert target is not None
    torch.testing.assert_close(target, torch.tensor([[0.15, -1.05, 1.8, 0.95, 0.0]]))
    far = given(**{**{name: lifted()[name][0].tolist() for name in lifted()}, "joint_position": [2.45] + [0.0] * 5})
    clipped = lift.control(torch.ones(1, 5), far, memory).target
    assert clipped is not None
    assert clipped[0, 0] == pytest.approx(2.5)
    assert lift.action_scale == pytest.approx((0.15, 0.15, 0.15, 0.25, 0.025))


def test_objects_and_bases_start_within_their_ranges(push, lift):
    starts: State = push.start(500, torch.Generator().manual_seed(0))
    heading = rotation.logarithm(starts.q[:, 3:7])[:, 2]
    assert 0.3 < float(heading.abs().max()) < 0.5  # .4, and a tilt of .1
    ball = starts.q[:, 15:18]
    assert 0.35 <= float(ball[:, 0].min()) < 0.37
    assert 0.58 < float(ball[:, 0].max()) <= 0.6
    assert (ball[:, 2] == 0.1).all()
    turn = rotation.logarithm(lift.start(500, torch.Generator().manual_seed(0)).q[:, 9:])
    assert 0.37 < float(turn[:, 2].abs().max()) <= 0.4
    assert not turn[:, :2].any()


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"object": "ball"}, "object is 'ball'; valid: a free body beside the robot, cube"),
        ({"goal": {"x": [0.4, 0.5]}}, "goal has x; valid: ranges of x, y, z"),
        ({"steps": {"lift": 0.1}}, "steps name 'lift'; valid: elbow, grip, shoulder, wrist, yaw"),
        ({"near": 0.0}, "near is 0.0; valid: a finite number above 0"),
        ({"rise": -1.0}, "rise is -1.0; valid: a finite number above 0"),
        ({"nearly": 0.1}, "nearly"),
    ],
)
def test_wrong_settings_are_refused(tmp_path, change, complaint):
    robot = yaml.safe_load((SCENES / "lifter" / "robot.yaml").read_text())
    robot["asset"] = str(SCENES / "lifter" / "lifter.xml")
    robot["tasks"]["lift"] |= change
    (tmp_path / "robot.yaml").write_text(yaml.safe_dump(robot))
    with pytest.raises(InputError, match=complaint):
        Lift(str(tmp_path))


def test_a_task_needs_a_robot_that_declares_it():
    with pytest.raises(InputError, match="robot 'lifter' declares no task 'push'; it declares lift"):
        Push(str(SCENES / "lifter"))
    with pytest.raises(InputError, match="valid: lift@ROBOT"):
        tasks.load("lift")
    with pytest.raises(InputError, match="lift@ROBOT"):
        tasks.load("lifting")


def test_an_arm_without_an_end_effector_is_refused(tmp_path):
    robot = yaml.safe_load((SCENES / "lifter" / "robot.yaml").read_text())
    robot["asset"] = str(SCENES / "lifter" / "lifter.xml")
    del robot["end_effector"]
    (tmp_path / "robot.yaml").write_text(yaml.safe_dump(robot))
    with pytest.raises(InputError, match="declare an end_effector"):
        Lift(str(tmp_path))
    assert load(str(tmp_path)).end_effector is None
