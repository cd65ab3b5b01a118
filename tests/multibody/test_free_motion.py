# SPDX-License-Identifier: Apache-2.0
"""One frame of motion that nothing touches, compiled."""

import msgspec
import numpy as np
import pytest
import torch

from neurodyn.core.description.mechanism import Mechanism
from neurodyn.multibody.motion import FreeMotion
from tests.multibody import reference
from tests.multibody.reference import random_mechanism, random_motion

DT = 0.02


def mechanism_of(kinds, parents, seed=0):
    rng = np.random.default_rng(seed)
    mechanism = random_mechanism(rng, kinds, parents)
    links = [msgspec.structs.replace(link, damping=0.1 * (i + 1)) for i, link in enumerate(mechanism.links)]
    return Mechanism(links=tuple(links), gravity=(0.0, 0.0, -9.81))


@pytest.fixture(scope="module")
def arm():
    """A floating base with a hinge, which is driven; small, because its adjoint is compiled."""
    return FreeMotion(mechanism_of(("free", "revolute"), (-1, 0)), (6,), DT, 2)


def given(mechanism, worlds=3, actuators=1, seed=1):
    rng = np.random.default_rng(seed)
    states = [random_motion(rng, mechanism)[:2] for _ in range(worlds)]
    q, qd = (torch.tensor(np.array(x)) for x in zip(*states, strict=True))
    gravity = 5 * torch.tensor(rng.normal(size=(worlds, 3)))
    return q, qd, 4 * torch.tensor(rng.normal(size=(worlds, actuators))), gravity


def test_a_frame_is_so_many_semi_implicit_steps(arm):
    q, qd, torque, gravity = given(arm.mechanism)
    found_q, found_qd = arm(q, qd, torque, gravity)
    for world in range(3):
        turned = msgspec.structs.replace(arm.mechanism, gravity=tuple(gravity[world].tolist()))
        start, rate = q[world].numpy(), qd[world].numpy()
        # Damping acts on joints, not on the floating base.
        force = np.zeros(7)
        for _ in range(2):
            force[6] = torque[world, 0].item() - 0.2 * rate[6]
            rate = rate + DT / 2 * reference.accelerations(turned, start, rate, force)
            start = reference.moved(turned, start, rate, DT / 2)
        np.testing.assert_allclose(found_qd[world], rate, atol=1e-7)
        np.testing.assert_allclose(found_q[world], start, atol=1e-8)


def test_gradients_by_state_torque_and_gravity(arm):
    tensors = [x.requires_grad_() for x in given(arm.mechanism, worlds=1)]
    assert torch.autograd.gradcheck(lambda *x: arm(*x), tensors, atol=1e-7)


def test_a_robot_falls_along_gravity_wherever_that_points(arm):
    q, qd, _, gravity = given(arm.mechanism)
    turn = torch.tensor(reference.matrix(arm.mechanism.links[0].joint.parent_frame[3:]))
    _, after = arm(q, torch.zeros_like(qd), torch.zeros(3, 1, dtype=q.dtype), gravity)
    torch.testing.assert_close(after[:, :3], DT * gravity @ turn, atol=1e-12, rtol=1e-12)
    torch.testing.assert_close(after[:, 3:], torch.zeros(3, 4, dtype=q.dtype), atol=1e-12, rtol=0.0)


def test_any_batch_shape_and_a_gravity_for_all(arm):
    q, qd, torque, gravity = given(arm.mechanism, worlds=6)
    flat_q, flat_qd = arm(q, qd, torque, gravity[0])
    shaped = (x.view(2, 3, -1) for x in (q, qd, torque))
    found_q, found_qd = arm(*shaped, gravity[0])
    assert torch.equal(found_q.flatten(0, 1), flat_q)
    assert torch.equal(found_qd.flatten(0, 1), flat_qd)
    one_q, one_qd = arm(q[0], qd[0], torque[0], gravity[0])
    assert torch.equal(one_q, flat_q[0])
    assert torch.equal(one_qd, flat_qd[0])
    none = arm(q[:0], qd[:0], torque[:0], gravity[0])
    assert [x.shape for x in none] == [(0, 8), (0, 7)]


def test_a_body_without_drives():
    body = FreeMotion(mechanism_of(("free",), (-1,)), (), DT, 1)
    q, qd, torque, gravity = given(body.mechanism, actuators=0)
    assert torque.shape == (3, 0)
    found_q, found_qd = body(q, qd, torque, gravity)
    for world in range(3):
        turned = msgspec.structs.replace(body.mechanism, gravity=tuple(gravity[world].tolist()))
        change = DT * reference.accelerations(turned, q[world].numpy(), qd[world].numpy(), np.zeros(6))
        np.testing.assert_allclose(found_qd[world], qd[world].numpy() + change, atol=1e-8)
    assert torch.allclose(found_q[:, 3:].norm(dim=1), torch.ones(3, dtype=q.dtype), atol=1e-14)


def test_single_precision_is_close(arm):
    tensors = given(arm.mechanism)
    single = arm(*(x.float() for x in tensors))
    for a, b in zip(single, arm(*tensors), strict=True):
        assert a.dtype == torch.float32
        torch.testing.assert_close(a.double(), b, atol=2e-5, rtol=2e-5)
