# SPDX-License-Identifier: Apache-2.0
"""One frame of motion with contacts, compiled: the engine's own, on every ground and in every batch."""

import pytest
import torch

from neurodyn.core.description.scene import Box, Plane, Scene
from neurodyn.geometry import rotation
from neurodyn.geometry.ground import Ground
from neurodyn.multibody.engine import Engine, EngineConfig, nominal
from neurodyn.multibody.motion import ContactMotion
from tests.multibody import machines

F64 = torch.float64
GRAVITY = torch.tensor([0.0, 0.0, -9.81], dtype=F64)
MECHANISM = machines.hopper()
SPEC = machines.spec(MECHANISM, ("knee",))
SUBSTEPS = 2
FLAT = Ground(Scene(shapes=(Plane(),)))


@pytest.fixture(scope="module")
def motion() -> ContactMotion:
    return ContactMotion(MECHANISM, SPEC, SUBSTEPS, "force")


def standing(worlds: int = 4):
    """Robots whose feet are in the ground."""
    generator = torch.Generator().manual_seed(0)

    def random(*shape):
        return torch.randn(*shape, generator=generator, dtype=F64)

    q = torch.cat([0.1 * random(worlds, 2), torch.full((worlds, 1), 0.12, dtype=F64),
                   rotation.exponential(0.2 * random(worlds, 3)), -1.2 + 0.1 * random(worlds, 1)], 1)  # fmt: skip
    return q, 0.5 * random(worlds, 7), 0.2 * random(worlds, 1)


def test_a_frame_is_that_of_the_engine_on_a_plane(motion):
    q, qd, torque = standing()
    after_q, after_qd = motion(q, qd, torque, GRAVITY, FLAT)
    config = EngineConfig(substeps=SUBSTEPS, contact="force", free=("gravity.x", "gravity.y", "gravity.z"))
    plane = torch.tensor([0.0, 0.0, 0.0, 0.0, 0.0, 1.0], dtype=F64).expand(4, 1, 6)
    path = Engine(MECHANISM, SPEC, config).program.rollout(
        torch.cat([q, qd], 1), frames=1, substeps=SUBSTEPS, control=torque[:, None], held=plane, parameters=GRAVITY
    )
    assert torch.equal(torch.cat([after_q, after_qd], 1), path[:, 1])
    fallen = motion(q, qd, torque, GRAVITY)[1]
    assert (after_qd - fallen)[:, 2].max() > 0.1  # the ground pushes


def test_a_ground_of_other_shapes_acts_at_each_contact_point(motion):
    q, qd, torque = standing()
    box = Ground(Scene(shapes=(Box(position=(0.0, 0.0, -1.0), half=(5.0, 5.0, 1.0)),)))
    for found, expected in zip(motion(q, qd, torque, GRAVITY, box), motion(q, qd, torque, GRAVITY, FLAT), strict=True):
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-9)


def test_any_batch_shape_and_a_pose_for_each_world(motion):
    q, qd, torque = standing()
    pose = torch.tensor([[0.0, 0.0, 0.01 * i, 0.0, 0.0, 0.0, 1.0] for i in range(4)], dtype=F64)
    whole = motion(q.view(2, 2, -1), qd.view(2, 2, -1), torque.view(2, 2, -1), GRAVITY, FLAT.at_pose(pose))
    for world in range(4):
        alone = motion(q[world : world + 1], qd[world : world + 1], torque[world : world + 1], GRAVITY,
                       FLAT.at_pose(pose[world : world + 1]))  # fmt: skip
        for a, b in zip(whole, alone, strict=True):
            torch.testing.assert_close(a.flatten(0, 1)[world], b[0], rtol=0, atol=1e-12)


def test_values_take_the_place_of_those_of_the_mechanism(motion):
    q, qd, torque = standing()
    same = ContactMotion(
        MECHANISM, SPEC, SUBSTEPS, "force", {"contact.friction": nominal(MECHANISM, "force")["contact.friction"]}
    )
    slippery = ContactMotion(MECHANISM, SPEC, SUBSTEPS, "force", {"contact.friction": 0.0})
    expected = motion(q, qd, torque, GRAVITY, FLAT)
    for found, wanted in zip(same(q, qd, torque, GRAVITY, FLAT), expected, strict=True):
        torch.testing.assert_close(found, wanted, rtol=0, atol=1e-12)
    assert (slippery(q, qd, torque, GRAVITY, FLAT)[1] - expected[1]).abs().max() > 1e-3


def test_gradients_by_state_torque_and_gravity(motion):
    tensors = [x[:1].clone().requires_grad_() for x in standing()]
    gravity = GRAVITY.clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda *x: motion(*x, FLAT), [*tensors, gravity], eps=1e-7, atol=1e-4, rtol=1e-4)
