# SPDX-License-Identifier: Apache-2.0
"""First states within the ranges that the robot declares, and what a task remembers, per world and of the past."""

import math

import msgspec
import pytest
import torch

from neurodyn import tasks
from neurodyn.geometry import rotation
from neurodyn.robots import load
from neurodyn.tasks.task import reset_states
from tests.tasks.quantities import given

COUNT = 2000


def seeded():
    return torch.Generator().manual_seed(0)


def test_a_floating_base_is_turned_about_axes_of_all_directions():
    vectors = rotation.logarithm(reset_states(load("ant"), COUNT, seeded()).q[:, 3:7])
    angles = vectors.norm(dim=-1)
    assert 0.5 < float(angles.max()) <= math.pi / 6 + 1e-4
    assert float(angles.mean()) == pytest.approx(math.pi / 12, rel=0.05)  # uniform
    means = (vectors / angles[:, None]).mean(0)
    assert float(means.abs().max()) < 0.06


def test_a_floating_base_is_lifted_tilted_and_turned_within_its_ranges():
    robot = load("ant")
    reset = msgspec.structs.replace(robot.reset, rotation=None, tilt=0.1)
    state = reset_states(msgspec.structs.replace(robot, reset=reset), COUNT, seeded(), heading=(-0.5, 0.5))
    assert state.q[:, :2].abs().max() == 0.0
    assert 0.9 <= float(state.q[:, 2].min()) < 0.91
    assert 1.09 < float(state.q[:, 2].max()) <= 1.1
    matrix = rotation.matrix(state.q[:, 3:7])
    tilt = torch.arccos(matrix[:, 2, 2].clamp(-1, 1))
    assert 0.09 < float(tilt.max()) < 0.1 + 1e-3
    heading = torch.atan2(matrix[:, 1, 0], matrix[:, 0, 0])
    assert 0.45 < float(heading.max()) < 0.52
    names = [joint.name for joint in robot.joints[1:]]
    for column, name in zip(state.q[:, 7:].unbind(-1), names, strict=True):
        lower, upper = robot.reset.q[name]
        assert lower <= float(column.min())
        assert float(column.max()) <= upper
    assert 0.24 < float(state.qd.abs().max()) <= 0.25


def test_a_bolted_robot_has_a_number_for_each_joint():
    state = reset_states(load("cartpole"), COUNT, torch.Generator().manual_seed(0))
    assert 0.99 < float(state.q[:, 0].abs().max()) <= 1.0
    assert 3.1 < float(state.q[:, 1].abs().max()) <= math.pi


def test_memory_advances_and_starts_over_in_single_worlds():
    task = tasks.load("franka-torque")
    random = torch.Generator().manual_seed(0)
    now = given(joint_velocity=[1.0] * 7)
    first = task.begin(now, random)
    assert first.frame.tolist() == [0]
    assert first.action.abs().sum() == 0

    then = given(joint_velocity=[2.0] * 7)
    second = task.advance(first, then, torch.ones(1, 7), random)
    assert second.frame.tolist() == [1]
    assert second.action.tolist() == [[1.0] * 7]
    assert second.joint_velocity.tolist() == [[2.0] * 7]
    assert torch.equal(second.command, first.command)

    fresh = task.begin(now, random)
    assert not torch.equal(fresh.command, first.command)
    kept, renewed = (second.renew(torch.tensor([mask]), fresh) for mask in (False, True))
    for name, value in vars(kept).items():
        assert torch.equal(value, getattr(second, name))
        assert torch.equal(getattr(renewed, name), getattr(fresh, name))
