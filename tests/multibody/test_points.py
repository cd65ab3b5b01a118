# SPDX-License-Identifier: Apache-2.0
"""Points beside a ground: depth, velocity, and the forces that reach links from them."""

import math

import numpy as np
import pytest

from neurodyn.core.description.contacts import ContactPoint
from neurodyn.core.description.mechanism import Mechanism
from neurodyn.multibody.articulated import Tree
from neurodyn.multibody.points import Kinematics, link_poses, touches, wrenches
from tests.multibody import machines, reference
from tests.multibody.reference import Configuration, close, random_mechanism, random_motion

TILT = 0.3
NORMAL = [math.sin(TILT), 0.0, math.cos(TILT)]
ALL_KINDS = (("free", "ball", "prismatic", "revolute", "revolute"), (-1, 0, 1, 2, 0))


def tree_of(mechanism):
    return Tree(mechanism, mechanism.quantities().__getitem__)


def touch_all(mechanism, q, qd, origin=(0.2, -0.4, 0.3), normal=NORMAL):
    tree = tree_of(mechanism)
    motions = tree.motions(list(map(float, q)), list(map(float, qd)))
    poses = link_poses(tree, motions)
    grounds = [(list(origin), list(normal))] * len(mechanism.points)
    return touches(Kinematics(tree, motions), mechanism.points, grounds), poses


@pytest.fixture(scope="module")
def tangle():
    """Every kind of joint with turned frames, and a point on every link."""
    rng = np.random.default_rng(4)
    mechanism = random_mechanism(rng, *ALL_KINDS)
    points = [
        ContactPoint(name=f"p{i}", joint=i, point=tuple(map(float, rng.uniform(-0.4, 0.4, 3))), radius=0.05 * i)
        for i in range(len(mechanism.links))
    ]
    return Mechanism(links=mechanism.links, gravity=mechanism.gravity, points=tuple(points)), random_motion(
        rng, mechanism
    )


@pytest.mark.parametrize("height", [-0.02, 0.05, 0.3])
def test_depth_of_a_ball_on_a_tilted_plane(height):
    """The centre is `height` over a plane, wherever along it: radius minus height is in the ground."""
    along = [math.cos(TILT), 0.0, -math.sin(TILT)]
    centre = [0.2 + 3 * along[0] + height * NORMAL[0], 1.7, 0.3 + 3 * along[2] + height * NORMAL[2]]
    (touch,), _ = touch_all(machines.sphere(radius=0.1), [*centre, 0, 0, 0, 1], [0] * 6)
    assert touch.depth == pytest.approx(0.1 - height, abs=1e-12)
    close(touch.arm, -0.1 * np.array(NORMAL), atol=1e-12)


def test_places_are_those_of_the_links(tangle):
    mechanism, (q, qd, _) = tangle
    found, poses = touch_all(mechanism, q, qd)
    at = Configuration(mechanism, q)
    for touch, point, pose in zip(found, mechanism.points, poses, strict=True):
        place = at.origins[point.joint] + at.turns[point.joint] @ np.array(point.point)
        child, origin = reference.pose(mechanism.links[point.joint].joint.child_frame)
        close(pose.origin, at.origins[point.joint] + at.turns[point.joint] @ origin, atol=1e-12)
        close(np.array(pose.rotation), at.turns[point.joint] @ child, atol=1e-12)
        lowest = place - point.radius * np.array(NORMAL)
        close(np.array(pose.origin) + touch.arm, lowest, atol=1e-12)
        assert touch.depth == pytest.approx(-np.array(NORMAL) @ (lowest - np.array([0.2, -0.4, 0.3])), abs=1e-12)


def test_the_velocity_is_that_of_the_material_point_at_the_bottom(tangle):
    """By differences: the point of the body that is lowest now, a moment before and after."""
    mechanism, (q, qd, _) = tangle
    found, _ = touch_all(mechanism, q, qd)
    at, h = Configuration(mechanism, q), 1e-6
    for touch, point in zip(found, mechanism.points, strict=True):
        turn, origin = at.turns[point.joint], at.origins[point.joint]
        body = np.array(point.point) - point.radius * turn.T @ np.array(NORMAL)
        places = []
        for sign in (1, -1):
            moved = Configuration(mechanism, reference.moved(mechanism, q, qd, sign * h))
            places.append(moved.origins[point.joint] + moved.turns[point.joint] @ body)
        assert np.abs(origin + turn @ body - places[0]).max() > 1e-7
        close(touch.velocity, (places[0] - places[1]) / (2 * h), atol=1e-8)


def test_a_points_force_does_the_work_of_its_velocity(tangle):
    """Accelerations under forces at points are those under the generalised forces J^T f."""
    mechanism, (q, qd, torque) = tangle
    rng = np.random.default_rng(5)
    found, poses = touch_all(mechanism, q, qd)
    forces = rng.normal(size=(len(found), 3))
    tree = tree_of(mechanism)
    motions = tree.motions(q.tolist(), qd.tolist())
    on_links = wrenches(poses, found, [list(map(float, f)) for f in forces])
    mine = tree.accelerations(motions, q.tolist(), torque.tolist(), on_links)
    at, total = Configuration(mechanism, q), torque.copy()
    for touch, point, force in zip(found, mechanism.points, forces, strict=True):
        place = at.origins[point.joint] + at.turns[point.joint] @ np.array(point.point)
        total += at.point(touch.link, place - point.radius * np.array(NORMAL)).T @ force
    expected = reference.accelerations(mechanism, q, qd, total)
    close(mine, expected, atol=1e-6 * np.abs(expected).max())


def test_forces_of_several_points_on_a_link_add_up():
    mechanism = machines.hopper()
    q = [0.1, 0.2, 0.3, *reference.unit(np.random.default_rng(0), 4), 0.4]
    found, poses = touch_all(mechanism, q, np.zeros(7))
    forces = [[1.0, 2.0, 3.0], [-1.0, 0.5, 2.0], [0.0, 4.0, -1.0], [2.0, 0.0, 0.0]]
    together = wrenches(poses, found, forces)
    assert set(together) == {0, 1}
    one_by_one = [wrenches(poses, [t], [f]) for t, f in zip(found[1:], forces[1:], strict=True)]
    for part in (0, 1):
        close(together[0][part], sum(np.array(w[0][part]) for w in one_by_one), atol=1e-12)


def test_each_point_has_a_ground_of_its_own():
    mechanism = machines.hopper()
    tree = tree_of(mechanism)
    motions = tree.motions([0.0, 0.0, 0.5, 0.0, 0.0, 0.0, 1.0, 0.0], [0.0] * 7)
    grounds = [([0.0, 0.0, 0.1 * i], [0.0, 0.0, 1.0]) for i in range(4)]
    found = touches(Kinematics(tree, motions), mechanism.points, grounds)
    assert [touch.name for touch in found] == ["foot", "left", "right", "front"]
    assert [touch.depth for touch in found[1:]] == pytest.approx([0.1 - 0.38, 0.2 - 0.38, 0.3 - 0.38])
