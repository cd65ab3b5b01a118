# SPDX-License-Identifier: Apache-2.0
"""Poses, points and mass matrices on plain arrays are those of an independent reference and of the traced form."""

import msgspec
import numpy as np
import pytest

from neurodyn.core.description.contacts import ChainJoint
from neurodyn.core.description.mechanism import Mechanism
from neurodyn.multibody.articulated import Tree
from neurodyn.multibody.link_kinematics import LinkKinematics
from neurodyn.multibody.mass_matrix import TreeInertia
from neurodyn.multibody.points import link_poses
from tests.multibody import machines
from tests.multibody.reference import Configuration, random_mechanism, random_motion

TREES = {
    "every kind of joint": (("free", "ball", "prismatic", "revolute", "revolute"), (-1, 0, 1, 2, 0)),
    "a bolted robot beside a free body": (("revolute", "revolute", "free"), (-1, 0, -1)),
}


@pytest.fixture(scope="module", params=TREES.values(), ids=TREES)
def batch(request):
    rng = np.random.default_rng(3)
    mechanism = random_mechanism(rng, *request.param)
    return mechanism, np.array([random_motion(rng, mechanism)[0] for _ in range(3)], dtype=float)


def test_poses_and_mass_matrices_are_the_references(batch):
    mechanism, q = batch
    kinematics = LinkKinematics(mechanism.links, q)
    for row, own in enumerate(q):
        expected = Configuration(mechanism, own)
        np.testing.assert_allclose(kinematics.rotations[row], expected.turns, atol=1e-12)
        np.testing.assert_allclose(kinematics.origins[row], expected.origins, atol=1e-12)
        np.testing.assert_allclose(kinematics.centres[row], expected.centres, atol=1e-12)
        np.testing.assert_allclose(kinematics.mass_matrix()[row], expected.mass_matrix(), atol=1e-12)


def test_a_screw_moves_as_in_the_traced_form():
    screw = ChainJoint(
        name="screw", kind="screw", parent=0, parent_frame=machines.TURNED, child_frame=machines.TURNED,
        axis=(0.0, 0.6, 0.8), pitch=0.05,
    )  # fmt: skip
    base, leg = machines.hopper().links
    mechanism = Mechanism(links=(base, msgspec.structs.replace(leg, joint=screw)))
    q = [0.1, 0.2, 0.3, 0.0, 0.6, 0.0, 0.8, 0.7]
    tree = Tree(mechanism, mechanism.quantities().__getitem__)
    poses = link_poses(tree, tree.motions(q, [0.0] * 7))
    kinematics = LinkKinematics(mechanism.links, np.array([q]))
    place = poses[1].origin + poses[1].rotation @ tree.in_link_frame(1, np.zeros(3))
    np.testing.assert_allclose(kinematics.origins[0, 1], np.array(place, float), atol=1e-12)
    expected = TreeInertia(tree, poses).matrix
    lower = [[float(expected[max(i, j)][min(i, j)]) for j in range(7)] for i in range(7)]
    np.testing.assert_allclose(kinematics.mass_matrix()[0], lower, atol=1e-12)


def test_points_and_axes_are_those_of_the_traced_form(batch):
    mechanism, q = batch
    tree = Tree(mechanism, mechanism.quantities().__getitem__)
    kinematics, points = LinkKinematics(mechanism.links, q), np.random.default_rng(0).normal(size=(2, 3))
    for row, own in enumerate(q):
        poses = link_poses(tree, tree.motions(own.tolist(), [0.0] * mechanism.nv))
        for index, link in enumerate(mechanism.links):
            arms = [poses[index].rotation @ tree.in_link_frame(index, point) for point in points]
            places = kinematics.points([index, index], points)[row]
            np.testing.assert_allclose(places, [np.array(poses[index].origin + arm, float) for arm in arms], atol=1e-12)
            if link.joint.scalar:
                axis = np.array(poses[index].rotation @ tree.axis(index), float)
                np.testing.assert_allclose(kinematics.axis(index)[row], axis, atol=1e-12)
