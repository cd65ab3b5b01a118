# SPDX-License-Identifier: Apache-2.0
"""Two bodies that touch: momentum, frames, derivatives, and what is refused."""

import math
from functools import cache

import msgspec
import pytest
import torch

from neurodyn.core import Augmentation, Blueprint, BodyContact, BodyShape, InputError, Mechanism
from neurodyn.core.description.parameter import select_parameters
from neurodyn.dynamics import State
from neurodyn.multibody.engine import nominal
from tests.multibody.planar import F64, HALF, RADIUS, SQUARE, dynamics, pushed, turned, two_bodies

MODELS = ["force", "impulse"]
DISC = {"kind": "sphere", "radius": 0.03}
WEDGE = {"kind": "polygon", "vertices": ((-0.03, -0.04), (0.05, 0.0), (-0.03, 0.04))}
BOX = {"kind": "box", "half": (HALF, HALF, HALF)}


@pytest.fixture(autouse=True)
def without_gradients(request):
    """Roll-outs are compared as numbers, but where derivatives are."""
    with torch.set_grad_enabled("gradients" in request.node.name):
        yield


def start(*rows):
    return torch.tensor(rows, dtype=F64)


def momentum(mechanism, state):
    """Return linear and angular momentum of bodies of three joints each, and their kinetic energy."""
    total, spin, energy = torch.zeros(2, dtype=F64), 0.0, 0.0
    for number in range(len(mechanism.links) // 3):
        link = mechanism.links[3 * number + 2]
        x, y, angle = state.q[0, 3 * number : 3 * number + 3].tolist()
        vx, vy, rate = state.qd[0, 3 * number : 3 * number + 3].tolist()
        cx, cy = turned(link.com[0], link.com[1], angle)
        v = torch.tensor([vx - rate * cy, vy + rate * cx], dtype=F64)
        total = total + link.mass * v
        spin += link.mass * ((x + cx) * v[1] - (y + cy) * v[0]) + link.inertia[2] * rate
        energy += 0.5 * link.mass * float(v @ v) + 0.5 * link.inertia[2] * rate**2
    return torch.cat([total, spin.reshape(1)]), energy


@pytest.mark.parametrize("contact", MODELS)
def test_momentum_is_kept_and_energy_is_not_made_where_two_free_bodies_collide(contact):
    shapes = {"force": (DISC, BOX), "impulse": (WEDGE, WEDGE)}[contact]
    mechanism = two_bodies(contact, *shapes)
    q = start((-0.1, 0.004, 0.3, 0.0, 0.0, -0.2))
    qd = start((0.8, 0.05, 2.0, -0.3, 0.0, 1.0))
    path = dynamics(mechanism, contact, substeps=20).rollout(State(q, qd), torch.zeros(1, 20, 0, dtype=F64))
    before, energy = momentum(mechanism, State(q, qd))
    after, left = momentum(mechanism, State(path.q[:, -1], path.qd[:, -1]))
    assert (path.qd[0, -1] - qd[0]).abs().max() > 0.1, "they did not touch"
    torch.testing.assert_close(after, before, atol=1e-8, rtol=0)  # but for what the slides weigh
    assert left < energy


def test_discs_bounce_by_newtons_law():
    """Head-on without friction: relative velocity turns into -e times itself."""
    mechanism = two_bodies("impulse", DISC, DISC, restitution=0.6, friction=0.0, cfm=0.0)
    qd = start((0.5, 0.0, 0.0, -0.2, 0.0, 0.0))
    path = dynamics(mechanism, "impulse").rollout(
        State(start((-0.04, 0.0, 0.0, 0.04, 0.0, 0.0)), qd), torch.zeros(1, 12, 0, dtype=F64)
    )
    a, b = path.qd[0, -1, 0], path.qd[0, -1, 3]
    assert float(b - a) == pytest.approx(0.6 * 0.7, rel=1e-6)
    assert float(0.5 * a + 1.1 * b) == pytest.approx(0.5 * 0.5 - 1.1 * 0.2, rel=1e-6)


@cache
def block_on_table(contact):
    return dynamics(pushed(contact), contact)


PUSH = start((-HALF - RADIUS + 1e-4, 0.012, 0.0, 0.0, 0.02))


def push(model, q=PUSH, frames=20, velocity=(0.1, 0.03), **values):
    control = torch.tensor(velocity, dtype=F64).expand(len(q), frames, 2)
    if values:
        return model.simulate(State(q, torch.zeros_like(q)), control, values["parameters"], values["weights"])
    return model.rollout(State(q, torch.zeros_like(q)), control)


@pytest.mark.parametrize("contact", MODELS)
def test_a_tip_keeps_to_its_path_and_the_block_stays_at_the_tip(contact):
    path = push(block_on_table(contact))
    along = PUSH[0, :2] + torch.arange(21, dtype=F64)[:, None] * torch.tensor([1e-3, 3e-4], dtype=F64)
    torch.testing.assert_close(path.q[0, :, :2], along, atol=1e-9, rtol=0)
    tip, block = path.q[0, -1, :2], path.q[0, -1, 2:]
    x, _ = turned(*(tip - block[:2]).tolist(), -float(block[2]))
    assert -x == pytest.approx(HALF + RADIUS, abs=8e-4)


@pytest.mark.parametrize("contact", MODELS)
def test_a_push_through_the_middle_does_not_turn_the_block(contact):
    q = start((-HALF - RADIUS, 0.0, 0.0, 0.0, 0.0))
    end = push(block_on_table(contact), q, velocity=(0.1, 0.0)).q[0, -1]
    assert float(end[2]) == pytest.approx(0.02, abs=1e-3)
    assert end[3:].abs().max() < 1e-9


@pytest.mark.parametrize("contact", MODELS)
def test_a_scene_that_is_turned_and_moved_moves_the_same(contact):
    """Friction is the same in all directions here, so that nothing depends on the axes of the world."""
    model, angle, shift = block_on_table(contact), 0.7, (0.3, -0.2)
    path = push(model).q[0]
    x, y = turned(PUSH[0, 0::2][:1], PUSH[0, 1:2], angle)
    ox, oy = turned(PUSH[0, 2:3], PUSH[0, 3:4], angle)
    q = torch.cat([x + shift[0], y + shift[1], ox + shift[0], oy + shift[1], PUSH[0, 4:] + angle])[None]
    other = push(model, q, velocity=turned(0.1, 0.03, angle)).q[0]
    bx, by = turned(path[:, 2], path[:, 3], angle)
    expected = torch.stack([bx + shift[0], by + shift[1], path[:, 4] + angle], 1)
    torch.testing.assert_close(other[:, 2:], expected, atol=1e-9, rtol=0)


def test_the_place_of_the_body_frame_does_not_matter():
    """A block whose joint frame is elsewhere in its body, turned, with mass, shape and support moved along."""
    angle, place = 0.4, (0.01, -0.02)

    def moved(x, y):
        a, b = turned(x, y, angle)
        return a + place[0], b + place[1]

    com = (0.006, 0.009)
    child = (*place, 0.0, 0.0, 0.0, math.sin(angle / 2), math.cos(angle / 2))
    plain = pushed("impulse", com=(*com, 0.0))
    other = pushed("impulse", com=(*moved(*com), 0.0), child=child, vertices=tuple(moved(*v) for v in SQUARE))
    # The grid under a turned outline is another one; supports of four points are the same.
    grids = [msgspec.structs.replace(m.supports[0], spacing=0.2) for m in (plain, other)]
    plain, other = (msgspec.structs.replace(m, supports=(grid,)) for m, grid in zip((plain, other), grids, strict=True))
    paths = [push(dynamics(m, "impulse")).q for m in (plain, other)]
    torch.testing.assert_close(paths[1], paths[0], atol=1e-9, rtol=0)
    centred = push(block_on_table("impulse")).q
    assert (paths[0] - centred).abs().max() > 1e-4, "the off-centre mass has no effect"


NET = Blueprint(
    augmentations=(
        Augmentation(
            quantities=("support.under.force.x", "support.under.force.y", "support.under.moment"),
            inputs=("contact.push.outward.x", "contact.push.place.y", "contact.push.depth", "velocity.block.x"),
            hidden=(4,),
            output_scale=(0.5, 0.5, 0.01),
        ),
    )
)
FREE = ("contact.push.friction", "support.under.friction", "support.under.centre.y", "support.under.rim",
        "support.under.anisotropy", "block.mass", "block.com.x", "contact.push.margin")  # fmt: skip


@pytest.mark.parametrize("contact", MODELS)
def test_gradients_through_contact_are_those_of_finite_differences(contact):
    mechanism = pushed(contact, com=(0.004, 0.002, 0.0))
    parameters = select_parameters(nominal(mechanism, contact), FREE)
    model = dynamics(mechanism, contact, parameters, NET)
    generator = torch.Generator().manual_seed(0)
    weights = 0.3 * torch.randn(model.weights.shape, generator=generator, dtype=F64)
    values = torch.tensor([p.nominal for p in parameters], dtype=F64)
    given = [PUSH.clone(), torch.full((1, 12, 2), 0.08, dtype=F64), values, weights]
    mix = torch.randn(5, generator=generator, dtype=F64)

    def loss(q, control, physical, net):
        path = model.simulate(State(q, torch.zeros_like(q)), control, physical, net)
        return path.q[0, -1] @ mix

    leaves = [x.clone().requires_grad_() for x in given]
    slopes = torch.autograd.grad(loss(*leaves), leaves)
    for index, slope in enumerate(slopes):
        way = torch.randn(given[index].shape, generator=generator, dtype=F64)
        if index == 1:
            way = way * 0.1
        errors = []
        for step in (1e-6, 1e-7, 1e-8):
            ends = []
            for sign in (1, -1):
                moved = [x.clone() for x in given]
                moved[index] = moved[index] + sign * step * way
                ends.append(float(loss(*moved)))
            expected, found = (ends[0] - ends[1]) / (2 * step), float((slope * way).sum())
            errors.append(abs(found - expected) / max(abs(expected), 1e-6))
        assert min(errors) < 1e-5, (index, errors)


def test_what_a_network_sees_of_a_contact_is_in_the_frame_of_the_object():
    """The outward normal and place of the same push are the same wherever the block lies."""
    names = ("contact.push.outward.x", "contact.push.place.x", "contact.push.slip.y")
    net = Blueprint(augmentations=(Augmentation(("support.under.moment",), names, hidden=()),))
    model, plain = dynamics(pushed(), "force", blueprint=net), push(block_on_table("force")).q[0, -1, 4]
    for index, name in enumerate(names):
        weights, ends = torch.zeros(4, dtype=F64), []
        weights[index] = 0.05
        for angle in (0.0, 1.1):
            x, y = turned(PUSH[:, 0], PUSH[:, 1], angle)
            q = torch.stack([x, y, x * 0, x * 0, PUSH[:, 4] + angle], 1)
            path = push(
                model, q, velocity=turned(0.1, 0.03, angle), parameters=torch.zeros(0, dtype=F64), weights=weights
            )
            ends.append(float(path.q[0, -1, 4]) - angle)
        assert ends[0] == pytest.approx(ends[1], abs=1e-9)
        assert abs(ends[0] - float(plain)) > 1e-6, f"{name} has no effect"


def test_impulse_and_force_agree_but_for_what_contact_yields():
    force, impulse = (push(block_on_table(contact), frames=30).q[0, -1, 2:] for contact in MODELS)
    torch.testing.assert_close(impulse[:2], force[:2], atol=1.5e-3, rtol=0)
    assert float(impulse[2]) == pytest.approx(float(force[2]), rel=0.08)


def test_what_cannot_be_is_refused():
    one = BodyShape(link="a", kind="sphere", radius=0.01)
    with pytest.raises(ValueError, match="two links"):
        BodyContact(name="pair", first=one, second=one)
    with pytest.raises(ValueError, match="against the hands of a clock"):
        BodyShape(link="a", kind="polygon", vertices=SQUARE[::-1])
    with pytest.raises(ValueError, match=r"a word without '\./@"):
        BodyContact(name="a.b", first=one, second=msgspec.structs.replace(one, link="b"))
    with pytest.raises(ValueError, match="one of a_x, a_y, a, b_x, b_y, b"):
        Mechanism(
            links=two_bodies("force", DISC, DISC).links,
            body_contacts=(BodyContact(name="p", first=one, second=msgspec.structs.replace(one, link="c")),),
        )
    with pytest.raises(InputError, match="soft contacts are those with the ground"):
        dynamics(pushed(), "soft")
    with pytest.raises(InputError, match="there is no quantity 'fricton'"):
        dynamics(two_bodies("force", DISC, DISC, fricton=0.1), "force")
