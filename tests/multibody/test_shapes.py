# SPDX-License-Identifier: Apache-2.0
"""Distances from convex shapes beside samples of their surfaces."""

import numpy as np
import pytest

from neurodyn.core import BodyShape
from neurodyn.multibody.contacts.body_contacts import distance

TRIANGLE = ((-0.03, -0.02), (0.05, -0.01), (0.0, 0.04))
SHAPES = {
    "sphere": BodyShape(link="a", kind="sphere", position=(0.01, -0.02, 0.0), radius=0.03),
    "box": BodyShape(link="a", kind="box", position=(0.01, 0.0, 0.005), half=(0.04, 0.02, 0.03)),
    "polygon": BodyShape(link="a", kind="polygon", vertices=TRIANGLE),
    "rounded": BodyShape(link="a", kind="polygon", vertices=TRIANGLE, radius=0.01),
}


def surface(shape, random, count=60_000):
    """Return points of a surface; of a polygon, in the plane."""
    if shape.kind == "sphere":
        x = random.normal(size=(count, 3))
        return np.array(shape.position) + shape.radius * x / np.linalg.norm(x, axis=1, keepdims=True)
    if shape.half is not None:
        x = random.uniform(-1, 1, (count, 3))
        face = random.integers(3, size=count)
        x[np.arange(count), face] = random.choice([-1.0, 1.0], count)
        return np.array(shape.position) + x * np.array(shape.half)
    corners = np.array(shape.vertices)
    share, side = random.uniform(size=(count, 1)), random.integers(len(corners), size=count)
    edge = (1 - share) * corners[side] + share * corners[(side + 1) % len(corners)]
    return np.concatenate((edge, np.zeros((count, 1))), axis=1)


def inside(shape, points):
    if shape.kind == "sphere":
        return np.linalg.norm(points - shape.position, axis=1) < shape.radius
    if shape.half is not None:
        return (np.abs(points - shape.position) < shape.half).all(1)
    a = np.array(shape.vertices)
    e, r = np.roll(a, -1, 0) - a, points[:, None, :2] - a
    return (e[:, 0] * r[..., 1] - e[:, 1] * r[..., 0] > 0).all(1)


@pytest.mark.parametrize("name", SHAPES)
def test_a_distance_is_that_of_the_nearest_point_of_the_surface(name):
    shape, random = SHAPES[name], np.random.default_rng(0)
    points = random.uniform(-0.08, 0.08, (40, 3))
    if shape.kind == "polygon":
        points[:, 2] = 0.0
    sampled = surface(shape, random)
    away = np.array([np.linalg.norm(sampled - p, axis=1).min() for p in points])
    own = shape.radius if shape.kind == "polygon" else 0.0
    expected = np.where(inside(shape, points), -away, away) - own
    found = [distance(shape, np.array(p, dtype=object)) for p in points]
    np.testing.assert_allclose([float(d) for d, _ in found], expected, atol=1e-3)


@pytest.mark.parametrize("name", SHAPES)
def test_the_normal_is_the_slope_of_the_distance(name):
    shape, random = SHAPES[name], np.random.default_rng(1)
    for point in random.uniform(-0.08, 0.08, (30, 3)):
        normal = np.array(distance(shape, np.array(point, dtype=object))[1], float)
        ways = range(2) if shape.kind == "polygon" else range(3)
        assert np.linalg.norm(normal) == pytest.approx(1.0, abs=1e-9)
        for axis in ways:
            step = 1e-7 * np.eye(3)[axis]
            up, down = (float(distance(shape, np.array(point + s, dtype=object))[0]) for s in (step, -step))
            assert (up - down) / 2e-7 == pytest.approx(normal[axis], abs=1e-5)


def test_a_point_on_a_face_has_the_normal_of_the_face():
    reach, normal = distance(SHAPES["polygon"], np.array([0.01, -0.015, 0.0], dtype=object))
    assert abs(float(reach)) <= 1e-6
    assert np.array(normal, float) == pytest.approx(np.array([0.01, -0.08, 0.0]) / np.hypot(0.01, 0.08), abs=1e-9)
