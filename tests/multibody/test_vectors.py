# SPDX-License-Identifier: Apache-2.0
"""Vectors and matrices of lists against numpy; rotations by what they do; slopes where a formula has a hole."""

import math

import numpy as np
import pytest

from neurodyn.geometry.rotation import quaternion_matrix
from neurodyn.multibody import vectors
from neurodyn.multibody.trace import Graph
from tests.multibody import reference
from tests.multibody.reference import close
from tests.multibody.trace.interpreter import differences, traced_gradient

RNG = np.random.default_rng(0)
A, B = RNG.normal(size=(2, 3))
M, N = RNG.normal(size=(2, 3, 3))


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (vectors.dot(A, B), A @ B),
        (vectors.cross(A, B), np.cross(A, B)),
        (vectors.skew(A) @ vectors.array(B), np.cross(A, B)),
        (vectors.symmetric_inverse(M @ M.T), np.linalg.inv(M @ M.T)),
        (vectors.normalise(A), A / np.linalg.norm(A)),
    ],
)
def test_lists_compute_what_arrays_compute(found, expected):
    close(found, expected, rtol=1e-12, atol=1e-13)


def test_a_unit_vector_of_axes_stays_unchanged():
    for axis in np.eye(3).tolist():
        assert vectors.normalise(axis).tolist() == axis


def test_traced_zeros_and_ones_cost_nothing():
    graph = Graph()
    x = vectors.array(graph.inputs("x", 3))
    before = len(graph.nodes)
    for same in (vectors.EYE @ x, x + vectors.ZERO, 1.0 * x):
        assert [a.index for a in same] == [a.index for a in x]
    assert all(node[0] in ("constant", "input") for node in graph.nodes[before:])


def test_quaternions_and_axes_turn_the_same_way():
    for angle in (-3.0, 0.0, 1e-9, 0.7, math.pi):
        axis = reference.unit(RNG, 3)
        quaternion = reference.exponential(angle * axis)
        turn = vectors.axis_rotation(axis.tolist(), angle)
        close(turn, reference.rotated(axis, angle), atol=1e-14)
        close(quaternion_matrix(quaternion), turn, atol=1e-12)
    quarter = vectors.axis_rotation([0.0, 0.0, 1.0], math.pi / 2)
    close(quarter @ [1.0, 0.0, 0.0], [0.0, 1.0, 0.0], atol=1e-15)


@pytest.mark.parametrize("angle", [0.0, 1e-12, 9.9e-7, 1.01e-6, 1e-3, 1.0, 6.0])
def test_turning_applies_a_rotation_in_the_axes_it_turns_into(angle):
    rotation, q = angle * reference.unit(RNG, 3), reference.unit(RNG, 4)
    found = vectors.turn(q.tolist(), vectors.array(rotation.tolist()))
    close(found, reference.multiply(reference.exponential(rotation), q), atol=1e-13)
    assert math.hypot(*found) == pytest.approx(1.0, abs=1e-15)


@pytest.mark.parametrize("size", [0.0, 1e-4, 0.3, 2.0])
def test_slopes_of_a_turn_are_right_and_finite_at_rest(size):
    q, rotation = reference.unit(RNG, 4), size * reference.unit(RNG, 3)
    point = [*q, *rotation]

    def weighed(*x):
        return vectors.dot([1.0, -2.0, 0.5], vectors.turn(x[:4], vectors.array(x[4:]))[:3])

    value, *gradient = traced_gradient(weighed, point)
    assert value == pytest.approx(weighed(*point), abs=1e-14)
    # Steps stay clear of 1e-6 rad, where one formula takes over from the other.
    close(gradient, differences(weighed, point, step=1e-5), atol=1e-8)
