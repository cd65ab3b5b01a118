# SPDX-License-Identifier: Apache-2.0
"""Friction, springs and limits of a joint: their laws, their signs, and that stops push and never pull."""

import math

import numpy as np
import pytest

from neurodyn.core.description.mechanism import Link, Mechanism
from neurodyn.multibody.drives.drive import passive_torque
from neurodyn.multibody.drives.friction import FRICTION_SPEED
from tests.multibody.reference import random_link
from tests.multibody.trace.interpreter import differences, traced_gradient

PLAIN = random_link(np.random.default_rng(0), "revolute", -1, "hinge")


def link(**values):
    return Link(joint=PLAIN.joint, mass=1.0, com=(0.0, 0.0, 0.0), inertia=(1.0, 1.0, 1.0, 0.0, 0.0, 0.0), **values)


def torque(one, q, qd, **quantities):
    values = {**Mechanism(links=(one,)).quantities(), **{f"hinge.{k}": v for k, v in quantities.items()}}
    return passive_torque(one, values.__getitem__, q, qd)


LIMITED = link(lower=-1.0, upper=0.5, limit_stiffness=100.0, limit_damping=20.0)


def test_nothing_acts_where_nothing_is_declared():
    assert torque(link(), 0.7, -3.0) == 0.0


def test_viscous_friction_opposes_speed():
    assert torque(link(damping=2.0), 0.3, 1.5) == -3.0


def test_coulomb_friction_opposes_motion_and_vanishes_at_rest():
    one = link(friction=4.0)
    assert torque(one, 0.0, 0.0) == 0.0
    assert torque(one, 0.0, 10 * FRICTION_SPEED) == pytest.approx(-4.0, rel=1e-8)
    assert torque(one, 0.0, -10 * FRICTION_SPEED) == pytest.approx(4.0, rel=1e-8)
    assert torque(one, 0.0, FRICTION_SPEED) == pytest.approx(-4.0 * math.tanh(1.0))


def test_a_spring_pulls_towards_its_rest():
    assert torque(link(stiffness=3.0, rest=0.2), 1.2, 0.0) == pytest.approx(-3.0)
    assert torque(link(stiffness=3.0, rest=0.2), -0.8, 5.0) == pytest.approx(3.0)


@pytest.mark.parametrize("speed", [-5.0, 0.0, 5.0])
def test_within_the_limits_they_do_nothing(speed):
    for q in (-1.0, -0.99, 0.0, 0.5):
        assert torque(LIMITED, q, speed) == 0.0


def test_beyond_a_limit_a_spring_pushes_back():
    assert torque(LIMITED, 0.6, 0.0) == pytest.approx(-10.0)
    assert torque(LIMITED, -1.2, 0.0) == pytest.approx(20.0)


def test_the_damper_of_a_limit_resists_what_moves_further_out():
    share = 10.0 / 11.0  # of 0.1 beyond the limit
    assert torque(LIMITED, 0.6, 2.0) == pytest.approx(-10.0 - 20.0 * share * 2.0)
    assert torque(LIMITED, -1.1, -2.0) == pytest.approx(10.0 + 20.0 * share * 2.0)


def test_limits_never_pull():
    assert torque(LIMITED, 0.6, -50.0) == 0.0
    assert torque(LIMITED, -1.1, 50.0) == 0.0
    assert torque(LIMITED, 0.6, -0.1) == pytest.approx(-10.0 + 20.0 * 0.1 * 10.0 / 11.0)


def test_the_torque_has_no_jump_at_a_limit():
    for speed in (-3.0, 3.0):
        assert abs(torque(LIMITED, 0.5 + 1e-9, speed)) < 1e-4


@pytest.mark.parametrize("sides", [{"lower": -1.0}, {"upper": 0.5}])
def test_a_joint_may_have_one_limit(sides):
    one = link(**sides, limit_stiffness=100.0)
    assert (torque(one, 0.6, 0.0) == 0.0) == ("upper" not in sides)
    assert (torque(one, -1.1, 0.0) == 0.0) == ("lower" not in sides)


NAMES = ("damping", "friction", "stiffness", "rest", "lower", "upper", "limit_stiffness", "limit_damping")


@pytest.mark.parametrize(("q", "qd"), [(0.6, 0.3), (-1.2, -0.02), (0.1, 0.04), (0.7, -0.3), (0.7, -40.0)])
def test_slopes_by_state_and_quantities(q, qd):
    point = [q, qd, 0.5, 0.8, 2.0, 0.1, -1.0, 0.5, 100.0, 20.0]

    def function(q, qd, *values):
        return torque(LIMITED, q, qd, **dict(zip(NAMES, values, strict=True)))

    value, *gradient = traced_gradient(function, point)
    assert value == pytest.approx(function(*point))
    np.testing.assert_allclose(gradient, differences(function, point), rtol=1e-6, atol=1e-7)


def test_slopes_at_a_limit_are_finite():
    for q in (0.5, -1.0):
        for qd in (-1.0, 0.0, 1.0):
            gradient = traced_gradient(lambda q, qd: torque(LIMITED, q, qd), (q, qd))[1:]
            assert all(math.isfinite(x) for x in gradient)
