# SPDX-License-Identifier: Apache-2.0
"""Contacts of shapes with a heightfield: derivatives beside central differences, in vectors as alone, and when used."""

import msgspec
import pytest
import torch

from neurodyn.core.description.blueprint import Augmentation, Blueprint
from neurodyn.core.description.contacts import ConstraintParameters, RoundedBox, SoftConstraints
from neurodyn.core.description.scene import Plane, Scene, Terrain
from neurodyn.geometry.ground import Ground
from neurodyn.geometry.rotation import exponential
from neurodyn.multibody.contacts.held_ground import HeldGround, ground_mode, held_numbers
from neurodyn.multibody.engine import Engine, EngineConfig, takes_prisms
from neurodyn.multibody.motion import ContactMotion
from tests.multibody import machines
from tests.multibody.differences import require_along

F64 = torch.float64
SHAPES = (
    RoundedBox("foot", 1, (0.05, 0.0, -0.25, 0.0, 0.0, 0.0, 1.0), (0.0, 0.0, 0.0), 0.05),
    RoundedBox("shin", 1, (0.02, 0.0, -0.1, 0.1, 0.2, 0.0, 0.9746794345), (0.0, 0.0, 0.12), 0.03),
    RoundedBox("belly", 0, (0.0, 0.02, -0.1, 0.0, 0.0, 0.1, 0.9949874371), (0.2, 0.1, 0.03), 0.0),
)
MECHANISM = msgspec.structs.replace(
    machines.hopper(), shapes=SHAPES,
    constraints=SoftConstraints(friction=0.7, contact=ConstraintParameters(solref=(0.03, 0.8))),
)  # fmt: skip
SPEC = machines.spec(MECHANISM, ("knee",))
HILLS = Terrain(style="rough", seed=2, size=(4.0, 4.0), cell=0.08, amplitude=0.06, feature=0.5)
GROUND = Ground(Scene(shapes=(HILLS,)), torch.tensor([[0.1, 0.0, -0.02, 0.0, 0.05, 0.0, 0.9987492178]], dtype=F64))
GRAVITY = torch.tensor([0.0, 0.0, -9.81], dtype=F64)
FREE = ("contact.friction", "contact.solref.timeconst", "contact.solimp.width", "gravity.z")


def states(worlds, seed=0):
    generator = torch.Generator().manual_seed(seed)

    def random(*shape):
        return torch.randn(*shape, generator=generator, dtype=F64)

    height = 0.08 + 0.08 * torch.rand(worlds, 1, generator=generator, dtype=F64)
    q = torch.cat(
        [0.5 * random(worlds, 2), height, exponential(0.4 * random(worlds, 3)), -1.2 + 0.3 * random(worlds, 1)], 1
    )
    return q, 0.5 * random(worlds, 7), 0.2 * random(worlds, 1)


@pytest.fixture(scope="module")
def motion():
    return ContactMotion(MECHANISM, SPEC, 2)


@pytest.fixture(scope="module")
def engine():
    return Engine(MECHANISM, SPEC, EngineConfig(substeps=2, contact="soft", ground="prisms", free=FREE))


def slopes(function, x, direction, step):
    return (function(x + step * direction) - function(x - step * direction)) / (2.0 * step)


def test_derivatives_of_a_frame_are_those_of_central_differences(motion):
    """Along random directions; no switch is near where two step sizes agree, and the middle is between both sides."""
    q, qd, torque = states(96)
    generator = torch.Generator().manual_seed(1)
    weights, turns = (torch.randn(96, n, generator=generator, dtype=F64) for n in (15, 16))
    given = torch.cat([q, qd, torque], 1)

    def loss(x):
        after = torch.cat(motion(x[:, :8], x[:, 8:15], x[:, 15:], GRAVITY, GROUND), 1)
        return (weights * after).sum(1)

    given.requires_grad_()
    (gradient,) = torch.autograd.grad(loss(given).sum(), given)
    with torch.no_grad():
        found = (gradient * turns).sum(1)
        coarse, fine = (slopes(loss, given, turns, step) for step in (2e-6, 1e-6))
        jump = (loss(given + 1e-6 * turns) + loss(given - 1e-6 * turns) - 2.0 * loss(given)).abs()
        free = (motion(q, qd, torque, GRAVITY)[1] - motion(q, qd, torque, GRAVITY, GROUND)[1]).norm(dim=1)
    smooth = ((coarse - fine).abs() < 1e-6 * (1.0 + fine.abs())) & (jump < 1e-7)
    assert (smooth & (free > 0.01)).sum() > 25
    torch.testing.assert_close(found[smooth], fine[smooth], rtol=1e-5, atol=1e-5)


def test_derivatives_by_parameters(engine):
    q, qd, torque = states(48)
    held = HeldGround(MECHANISM)(GROUND, q, qd, "prisms")[:, None]
    state, nominal = torch.cat([q, qd], 1), torch.tensor(engine.nominal, dtype=F64)

    def loss(parameters):
        path = engine.program.rollout(state, frames=1, control=torque[:, None], held=held, parameters=parameters)
        return path[:, 1, 8:].square().sum(1)

    ways = torch.diag(nominal.abs())[:, None].expand(-1, 48, -1)
    require_along(loss, nominal.expand(48, -1), *ways, least=31, rtol=1e-5, atol=1e-5)


def test_vectors_of_worlds_compute_what_each_does_alone(engine):
    q, qd, torque = states(11)
    held = HeldGround(MECHANISM)(GROUND, q, qd, "prisms")
    assert held.shape == (11, held_numbers(MECHANISM, "prisms"))
    nominal = torch.tensor(engine.nominal, dtype=F64)

    def frame(rows):
        state = torch.cat([q, qd], 1)[rows].requires_grad_()
        path = engine.program.rollout(
            state, frames=1, control=torque[rows, None], held=held[rows, None], parameters=nominal
        )
        return path[:, 1].detach(), *torch.autograd.grad(path[:, 1].square().sum(), state)

    alone = [torch.cat(parts) for parts in zip(*(frame(slice(i, i + 1)) for i in range(11)), strict=True)]
    for one, other in zip(frame(slice(None)), alone, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-11, atol=1e-11)


def test_contacts_of_shapes_are_those_of_soft_constraints_alone():
    assert ground_mode(GROUND) == "contact_points"
    assert ground_mode(GROUND, prisms=True) == "prisms"
    assert ground_mode(Ground(Scene(shapes=(HILLS, Plane()))), prisms=True) == "contact_points"
    soft = EngineConfig(contact="soft")
    assert takes_prisms(MECHANISM, soft)
    assert not takes_prisms(machines.hopper(), soft)
    assert not takes_prisms(MECHANISM, EngineConfig(contact="force"))
    assert not takes_prisms(MECHANISM, EngineConfig())
    assert not takes_prisms(MECHANISM, EngineConfig(contact="soft", free=("points.size",)))
    for quantity, taken in (("contact.foot.normal", False), ("contact.friction", True), ("passive.knee", True)):
        network = Augmentation(quantities=(quantity,), inputs=("qd.knee",), hidden=())
        config = EngineConfig(contact="soft", blueprint=Blueprint(augmentations=(network,)))
        assert takes_prisms(MECHANISM, config) is taken


def test_a_shape_alone_on_its_link_may_have_a_friction_of_its_own():
    q, qd, torque = states(8, seed=4)
    held = HeldGround(MECHANISM)(GROUND, q, qd, "prisms")

    def rubbing(friction, **frictions):
        constraints = msgspec.structs.replace(MECHANISM.constraints, friction=friction, frictions=frictions)
        return msgspec.structs.replace(MECHANISM, constraints=constraints)

    def frame(friction, **frictions):
        engine = Engine(rubbing(friction, **frictions), SPEC, EngineConfig(substeps=2, contact="soft", ground="prisms"))
        state = torch.cat([q, qd], 1)
        return engine.program.rollout(state, frames=1, control=torque[:, None], held=held[:, None])[:, 1]

    slippery, rough, mixed = frame(0.1), frame(0.9), frame(0.9, belly=0.1)
    torch.testing.assert_close(frame(0.1, belly=0.1), slippery)
    apart = torch.stack([(mixed - other).abs().amax(1) for other in (slippery, rough)])
    assert (apart > 1e-3).all(0).any()
    assert takes_prisms(rubbing(0.9, belly=0.1), EngineConfig(contact="soft"))
    # Of the contacts of a link nobody knows which are those of the foot, and which those of the shin.
    assert not takes_prisms(rubbing(0.9, foot=0.1), EngineConfig(contact="soft"))
