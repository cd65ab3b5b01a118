# SPDX-License-Identifier: Apache-2.0
"""Errors, baselines and summaries against sums done by hand."""

import math

import pytest
import torch

from neurodyn.dynamics.interface import Trajectory
from neurodyn.fit.errors import (
    Columns,
    constant_velocity,
    finite_worlds,
    hold_last,
    horizons_up_to,
    percentiles,
    position_errors,
    summarise,
    velocity_errors,
)
from neurodyn.robots import Robot, load

COLUMNS = Columns(base=(0,), angles=(1,), slides=())


def random(worlds: int = 3, frames: int = 6) -> Trajectory:
    generator = torch.Generator().manual_seed(0)
    return Trajectory(*(torch.randn(worlds, frames + 1, 2, generator=generator) for _ in range(2)))


def test_the_base_of_the_cartpole_is_its_cart(cartpole: Robot):
    assert Columns.of(cartpole) == COLUMNS
    assert set(COLUMNS.groups()) == {"base_position_m", "joint_rad"}


def test_a_double_pendulum_has_no_base():
    assert Columns.of(load("dfki-c1")).groups() == {"joint_rad": (0, 1)}


def test_errors_leave_out_the_first_frame_and_wrap_where_continuous(cartpole: Robot):
    truth = random()
    off = Trajectory(truth.q + torch.tensor([0.5, 2 * math.pi + 0.1]), truth.qd - 0.3)
    found = position_errors(cartpole.spec, off, truth)
    assert found.shape == (3, 6, 2)
    torch.testing.assert_close(found, torch.tensor([0.5, 0.1]).expand(3, 6, 2), rtol=0, atol=1e-5)
    torch.testing.assert_close(velocity_errors(off, truth), torch.full((3, 6, 2), 0.3), rtol=0, atol=1e-6)


def test_baselines_are_what_they_say():
    truth = random()
    held = hold_last(truth)
    assert all(
        torch.equal(held.q[:, t], truth.q[:, 0]) and torch.equal(held.qd[:, t], truth.qd[:, 0]) for t in range(7)
    )
    moving = constant_velocity(truth, 0.1)
    torch.testing.assert_close(moving.q[:, 3], truth.q[:, 0] + 0.3 * truth.qd[:, 0])
    assert torch.equal(moving.qd[:, 6], truth.qd[:, 0])


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_a_rollout_is_finite_to_its_end_or_not_at_all(bad: float):
    trajectory = random()
    trajectory.q[1, 3, 0] = bad
    trajectory.qd[2, 6, 1] = bad
    assert finite_worlds(trajectory).tolist() == [True, False, False]


def test_a_summary_is_the_mean_over_frames_up_to_the_horizon_and_over_worlds():
    errors = torch.arange(24.0).view(2, 6, 2)
    found = summarise(errors, COLUMNS, 3)
    assert found["base_position_m"] == pytest.approx((0 + 2 + 4 + 12 + 14 + 16) / 6)
    assert found["joint_rad"] == pytest.approx((1 + 3 + 5 + 13 + 15 + 17) / 6)
    assert found["base_orientation_rad"] == 0.0
    assert found["joint_rad_percentiles"] == pytest.approx({"10": 3 + 1.2, "50": 9.0, "90": 15 - 1.2})


def test_no_world_has_no_error_instead_of_a_good_one():
    found = summarise(torch.zeros(0, 6, 2), COLUMNS, 3)
    assert found["joint_rad"] is None
    assert found["joint_rad_percentiles"] == {"10": None, "50": None, "90": None}
    assert percentiles(torch.zeros(0)) == {"10": None, "50": None, "90": None}


@pytest.mark.parametrize(
    ("frames", "marks"), [(5, [5]), (10, [10]), (120, [10, 100, 120]), (1000, [10, 100, 500, 1000])]
)
def test_horizons_go_as_far_as_the_rollout(frames: int, marks: list[int]):
    assert horizons_up_to(frames) == marks
