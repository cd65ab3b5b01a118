# SPDX-License-Identifier: Apache-2.0
"""Lengths of tendons, their Jacobians and velocities: beside positions and differences of the double pendulum."""

import numpy as np
import pytest

from neurodyn.core.description.couplings import Strand, Tendon, Waypoint
from neurodyn.multibody.articulated import Tree
from neurodyn.multibody.points import Kinematics
from neurodyn.multibody.tendons.attachments import AttachedMotion
from neurodyn.multibody.tendons.lengths import tendon_motions
from tests.multibody import machines
from tests.multibody.reference import Configuration

MECHANISM = machines.pendulum()
FIXED = Tendon(name="fixed", joints={"shoulder": 0.5, "elbow": -0.2})
POINTS = (Waypoint("", (0.3, 0.0, 0.2)), Waypoint("shoulder", (0.0, 0.1, -0.2)), Waypoint("elbow", (0.1, 0.0, -0.1)))
SPATIAL = Tendon(name="string", strands=(Strand(points=POINTS),))
Q, QD = [0.4, -0.3], [1.5, -2.0]


def motions(q=Q, qd=QD):
    values = MECHANISM.quantities() | FIXED.quantities() | SPATIAL.quantities()
    tree = Tree(MECHANISM, values.__getitem__)
    links = Kinematics(tree, tree.motions(q, qd))
    return links, tendon_motions(links, (FIXED, SPATIAL), q, qd, values.__getitem__)


def places(q):
    at = Configuration(MECHANISM, q)
    own = [at.origins[i] + at.turns[i] @ np.array(point.point) for i, point in enumerate(POINTS[1:])]
    return [np.array(POINTS[0].point), *own]


def test_lengths_are_those_of_arms_and_points():
    _, tendons = motions()
    assert tendons["fixed"].length == pytest.approx(0.5 * 0.4 + 0.2 * 0.3)
    at = places(Q)
    assert tendons["string"].length == pytest.approx(np.linalg.norm(at[1] - at[0]) + np.linalg.norm(at[2] - at[1]))


@pytest.mark.parametrize("name", ["fixed", "string"])
def test_rows_are_derivatives_of_lengths(name):
    row = motions()[1][name].row
    for dof in range(2):
        ahead, behind = (
            motions([x + sign * 1e-6 * (k == dof) for k, x in enumerate(Q)])[1][name].length for sign in (1, -1)
        )
        assert row[dof] == pytest.approx((ahead - behind) / 2e-6, rel=1e-8)
    assert motions()[1][name].velocity == pytest.approx(row[0] * QD[0] + row[1] * QD[1])


def test_attached_points_move_with_their_links():
    links, _ = motions()
    attached = AttachedMotion(links, QD)
    for point, place in zip(POINTS, places(Q), strict=True):
        at = attached.point(point.link, np.array(point.point))
        np.testing.assert_allclose(np.array(at.position, float), place, atol=1e-12)
    ahead, behind = (places([x + sign * 1e-6 * v for x, v in zip(Q, QD, strict=True)])[2] for sign in (1, -1))
    tip = attached.point("elbow", np.array(POINTS[2].point))
    np.testing.assert_allclose(np.array(attached.velocity(tip), float), (ahead - behind) / 2e-6, rtol=1e-7)
