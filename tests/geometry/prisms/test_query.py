# SPDX-License-Identifier: Apache-2.0
"""Contacts of shapes with heightfields: as deep as distances say, spread, and beside shapes and walls."""

import numpy as np
import pytest
import torch

from neurodyn.core.description.contacts import ContactPoint, ContactPointLayout, RoundedBox
from neurodyn.core.description.scene import Heightfield, Scene, Terrain
from neurodyn.core.errors import InputError
from neurodyn.geometry.ground import Ground
from neurodyn.geometry.prisms.query import CONTACT_NUMBERS, PrismContacts, contact_slots
from neurodyn.geometry.proximity import ProximityQuery
from neurodyn.geometry.rotation import exponential, rotate
from tests.multibody.machines import TURNED, joint

F64 = torch.float64
HILLS = Scene(shapes=(Terrain(style="rough", seed=3, size=(3.0, 3.0), cell=0.1, amplitude=0.05, feature=0.5),))
FREE = (joint("base", "free", child=TURNED),)
PLACE = (0.05, -0.1, 0.02, 0.5, -0.5, 0.5, 0.5)


def ball(radius=0.15):
    return RoundedBox("ball", 0, PLACE, (0.0, 0.0, 0.0), radius)


def capsule(radius=0.1, half=0.3):
    return RoundedBox("capsule", 0, PLACE, (0.0, 0.0, half), radius)


def box(*half):
    return RoundedBox("box", 0, PLACE, half, 0.0)


def states(worlds, low=0.0, high=0.25, seed=0):
    generator = torch.Generator().manual_seed(seed)
    place = torch.rand(worlds, 3, generator=generator, dtype=F64) * torch.tensor([1.6, 1.6, high - low], dtype=F64)
    turn = exponential(2.0 * torch.randn(worlds, 3, generator=generator, dtype=F64))
    start = torch.tensor([-0.8, -0.8, low], dtype=F64)
    return torch.cat([place + start, turn], 1), torch.zeros(worlds, 6, dtype=F64)


def found(ground, shapes, q, qd):
    """Return kinds, cores and ground points of contacts, in the world."""
    contacts = PrismContacts(FREE, shapes, (0.0, 0.0, 0.0))(ground, q, qd)
    core = rotate(q[:, None, 3:].expand(*contacts.shape[:2], 4), contacts[..., 2:5]) + q[:, None, :3]
    return contacts[..., 0], core, contacts[..., 11:14]


def axis_points(shape, count):
    """Points along the axis of a shape, of its body."""
    along = torch.linspace(-1.0, 1.0, count, dtype=F64)[:, None] * torch.tensor([0.0, 0.0, shape.half[2]], dtype=F64)
    turn = torch.tensor(shape.place[3:], dtype=F64).expand(count, 4)
    places = rotate(turn, along) + torch.tensor(shape.place[:3], dtype=F64)
    return tuple(ContactPoint(str(i), 0, tuple(place), 0.0) for i, place in enumerate(places.tolist()))


@pytest.mark.parametrize("shape", [ball(), capsule()], ids=["ball", "capsule"])
def test_the_first_contact_is_where_the_axis_is_nearest_to_the_ground(shape):
    q, qd = states(400, high=0.5)
    pose = torch.tensor([[0.1, -0.2, 0.05, *exponential(torch.tensor([0.2, -0.1, 0.7], dtype=F64))]], dtype=F64)
    ground = Ground(HILLS, pose)
    points = axis_points(shape, 1 if shape.half[2] == 0 else 2001)
    layout = ContactPointLayout(joints=FREE, contact_points=points)
    distance = ProximityQuery(layout)(ground, q, qd).distance.min(1).values
    kinds, core, below = found(ground, (shape,), q, qd)
    gap = (core[:, 0] - below[:, 0]).norm(dim=1)
    touching, above = distance < shape.radius, distance > 0.5 * shape.radius  # no wall of a prism is nearer
    assert torch.equal(kinds[above, 0] > 0, touching[above])
    compared = touching & above
    assert compared.sum() > 20
    torch.testing.assert_close(gap[compared], distance[compared], atol=2e-5, rtol=0)


def test_contacts_lie_apart_and_link_by_link():
    shapes = (capsule(), ball())
    assert contact_slots(shapes) == {0: 8}
    assert contact_slots((*shapes, capsule())) == {0: 8}
    assert contact_slots((ball(),)) == {0: 4}
    q, qd = states(100)
    kinds, core, below = found(Ground(HILLS), (capsule(),), q, qd)
    several = (kinds > 0).sum(1) > 1
    assert several.sum() > 20
    moved = (below[several, 0] - below[several, 1]).norm(dim=1) + (core[several, 0] - core[several, 1]).norm(dim=1)
    assert ((moved > 1e-4) | (moved < 1e-9)).all()  # the same edge of two prisms counts twice
    assert (moved > 1e-4).double().mean() > 0.8
    assert (kinds[:, 1:] <= kinds[:, :1] * 10).all()  # none without the first


def test_a_box_touches_where_its_lowest_corner_is_in_the_ground():
    shape = box(0.2, 0.1, 0.15)
    q, qd = states(200, low=0.05, high=0.4)
    kinds, core, _ = found(Ground(HILLS), (shape,), q, qd)
    corners = [(a * 0.2, b * 0.1, c * 0.15) for a in (-1, 1) for b in (-1, 1) for c in (-1, 1)]
    turn, place = (torch.tensor(x, dtype=F64) for x in (shape.place[3:], shape.place[:3]))
    points = rotate(turn.expand(8, 4), torch.tensor(corners, dtype=F64)) + place
    layout = ContactPointLayout(
        joints=FREE, contact_points=tuple(ContactPoint(str(i), 0, tuple(p), 0.0) for i, p in enumerate(points.tolist()))
    )
    readings = ProximityQuery(layout)(Ground(HILLS), q, qd)
    deep = readings.distance.min(1).values < -1e-3
    assert 30 < deep.sum() < 190
    assert (kinds[deep, 0] > 0).double().mean() > 0.95
    away = readings.distance.min(1).values > 0.1
    assert away.sum() > 5
    assert (kinds[away] == 0).all()
    near = (core[deep, 0, None] - readings.position[deep]).norm(dim=2).min(1).values
    assert (near[kinds[deep, 0] > 0] < 1e-6).all()


def test_a_deep_ball_is_pushed_out_of_its_prism(tmp_path):
    np.save(tmp_path / "flat.npy", np.full((9, 9), 0.3))
    scene = Scene(shapes=(Heightfield(file="flat.npy", cell=0.25),), folder=str(tmp_path))
    shape = RoundedBox("ball", 0, (0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0), (0.0, 0.0, 0.0), 0.1)
    q = torch.tensor([[0.13, 0.07, 0.29, 0, 0, 0, 1.0], [5.0, 0, 0.29, 0, 0, 0, 1.0]], dtype=F64)
    contacts = PrismContacts((joint("base", "free"),), (shape,), (0.0, 0.0, 0.0))(Ground(scene), q, q[:, :6] * 0)
    assert contacts.shape == (2, 4, CONTACT_NUMBERS)
    assert contacts[0, 0, 0] > 0
    torch.testing.assert_close(contacts[0, 0, 2:5] + q[0, :3], q[0, :3])
    torch.testing.assert_close(contacts[0, 0, 13].item(), 0.3)
    assert (contacts[1] == 0).all()  # beside the heightfield


def test_a_ground_for_other_worlds_is_refused():
    q, qd = states(3)
    ground = Ground(HILLS, torch.zeros(2, 7, dtype=F64))
    with pytest.raises(InputError, match="for 3 worlds"):
        PrismContacts(FREE, (ball(),), (0.0, 0.0, 0.0))(ground, q, qd)
