# SPDX-License-Identifier: Apache-2.0
"""Errors and baselines against what is done by hand."""

import math

import pytest
import torch

from neurodyn.core.description.spec import JointSpec, StateSpec
from neurodyn.dynamics.batch import Trajectory
from neurodyn.dynamics.coordinates import position_difference
from neurodyn.dynamics.measures import (
    ErrorColumns,
    constant_velocity,
    displace,
    error_names,
    error_units,
    finite_worlds,
    joint_distance,
    persistence,
    position_errors,
)
from neurodyn.geometry.rotation import exponential, multiply
from neurodyn.robots import Joint, Robot, load

COLUMNS = ErrorColumns(base=(0,), angles=(1,), slides=(), names=("slider", "hinge"))
FLOATING = StateSpec(
    robot="floating",
    joints=(
        JointSpec(name="root", kind="free"),
        JointSpec(name="wheel", kind="revolute", continuous=True),
        JointSpec(name="shoulder", kind="ball"),
        JointSpec(name="rail", kind="prismatic"),
    ),
    controls=(),
    dt=0.02,
)


def random(worlds: int = 3, frames: int = 6) -> Trajectory:
    generator = torch.Generator().manual_seed(0)
    return Trajectory(*(torch.randn(worlds, frames + 1, 2, generator=generator) for _ in range(2)))


def test_the_base_of_the_cartpole_is_its_cart(cartpole: Robot):
    assert ErrorColumns.of(cartpole.spec, cartpole.invariant_joints) == COLUMNS


def test_a_double_pendulum_has_no_base():
    assert ErrorColumns.of(load("dfki-c1").spec) == ErrorColumns(
        base=(), angles=(0, 1), slides=(), names=("shoulder", "elbow")
    )


def test_a_floating_base_has_a_position_and_an_orientation():
    joints = tuple(Joint(name=j.name, kind=j.kind, continuous=j.continuous) for j in FLOATING.joints)
    robot = Robot(name="floating", asset="a.urdf", joints=joints, actuated={}, dt=0.02, fixed_base=False)
    columns = ErrorColumns.of(robot.spec)
    assert (columns.base, columns.orientation, columns.angles, columns.slides) == ((0,), (1,), (2, 3), (4,))
    assert columns.joints() == {"wheel": 2, "shoulder": 3, "rail": 4}
    assert error_names(FLOATING) == ("root.position", "root.orientation", "wheel", "shoulder", "rail")
    assert error_units(FLOATING) == ("m", "rad", "rad", "rad", "m")


def floating(count: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    q = torch.randn(count, FLOATING.nq, generator=generator)
    for first in (3, 8):
        q[:, first : first + 4] /= q[:, first : first + 4].norm(dim=-1, keepdim=True)
    return q


def test_distances_of_a_floating_robot_are_lengths_and_angles():
    q, other = floating(5), floating(5)
    other[:, :3] += torch.tensor([0.3, 0.0, -0.4])
    other[:, 3:7] = multiply(exponential(torch.tensor([0.0, 0.6, 0.8])).expand(5, 4), q[:, 3:7])
    other[:, 7] += 2 * math.pi - 0.25
    other[:, 8:12] = -multiply(exponential(torch.tensor([0.1, 0.0, 0.0])).expand(5, 4), q[:, 8:12])
    other[:, 12] -= 7.0
    expected = torch.tensor([0.5, 1.0, 0.25, 0.1, 7.0]).expand(5, 5)
    torch.testing.assert_close(joint_distance(FLOATING, other, q), expected, rtol=0, atol=2e-6)


def test_the_angle_is_that_of_the_paper_for_quaternions_of_any_length():
    q, other = floating(6), floating(6).flip(0)
    dq = multiply(other[:, 3:7], q[:, 3:7] * torch.tensor([-1.0, -1.0, -1.0, 1.0]))
    paper = 2 * torch.asin(dq[:, :3].norm(dim=-1).clamp(max=1))
    stretched = other.clone()
    stretched[:, 3:7] *= 3.0
    torch.testing.assert_close(joint_distance(FLOATING, stretched, q)[:, 1], paper, rtol=1e-4, atol=1e-5)


def test_displacing_is_the_inverse_of_the_difference():
    q = floating(7)
    tangent = torch.randn(7, FLOATING.nv, generator=torch.Generator().manual_seed(2))
    moved = displace(FLOATING, q, tangent)
    torch.testing.assert_close(position_difference(FLOATING, moved, q), tangent, rtol=0, atol=1e-5)
    assert torch.equal(displace(FLOATING, q, torch.zeros(7, FLOATING.nv))[:, 7], q[:, 7])


def test_a_body_that_spins_on_stays_where_constant_velocity_puts_it():
    q = floating(1)[:, None].expand(1, 4, FLOATING.nq)
    qd = torch.zeros(1, 4, FLOATING.nv)
    qd[..., 3:6] = torch.tensor([0.0, 0.0, 1.5])
    qd[..., 0] = 2.0
    found = constant_velocity(Trajectory(q, qd), 0.02, FLOATING)
    difference = position_difference(FLOATING, found.q[:, 3], q[:, 0])[0]
    torch.testing.assert_close(difference[:6], torch.tensor([0.12, 0, 0, 0, 0, 0.09]), rtol=0, atol=1e-6)


def test_errors_leave_out_the_first_frame_and_wrap_where_continuous(cartpole: Robot):
    truth = random()
    off = Trajectory(truth.q + torch.tensor([0.5, 2 * math.pi + 0.1]), truth.qd - 0.3)
    found = position_errors(cartpole.spec, off, truth)
    assert found.shape == (3, 6, 2)
    torch.testing.assert_close(found, torch.tensor([0.5, 0.1]).expand(3, 6, 2), rtol=0, atol=1e-5)


def test_baselines_are_what_they_say():
    truth = random()
    held = persistence(truth)
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
