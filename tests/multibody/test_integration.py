# SPDX-License-Identifier: Apache-2.0
"""A step of Euler's method in coordinates where rates are not derivatives of positions."""

import numpy as np
import pytest

from neurodyn.multibody.articulated import Tree, advanced
from tests.multibody import reference
from tests.multibody.reference import Configuration, random_mechanism, random_motion

KINDS, PARENTS = ("free", "ball", "prismatic", "revolute"), (-1, 0, 1, 2)


def setting(seed=0):
    rng = np.random.default_rng(seed)
    mechanism = random_mechanism(rng, KINDS, PARENTS)
    q, qd, acceleration = (x.tolist() for x in random_motion(rng, mechanism))
    return mechanism, Tree(mechanism, mechanism.quantities().__getitem__), q, qd, acceleration


@pytest.mark.parametrize("dt", [1e-7, 1e-3, 0.5])
def test_constant_rates_move_centre_and_rotation_along_straight_lines(dt):
    mechanism, tree, q, qd, _ = setting()
    positions, velocities = advanced(tree, q, qd, [0.0] * mechanism.nv, dt)
    assert velocities == qd
    np.testing.assert_allclose(positions, reference.moved(mechanism, q, qd, dt), atol=1e-13)
    base = reference.matrix(mechanism.links[0].joint.parent_frame[3:])
    shift = Configuration(mechanism, positions).centres[0] - Configuration(mechanism, q).centres[0]
    np.testing.assert_allclose(shift, dt * base @ qd[:3], atol=1e-13)


def test_velocities_change_first_and_positions_follow_them():
    mechanism, tree, q, qd, acceleration = setting()
    positions, velocities = advanced(tree, q, qd, acceleration, 0.01)
    np.testing.assert_allclose(velocities, np.add(qd, np.multiply(0.01, acceleration)), rtol=1e-15)
    np.testing.assert_allclose(positions, reference.moved(mechanism, q, velocities, 0.01), atol=1e-13)


def test_positions_are_the_integral_of_velocities():
    """Coordinates and rates belong together: Jacobians, from the rates, predict how links move."""
    mechanism, tree, q, qd, _ = setting(1)
    h = 1e-6
    ahead, behind = (advanced(tree, q, qd, [0.0] * mechanism.nv, s)[0] for s in (h, -h))
    before, after, here = (Configuration(mechanism, x) for x in (behind, ahead, q))
    for index, (jv, jw) in enumerate(here.jacobians()):
        rate = (after.centres[index] - before.centres[index]) / (2 * h)
        np.testing.assert_allclose(jv @ qd, rate, atol=1e-7)
        turn = (after.turns[index] - before.turns[index]) / (2 * h) @ here.turns[index].T
        np.testing.assert_allclose(reference.hat(jw @ qd), turn, atol=1e-7)


def test_quaternions_stay_of_unit_length():
    _, tree, q, qd, acceleration = setting(2)
    for _ in range(200):
        q, _ = advanced(tree, q, qd, acceleration, 0.05)
    assert np.linalg.norm(q[3:7]) == pytest.approx(1.0, abs=1e-14)
    assert np.linalg.norm(q[7:11]) == pytest.approx(1.0, abs=1e-14)
