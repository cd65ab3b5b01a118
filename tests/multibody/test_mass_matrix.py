# SPDX-License-Identifier: Apache-2.0
"""The factored mass matrix against one that is summed body by body from Jacobians."""

import numpy as np
import pytest
from hypothesis import given, settings

from neurodyn.multibody.articulated import Tree
from neurodyn.multibody.mass_matrix import TreeInertia, is_zero
from neurodyn.multibody.points import link_poses
from neurodyn.multibody.trace import Graph
from neurodyn.multibody.vectors import array
from tests.multibody.reference import Configuration, close, random_mechanism, random_motion, trees

ALL_KINDS = (("free", "ball", "prismatic", "revolute", "revolute"), (-1, 0, 1, 2, 0))
TWO_TREES = (("free", "revolute", "ball", "revolute"), (-1, 0, -1, 2))


def inertia_of(mechanism, q):
    tree = Tree(mechanism, mechanism.quantities().__getitem__)
    poses = link_poses(tree, tree.motions(list(q), [0.0] * mechanism.nv))
    return TreeInertia(tree, poses), poses


@settings(derandomize=True, max_examples=40, deadline=None)
@given(trees())
def test_matrix_and_solutions_are_those_of_the_sum_over_bodies(drawn):
    kinds, parents, seed = drawn
    rng = np.random.default_rng(seed)
    mechanism = random_mechanism(rng, kinds, parents)
    q, _, force = random_motion(rng, mechanism)
    expected = Configuration(mechanism, q).mass_matrix()
    inertia, _ = inertia_of(mechanism, q)
    found = np.array([row + [0.0] * (mechanism.nv - len(row)) for row in inertia.matrix])
    close(found, np.tril(expected), atol=1e-11 * np.abs(expected).max())
    solved = inertia.velocities(inertia.halfway(force.tolist()))
    close(expected @ solved, force, atol=1e-9 * np.abs(force).max())


@settings(derandomize=True, max_examples=40, deadline=None)
@given(trees())
def test_accelerations_are_those_of_the_articulated_body_algorithm(drawn):
    kinds, parents, seed = drawn
    rng = np.random.default_rng(seed)
    mechanism = random_mechanism(rng, kinds, parents)
    q, qd, force = (list(x) for x in random_motion(rng, mechanism))
    tree = Tree(mechanism, mechanism.quantities().__getitem__)
    motions = tree.motions(q, qd)
    wrenches = {index: (array(rng.normal(size=3)), array(rng.normal(size=3))) for index in range(0, len(kinds), 2)}
    expected = tree.accelerations(motions, q, force, wrenches)
    found = TreeInertia(tree, link_poses(tree, motions)).accelerations(tree, qd, force, wrenches)
    close(found, expected, atol=1e-9 * np.abs(expected).max())


def test_half_solutions_make_the_quadratic_form():
    rng = np.random.default_rng(0)
    mechanism = random_mechanism(rng, *ALL_KINDS)
    q, _, force = random_motion(rng, mechanism)
    inertia, _ = inertia_of(mechanism, q)
    half = inertia.halfway(force.tolist())
    expected = force @ np.linalg.solve(Configuration(mechanism, q).mass_matrix(), force)
    assert np.dot(half, inertia.weight(half)) == pytest.approx(expected, rel=1e-11)


@pytest.mark.parametrize("kinds", [ALL_KINDS, TWO_TREES])
def test_rows_are_the_jacobian_of_a_points_velocity(kinds):
    rng = np.random.default_rng(1)
    mechanism = random_mechanism(rng, *kinds)
    q, _, _ = random_motion(rng, mechanism)
    inertia, poses = inertia_of(mechanism, q)
    reference = Configuration(mechanism, q)
    for link, pose in enumerate(poses):
        place, direction = rng.normal(size=3), rng.normal(size=3)
        expected = direction @ reference.point(link, np.array(pose.origin) + place)
        close(inertia.row(link, place.tolist(), direction.tolist()), expected, atol=1e-12)


def test_what_belongs_to_different_branches_stays_a_constant_zero():
    mechanism = random_mechanism(np.random.default_rng(2), ("free", "revolute", "revolute", "revolute"), (-1, 0, 1, 0))
    graph = Graph()
    inertia, _ = inertia_of(mechanism, graph.inputs("x", mechanism.nq))
    assert all(is_zero(inertia.matrix[8][k]) for k in (6, 7))
    assert not is_zero(inertia.matrix[7][6])
    foot = inertia.halfway(inertia.row(3, [0.1, 0.2, 0.3], [0.0, 0.0, 1.0]))
    assert [is_zero(x) for x in foot] == [False] * 6 + [True, True, False]
