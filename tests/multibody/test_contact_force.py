# SPDX-License-Identifier: Apache-2.0
"""Hunt and Crossley's contact with smooth friction: laws that it keeps, and bodies that it holds."""

import math

import numpy as np
import pytest
import torch

from neurodyn.multibody.contacts.contact_model import DEFAULTS, friction_force, normal_force
from neurodyn.multibody.engine import Engine, EngineConfig
from neurodyn.multibody.points import PointContact
from neurodyn.multibody.vectors import ZERO, array
from tests.multibody import machines

NORMAL = [0.6, 0.0, 0.8]
FRICTION = DEFAULTS["contact.friction"]


def touch(depth, velocity, normal=NORMAL):
    return PointContact("p", 0, ZERO, array(normal), depth, array(velocity))


def force(depth, velocity, **quantities):
    values = {**DEFAULTS, **{f"contact.{name}": value for name, value in quantities.items()}}
    at = touch(depth, velocity)
    normal = normal_force(values.__getitem__, at)
    return np.array(normal * at.normal + friction_force(values.__getitem__, at, normal), float)


def test_a_point_at_rest_is_pushed_out_by_its_depth():
    found = force(2e-3, [0.0, 0.0, 0.0], stiffness=4e4)
    np.testing.assert_allclose(found, 4e4 * 2e-3**1.5 * np.array(NORMAL), rtol=1e-12)


def test_the_damper_works_against_the_approach_and_never_pulls():
    inward, outward = -0.5 * np.array(NORMAL), 0.5 * np.array(NORMAL)
    rest = force(1e-3, [0.0] * 3) @ NORMAL
    assert force(1e-3, inward, damping=0.8) @ NORMAL == pytest.approx(1.4 * rest, rel=1e-12)
    assert force(1e-3, outward, damping=0.8) @ NORMAL == pytest.approx(0.6 * rest, rel=1e-12)
    np.testing.assert_array_equal(force(1e-3, 10 * outward, damping=0.8), 0.0)


@pytest.mark.parametrize("depth", [-1.0, -1e-6, 0.0])
def test_no_force_acts_above_the_ground(depth):
    np.testing.assert_allclose(force(depth, [1.0, -2.0, -3.0]), 0.0, atol=1e-30)


def test_friction_opposes_sliding_and_stays_in_the_cone():
    rng = np.random.default_rng(0)
    for _ in range(200):
        velocity = rng.normal(size=3) * 10 ** rng.uniform(-8, 2)
        found = force(10 ** rng.uniform(-5, -1), velocity)
        normal = found @ NORMAL
        tangent = found - normal * np.array(NORMAL)
        slip = velocity - (velocity @ NORMAL) * np.array(NORMAL)
        assert normal >= 0.0
        assert np.linalg.norm(tangent) <= FRICTION * normal * (1 + 1e-12)
        if normal > 0:
            assert tangent @ slip <= 0
            np.testing.assert_allclose(np.cross(tangent, slip), 0.0, atol=1e-12 * normal * np.linalg.norm(slip))


def test_friction_of_fast_slip_is_coulombs_and_of_slow_slip_viscous():
    fast, slow = (friction_force(DEFAULTS.__getitem__, touch(1e-3, [0, v, 0]), 10.0) for v in (1.0, 1e-4))
    assert fast[1] == pytest.approx(-FRICTION * 10.0, rel=1e-9)
    assert slow[1] == pytest.approx(-FRICTION * 10.0 * 4 * 1e-4 / DEFAULTS["contact.slip_speed"], rel=1e-4)
    assert friction_force(DEFAULTS.__getitem__, touch(1e-3, [0, 0, 0]), 10.0).tolist() == [0.0, 0.0, 0.0]


def test_the_normal_force_is_smooth_where_contact_begins():
    sizes = [normal_force(DEFAULTS.__getitem__, touch(d, [0, 0, 0])) / d for d in (1e-3, 1e-5, 1e-7)]
    assert sizes[0] > 5 * sizes[1] > 25 * sizes[2] > 0


@pytest.fixture(scope="module")
def ball():
    """A ball on a plane; its stiffness, damping and friction are parameters."""
    mechanism = machines.sphere(mass=0.5, radius=0.1)
    config = EngineConfig(
        contact="force", substeps=20, free=("contact.stiffness", "contact.damping", "contact.friction", "gravity.x")
    )
    return Engine(mechanism, machines.spec(mechanism), config)


def roll(ball, start, frames=100, parameters=(1e4, 1.0, 0.8, 0.0), normal=(0.0, 0.0, 1.0)):
    state = torch.tensor([start], dtype=torch.float64)
    held = torch.tensor([0.0, 0.0, 0.0, *normal], dtype=torch.float64).expand(1, frames, 6)
    return ball.program.rollout(
        state, frames=frames, substeps=20, held=held, parameters=torch.tensor(parameters, dtype=torch.float64)
    )[0].numpy()


def test_a_ball_settles_where_its_weight_is_carried(ball):
    path = roll(ball, [0, 0, 0.1, 0, 0, 0, 1, *[0.0] * 6], 300, (1e4, 5.0, 0.8, 0.0))
    depth = (0.5 * 9.81 / 1e4) ** (2 / 3)
    assert path[-1, 2] == pytest.approx(0.1 - depth, rel=1e-6)
    assert abs(path[-1, 7:]).max() < 1e-4


def test_a_bounce_loses_energy_only_by_the_damper(ball):
    start = [0, 0, 0.3, 0, 0, 0, 1, *[0.0] * 6]
    heights = [roll(ball, start, 45, (1e4, damping, 0.8, 0.0))[25:, 2].max() for damping in (0.0, 0.3, 1.0)]
    assert heights[0] == pytest.approx(0.3, abs=4e-3)
    assert heights[0] > heights[1] + 0.01 > heights[2] + 0.02


def test_a_sliding_ball_begins_to_roll(ball):
    """A ball that slides at v rolls at 5/7 v in the end (its friction acts at the bottom, where it turns it)."""
    depth = (0.5 * 9.81 / 1e4) ** (2 / 3)
    path = roll(ball, [0, 0, 0.1 - depth, 0, 0, 0, 1, 0.7, *[0.0] * 5], 100)
    speed, spin = path[-1, 7], path[-1, 11]
    # The arm is that of the lowest point of the ball, which lies `depth` below the plane.
    assert speed == pytest.approx(0.1 * spin, rel=1e-3)
    assert speed == pytest.approx(0.7 * 5 / 7, rel=1e-3)
    assert (np.diff(path[:, 7]) <= 1e-12).all()


@pytest.mark.parametrize("slope", [0.1, 0.7])
def test_a_ball_on_a_slope_rolls_or_slips(ball, slope):
    """Down a slope: 5/7 g sin while friction holds, g (sin - mu cos) beyond tan = 7/2 mu."""
    mu = 0.8 if slope < 0.5 else 0.1
    normal = (math.sin(slope), 0.0, math.cos(slope))
    depth = (0.5 * 9.81 * math.cos(slope) / 1e4) ** (2 / 3)
    place = (0.1 - depth) * np.array(normal)
    path = roll(ball, [*place, 0, 0, 0, 1, *[0.0] * 6], 50, (1e4, 1.0, mu, 0.0), normal)
    down = path[:, 7:10] @ np.array([math.cos(slope), 0.0, -math.sin(slope)])
    gained = (down[-1] - down[25]) / (25 * machines.DT)
    rolling = 9.81 * math.sin(slope) * 5 / 7
    slipping = 9.81 * (math.sin(slope) - mu * math.cos(slope))
    assert gained == pytest.approx(rolling if slope < 0.5 else slipping, rel=5e-3)
