# SPDX-License-Identifier: Apache-2.0
"""Free bodies beside a robot in the inputs and predictions of a network."""

import pytest
import torch

from neurodyn.core.description.contacts import ChainJoint, ContactPoint, ContactPointLayout
from neurodyn.core.description.scene import IDENTITY, Plane, Scene
from neurodyn.core.description.shape_contacts import ShapeContact, TouchingShape
from neurodyn.core.description.spec import JointSpec, StateSpec
from neurodyn.dynamics.batch import Environment
from neurodyn.dynamics.neural.encoding import fit_encoding
from neurodyn.geometry import rotation
from neurodyn.geometry.contact_features import PlaneContacts
from neurodyn.geometry.ground import Ground
from neurodyn.geometry.object_contacts import ObjectContacts, ObjectPoint

BASE_COM, BOX_COM = (0.03, -0.02, 0.05), (0.01, 0.04, -0.02)
TURNED = (0.02, -0.01, 0.03, 0.0, 0.6, 0.0, 0.8)
BOX = TouchingShape(name="box", link="box", kind="box", size=(0.1, 0.2, 0.15), place=TURNED)
TIP = TouchingShape(name="tip", link="arm", kind="sphere", size=(0.05, 0.0, 0.0))


def joint(name, kind, parent=-1):
    place = (0.2, 0.0, 0.1, 0.0, 0.0, 0.0, 1.0) if parent >= 0 else IDENTITY
    axis = (0.0, 1.0, 0.0) if kind == "revolute" else (0.0, 0.0, 0.0)
    return ChainJoint(name=name, kind=kind, parent=parent, parent_frame=place, child_frame=IDENTITY, axis=axis)


def scene(floating):
    """Return spec and contact points of an arm, on a floating base or not, beside a box."""
    kinds = {**({"base": "free"} if floating else {}), "arm": "revolute", "box": "free"}
    spec = StateSpec(
        robot="arm", joints=tuple(JointSpec(name=name, kind=kind) for name, kind in kinds.items()), controls=("arm",),
        dt=0.01,
    )  # fmt: skip
    joints = tuple(joint(name, kind, 0 if floating and name == "arm" else -1) for name, kind in kinds.items())
    box = list(kinds).index("box")
    points = (
        ContactPoint(name="tip/0", joint=box - 1, point=(0.3, 0.0, 0.02), radius=0.05),
        ContactPoint(name="box/0", joint=box, point=(0.1, 0.2, -0.15), radius=0.0),
    )
    layout = ContactPointLayout(
        joints=joints, contact_points=points, base_com=BASE_COM if floating else (0.0, 0.0, 0.0), coms={"box": BOX_COM}
    )
    return spec, layout


def states(spec, worlds=4):
    """Return states in which the tip is near the box, both near the ground, all turned."""
    rng = torch.Generator().manual_seed(0)
    q = 0.3 * torch.randn(worlds, spec.nq, generator=rng, dtype=torch.float64)
    for place, one in zip(spec.places, spec.joints, strict=True):
        if one.kind == "free":
            q[:, place.quaternion] = rotation.normalise(torch.randn(worlds, 4, generator=rng, dtype=torch.float64))
            q[:, place.q.start + 2] = 0.1
    box = spec.objects["box"].q.start
    base = q[:, :3] if spec.floating else 0.0
    q[:, box : box + 3] = base + torch.tensor([0.3, 0.05, 0.0], dtype=torch.float64)
    q[:, box + 2] = 0.15
    return q, torch.randn(worlds, spec.nv, generator=rng, dtype=torch.float64)


def encoding(spec, layout, contacts=(ShapeContact(TIP, BOX, "rough"),)):
    rows = torch.randn(50, spec.nv, generator=torch.Generator().manual_seed(1))
    made = fit_encoding(
        spec, rows, 0.01 * rows, 0.1 * rows, layout=layout, margin=0.5, touching=contacts, base_com=layout.base_com
    )
    return made.double()


def encoded(encoder, q, qd):
    ground = Environment(ground=Ground(Scene(shapes=(Plane(),))))
    torque = torch.ones(len(q), 1, dtype=q.dtype)
    return encoder.encode(encoder.predict_base(q, qd, torque, ground), torque, ground)


@pytest.fixture(params=[True, False], ids=["floating", "bolted"])
def arm(request):
    spec, layout = scene(request.param)
    return spec, encoding(spec, layout)


def test_the_outputs_for_a_next_state_lead_there(arm):
    spec, encoder = arm
    q, qd = states(spec)
    after, rate = states(spec, 8)
    after, rate = after[4:], rate[4:]
    start = encoder.predict_base(q, qd, torch.zeros(4, 1, dtype=q.dtype))
    found = encoder.decode(start, encoder.target(start, after, rate))
    for place, one in zip(spec.places, spec.joints, strict=True):
        if one.kind == "free":
            sign = (found.q[:, place.quaternion] * after[:, place.quaternion]).sum(-1, keepdim=True).sign()
            found.q[:, place.quaternion] *= sign
    torch.testing.assert_close(found.q, after, rtol=0, atol=1e-9)
    torch.testing.assert_close(found.qd, rate, rtol=0, atol=1e-9)


def test_exported_files_see_objects_as_the_kernels_do(arm):
    spec, encoder = arm
    _, layout = scene(spec.floating)
    q, qd = states(spec)
    sight = [(point.radius, 0.5, spec.dt) for point in layout.contact_points]
    plain = PlaneContacts(layout, sight, [(0.0, 0.0, 0.0, 0.0, 0.0, 1.0)]).double()

    def contacts(q, qd):
        return torch.cat([plain(q, qd), encoder.object_contact.of_points(q, qd, *plain.points(q, qd))], -1)

    ground = Environment(ground=Ground(Scene(shapes=(Plane(),))))
    torque = torch.ones(len(q), 1, dtype=q.dtype)
    start = encoder.predict_base(q, qd, torque, ground)
    found, wanted = encoder.encode(start, torque, ground, contacts), encoded(encoder, q, qd)
    features = 3 * 18  # of two points and the ground, and of one point and the box
    assert (wanted[:, -features:].unflatten(1, (3, 18)).abs().amax((0, 2)) > 0.1).all()
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-6)  # float32 constants


def test_free_flight_needs_no_residual_of_an_objects_place(arm):
    spec, encoder = arm
    q, qd = states(spec)
    place = spec.objects["box"]
    qd[:, place.angular] = torch.tensor([0.0, 0.0, 3.0], dtype=q.dtype)
    com = torch.tensor(BOX_COM, dtype=q.dtype).expand(4, 3)
    turn = rotation.multiply(rotation.exponential(spec.dt * qd[:, place.angular]), q[:, place.quaternion])
    after = q.clone()
    after[:, place.quaternion] = turn
    start = place.q.start
    after[:, start : start + 3] += (
        spec.dt * qd[:, place.linear] + rotation.rotate(q[:, place.quaternion], com) - rotation.rotate(turn, com)
    )
    output = encoder.target(encoder.predict_base(q, qd, torch.zeros(4, 1, dtype=q.dtype)), after, qd)
    torch.testing.assert_close(output[:, spec.nv :][:, place.qd], torch.zeros(4, 6, dtype=q.dtype), rtol=0, atol=1e-9)


def test_inputs_and_predictions_move_with_robot_and_object():
    spec, layout = scene(True)
    encoder = encoding(spec, layout)
    q, qd = states(spec)
    turn = rotation.exponential(torch.tensor([[0.0, 0.0, 1.1]], dtype=q.dtype)).expand(4, 4)
    shift = torch.tensor([2.0, -1.0, 0.0], dtype=q.dtype)

    def moved(q, qd):
        q, qd = q.clone(), qd.clone()
        for place in (spec.places[0], spec.objects["box"]):
            start = place.q.start
            q[:, start : start + 3] = rotation.rotate(turn, q[:, start : start + 3]) + shift
            q[:, place.quaternion] = rotation.multiply(turn, q[:, place.quaternion])
            qd[:, place.linear] = rotation.rotate(turn, qd[:, place.linear])
            qd[:, place.angular] = rotation.rotate(turn, qd[:, place.angular])
        return q, qd

    inputs = encoded(encoder, q, qd)
    assert inputs.shape == (4, encoder.inputs)
    torch.testing.assert_close(encoded(encoder, *moved(q, qd)), inputs, rtol=0, atol=1e-6)  # float32 constants
    output = torch.randn(4, encoder.outputs, dtype=q.dtype, generator=torch.Generator().manual_seed(2))

    def predicted(q, qd):
        return encoder.decode(encoder.predict_base(q, qd, torch.zeros(4, 1, dtype=q.dtype)), output)

    here, there = predicted(q, qd), predicted(*moved(q, qd))
    wanted = moved(here.q, here.qd)
    torch.testing.assert_close(there.q, wanted[0], rtol=0, atol=1e-9)
    torch.testing.assert_close(there.qd, wanted[1], rtol=0, atol=1e-9)


def test_inputs_have_the_gradients_of_finite_differences(arm):
    spec, encoder = arm
    q, qd = states(spec, 1)
    held = encoder.object_contact

    def seen(q, qd):
        poses = encoder.coordinates.object_poses(q, encoder.coordinates.base_rotation(q))
        return torch.cat([held(q, qd), *poses], -1)

    assert held(q, qd).abs().sum() > 1.0
    assert torch.autograd.gradcheck(seen, (q.requires_grad_(), qd.requires_grad_()), eps=1e-7, atol=1e-5)


def test_distance_and_normal_of_a_turned_box_by_hand():
    """A point .12 m beyond the face of a box that is turned and moving, with a radius of .05 m: a gap of .07 m."""
    spec, layout = scene(False)
    measured = ObjectContacts(layout, [BOX], [ObjectPoint(0, 0)], (0.5, 0.5), 0.01).double()
    q, qd = torch.zeros(1, spec.nq, dtype=torch.float64), torch.zeros(1, spec.nv, dtype=torch.float64)
    place, at = spec.objects["box"], rotation.normalise(torch.tensor([[0.3, -0.2, 0.5, 0.7]], dtype=q.dtype))
    shape = torch.tensor([TURNED], dtype=q.dtype)
    out = torch.tensor([[0.22, 0.1, -0.05]], dtype=q.dtype)  # in the frame of the shape, whose half edge is .1
    offset = rotation.rotate(at, shape[:, :3] + rotation.rotate(shape[:, 3:], out))
    tip = torch.tensor([[0.3, 0.0, 0.02]], dtype=q.dtype)  # the arm at angle 0
    q[:, 1:4], q[:, place.quaternion] = tip - offset, at
    qd[:, place.linear] = torch.tensor([[0.0, 0.0, 2.0]], dtype=q.dtype)
    features = measured(q, qd)[0]
    normal = rotation.rotate(at, rotation.rotate(shape[:, 3:], torch.tensor([[1.0, 0.0, 0.0]], dtype=q.dtype)))[0]
    near = 1 - 0.07 / 0.5
    torch.testing.assert_close(features[0].item(), near, rtol=1e-5, atol=0)
    torch.testing.assert_close(features[9:12], near * normal, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(features[12:15], near * torch.tensor([0.0, 0.0, -2.0], dtype=q.dtype), rtol=1e-5,
                               atol=1e-6)  # fmt: skip
    inside = q.clone()
    inside[:, 1:4] += rotation.rotate(at, rotation.rotate(shape[:, 3:], 0.17 * torch.eye(3, dtype=q.dtype)[:1]))
    assert measured(inside, qd)[0, 1] == pytest.approx((0.05 + 0.05) * 10 / 0.5, rel=1e-5)  # depth and radius
