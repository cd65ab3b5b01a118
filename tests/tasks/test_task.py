# SPDX-License-Identifier: Apache-2.0
"""What a task remembers: per world, and only of the past."""

import torch

from neurodyn import tasks
from tests.tasks.quantities import given


def test_memory_advances_and_begins_anew_in_single_worlds():
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
