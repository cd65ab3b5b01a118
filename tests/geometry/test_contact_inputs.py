# SPDX-License-Identifier: Apache-2.0
"""Contact features: the documented functions of the readings, with their gradients."""

import gc
import weakref

import pytest
import torch

from neurodyn.core.description.scene import Box, Plane, Scene
from neurodyn.core.errors import InputError
from neurodyn.geometry.contact_features import FEATURES, ContactFeatures
from neurodyn.geometry.ground import NOTHING, Ground
from tests.geometry.chains import all_kinds, at, contact_point_at, random_pose, random_state

PLANE = Ground(Scene(shapes=(Plane(),)))
DT = 0.5


def contacts(first="free", margin=2.0):
    layout = all_kinds(first)
    return ContactFeatures(layout, [margin + 0.1 * i for i in range(len(layout.contact_points))], DT)


def expected(readings, radius, margin):
    """The features of one contact point of one world from its readings, shape [18]."""
    distance, normal, point, _, velocity, valid = readings
    gap = float(distance) - radius
    if not valid or gap >= margin:
        return torch.zeros(FEATURES, dtype=distance.dtype)
    near, unit = 1 - gap / margin, 10 / margin
    deep = max(0.0, -gap) * unit
    ahead = max(0.0, -(gap + DT * float(normal @ velocity))) * unit
    fading, touching = min(near, 1.0), float(ahead > 0)
    depths = torch.tensor([near, deep, ahead], dtype=distance.dtype)
    return torch.cat([depths, ahead * normal, touching * velocity, fading * normal, fading * velocity, fading * point])


@pytest.mark.parametrize("first", ["free", "revolute"])
def test_features_are_those_functions_of_the_readings(first):
    ours = contacts(first)
    q, qd = random_state(ours.proximity, 20)
    ground = Ground(Scene(shapes=(Plane(), Box(half=(0.5, 0.4, 0.3))))).at_pose(random_pose(20))
    features = ours(ground, q, qd).view(20, -1, FEATURES)
    readings = ours.proximity(ground, q, qd, base_frame=True)
    for world in range(20):
        for p, contact_point in enumerate(ours.proximity.layout.contact_points):
            one = expected([r[world, p] for r in readings], contact_point.radius, 2.0 + 0.1 * p)
            torch.testing.assert_close(features[world, p], one, rtol=1e-12, atol=1e-12)
    # All sides of every bend are there: beyond the margin, before the ground, coming in, and inside.
    near, deep, ahead = features[..., :3].unbind(-1)
    for case in (near == 0, (near > 0) & (ahead == 0), (deep == 0) & (ahead > 0), (deep > 0) & (ahead > 0)):
        assert case.any()


def test_the_radius_is_taken_off():
    q, qd = at([[0.0, 0.0, 0.3]])
    near = ContactFeatures(contact_point_at(radius=0.1), [0.4], DT)(PLANE, q, qd)[0, 0]
    assert float(near) == pytest.approx(0.5)


@pytest.mark.parametrize("first", ["free", "prismatic", "screw"])
def test_gradients_are_those_of_finite_differences(first):
    """On planes seen from the base the held normal is exact, and the ground point follows."""
    ours = contacts(first)
    q, qd = (x.requires_grad_() for x in random_state(ours.proximity, 12))
    ground = PLANE.at_pose(random_pose(12))
    depths = ours(ground, q, qd).view(12, -1, FEATURES)[..., :3].detach()
    assert (depths == 0).any()
    assert (depths[..., 0] > 1).any()
    assert ((depths[..., 0] > 0) & (depths[..., 0] < 1)).any()
    assert ((depths[..., 1] == 0) & (depths[..., 2] > 0)).any()
    assert torch.autograd.gradcheck(lambda q, qd: ours(ground, q, qd), (q, qd), atol=1e-7)


@pytest.mark.parametrize("backward", [False, True])
def test_what_was_measured_with_gradients_is_forgotten_with_its_graph(backward):
    ours = contacts()
    q, qd = (x.requires_grad_() for x in random_state(ours.proximity, 4))
    loss = ours(PLANE, q + 0.1, qd + 0.1).sum()
    if backward:
        loss.backward()
    gone = weakref.ref(ours)
    del ours, loss
    gc.collect()
    assert gone() is None


def test_features_go_into_part_of_a_wider_tensor():
    ours = contacts()
    q, qd = random_state(ours.proximity, 4, torch.float32)
    wide = torch.full((4, ours.width + 7), 5.0)
    ours(PLANE, q, qd, wide[:, 3 : 3 + ours.width])
    assert torch.equal(wide[:, 3:-4], ours(PLANE, q, qd))
    assert bool((wide[:, :3] == 5).all() and (wide[:, -4:] == 5).all())


def test_the_recorded_and_the_plain_way_give_the_same():
    ours = contacts()
    q, qd = random_state(ours.proximity, 4, torch.float32)
    assert torch.equal(ours(PLANE, q, qd), ours(PLANE, q.clone().requires_grad_(), qd).detach())


def test_without_ground_or_worlds_there_is_nothing():
    ours = contacts()
    q, qd = random_state(ours.proximity, 2)
    assert not ours(NOTHING, q, qd).any()
    none = q[:0].requires_grad_()
    features = ours(PLANE, none, qd[:0])
    assert features.shape == (0, ours.width)
    features.sum().backward()


def test_a_state_of_another_robot_is_refused():
    ours = contacts()
    q, qd = random_state(ours.proximity, 2)
    with pytest.raises(InputError, match="valid for these contact points"):
        ours(PLANE, q[:, 1:], qd)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_agrees():
    ours = contacts()
    ground, results = PLANE.at_pose(random_pose(5)), []
    for device in ("cpu", "cuda"):
        q, qd = (x.to(device).requires_grad_() for x in random_state(ours.proximity, 5))
        features = ours(ground, q, qd)
        results.append([features, *torch.autograd.grad(features.square().sum(), (q, qd))])
    for here, there in zip(*results, strict=True):
        torch.testing.assert_close(here, there.cpu())
