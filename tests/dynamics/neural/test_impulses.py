# SPDX-License-Identifier: Apache-2.0
"""Networks whose outputs are impulses at contact points: momentum, gradients, files, refusals."""

import msgspec
import numpy as np
import pytest
import torch

from neurodyn.core.description.contacts import ContactPoint, ContactPointLayout
from neurodyn.core.description.scene import Plane, Scene
from neurodyn.core.description.spec import JointSpec, StateSpec
from neurodyn.core.errors import InputError
from neurodyn.dynamics.batch import Control, Environment, State
from neurodyn.dynamics.neural.base_prediction import Base
from neurodyn.dynamics.neural.encoding import EncodingConfig, fit_encoding
from neurodyn.dynamics.neural.impulses import POINT_OUTPUTS, Impulses
from neurodyn.dynamics.neural.model import NEURAL, ModelConfig, ModelSpec, build_model
from neurodyn.geometry.contact_features import PointsOverGround
from neurodyn.geometry.ground import Ground
from neurodyn.nets.networks import NetConfig
from tests.multibody import reference
from tests.multibody.reference import random_mechanism, random_motion

DT = 0.02
GROUND = Ground(Scene(shapes=(Plane(position=(0.0, 0.0, -0.5), rotation=(0.0, 0.08715574, 0.0, 0.9961947)),)))


def robot(seed=0):
    """A floating base with a hinge, off-centre masses and turned frames; a contact point on each link."""
    mechanism = random_mechanism(np.random.default_rng(seed), ("free", "revolute"), (-1, 0))
    spec = StateSpec(
        robot="hopper", joints=tuple(JointSpec(name=x.joint.name, kind=x.joint.kind) for x in mechanism.links),
        controls=(mechanism.links[1].joint.name,), dt=DT,
    )  # fmt: skip
    layout = ContactPointLayout(
        joints=tuple(link.joint for link in mechanism.links),
        contact_points=tuple(
            ContactPoint(name=f"{k}/0", joint=k, point=(0.1, -0.05 * k, 0.2), radius=0.02 * k) for k in range(2)
        ),
        base_com=mechanism.links[0].com,
    )
    return spec, layout, mechanism


def motions(mechanism, worlds, seed=1):
    rng = np.random.default_rng(seed)
    states = [random_motion(rng, mechanism)[:2] for _ in range(worlds)]
    return tuple(torch.tensor(np.array(x)) for x in zip(*states, strict=True))


def model(members=1, seed=0, double=True):
    spec, layout, mechanism = robot()
    config = ModelConfig(
        kind="neural", net=NetConfig(kind="mlp", width=8, depth=1), robot="hopper", members=members,
        encoding=EncodingConfig(
            invariant=(), limits=(), kappa=(0.5,) * spec.nv, velocity_products=False, base_com=layout.base_com,
            base=Base(kind="impulses", substeps=2),
            contact=fit_encoding(spec, *(torch.randn(9, spec.nv) for _ in range(3)), layout=layout).config.contact,
        ),
    )  # fmt: skip
    torch.manual_seed(seed)
    made = build_model(config, ModelSpec(state=spec, fingerprint=None, contact_points=layout, mechanism=mechanism))
    for layer in (made.predictor.net.output_layer, made.predictor.skip):
        torch.nn.init.normal_(layer.weight, std=0.5)
    made.requires_grad_(False)
    return made.double() if double else made


def test_momentum_changes_by_the_impulses_alone():
    spec, layout, mechanism = robot()
    rng = np.random.default_rng(2)
    q, _ = motions(mechanism, 3)
    points, pushes, joints = (torch.tensor(rng.normal(size=(3, *shape))) for shape in ((2, 3), (2, 3), (1,)))
    change = Impulses(spec, layout, mechanism).velocity_change(q, points, pushes, joints)
    np.testing.assert_allclose(change[:, 6:], joints)
    for k in range(3):
        linear, angular = reference.Configuration(mechanism, q[k].numpy()).momentum(change[k].numpy())
        np.testing.assert_allclose(linear, pushes[k].sum(0), atol=1e-9)
        np.testing.assert_allclose(angular, torch.linalg.cross(points[k], pushes[k]).sum(0), atol=1e-9)


def test_in_the_air_momentum_is_conserved_for_any_network():
    found, mechanism = model(), robot()[2]
    q, qd = motions(mechanism, 4)
    torque = torch.zeros(4, 1, dtype=torch.float64)
    nowhere = Environment(ground=None)
    base, inputs = found._inputs(q, qd, torque, nowhere)
    outputs = found.predictor.forward(inputs[:, None])[:, 0]
    dqd = found.encoding.changes(base, outputs, nowhere)[:, : found.spec.nv]
    assert dqd[:, 6:].abs().min() > 1e-3
    world = torch.einsum("nij,nkj->nki", base.view.rotation, dqd[:, :6].view(4, 2, 3)).reshape(4, 6)
    for k in range(4):
        where = np.concatenate([base.q[k, :7], 0.2 * q[k, 7:] + 0.8 * base.q[k, 7:]])
        found_momentum = reference.Configuration(mechanism, where).momentum(np.concatenate([world[k], dqd[k, 6:]]))
        np.testing.assert_allclose(np.concatenate(found_momentum), 0.0, atol=1e-9)


def test_contact_points_push_within_a_cone_and_only_near_the_ground():
    spec, layout, mechanism = robot()
    impulses, (q, qd) = Impulses(spec, layout, mechanism), motions(mechanism, 64)
    encoding = model().encoding
    base = encoding.with_view(type(encoding.predict_base(q, qd, torch.zeros(64, 1).double(), None))(q, qd))
    raw = 10 * torch.randn(64, 2, POINT_OUTPUTS, dtype=torch.float64)
    seen = impulses._proximity(GROUND, q, qd)
    over = PointsOverGround(seen.distance, seen.normal, seen.position, seen.velocity)
    _, pushes = impulses._pushes(raw, base.view.rotation, over)
    along = (pushes * seen.normal).sum(-1)
    side = (pushes - along[..., None] * seen.normal).norm(dim=-1)
    assert (along >= 0).all()
    assert along.max() > 0
    assert (side <= along + 1e-9).all()
    radius = torch.tensor([0.0, 0.02], dtype=torch.float64)
    leaving = DT * (seen.velocity * seen.normal).sum(-1).relu()
    far = seen.distance - radius - leaving > 0.02
    assert far.any()
    assert (along[far] == 0).all()


def test_gradients_by_state_torque_and_weights():
    found, (q, qd) = model(), motions(robot()[2], 1, seed=5)
    torque = torch.randn(1, 1, dtype=torch.float64)
    found.predictor.normaliser.gain.mul_(0.1)
    home = Environment(ground=GROUND)
    bias = found.predictor.skip.bias.clone()

    def predicted(q, qd, torque, bias):
        found.predictor.skip.bias = None
        found.predictor.skip.bias = torch.nn.Parameter(bias, requires_grad=False)
        carry = found.begin(State(q=q, qd=qd), home)
        state = found.step(carry, State(q=q, qd=qd), Control(torque=torque))[1].state
        return state.q, state.qd

    given = [x.clone().requires_grad_() for x in (q, qd, torque)]
    assert torch.autograd.gradcheck(lambda *x: predicted(*x, bias), given, atol=1e-6)


def test_members_predict_as_alone(tmp_path):
    found, (q, qd) = model(members=3), motions(robot()[2], 5)
    torque = torch.zeros(5, 1, dtype=torch.float64)
    home = Environment(ground=GROUND)
    state = State(q=q, qd=qd)
    _, step = found.step(found.begin(state, home), state, Control(torque=torque))
    assert step.epistemic.shape == (5, found.spec.nq + found.spec.nv)
    assert step.epistemic.max() > 0
    alone = [
        found.step(found.begin(state, home, members=torch.full((5,), m), alone=True), state, Control(torque=torque))[1]
        for m in range(3)
    ]
    spread = torch.stack([torch.cat([x.state.q, x.state.qd], -1) for x in alone]).std(0)
    np.testing.assert_allclose(step.epistemic, spread, rtol=1e-6)


def test_files_hold_everything(tmp_path):
    found, (q, qd) = model(double=False), motions(robot()[2], 3)
    found.encoding.impulses.change.copy_(torch.rand(2 * found.spec.nv))
    NEURAL.save(tmp_path, found)
    again = NEURAL.load(tmp_path)
    state, control = State(q=q.float(), qd=qd.float()), Control(torque=torch.zeros(3, 1))
    home = Environment(ground=GROUND)
    expected, got = (m.step(m.begin(state, home), state, control)[1].state for m in (found, again))
    assert torch.equal(expected.q, got.q)
    assert torch.equal(expected.qd, got.qd)
    assert torch.equal(found.encoding.impulses.change, again.encoding.impulses.change)


@pytest.mark.parametrize("lacking", ["a floating base", "contact points", "a mechanism"])
def test_what_a_robot_lacks_is_reported(lacking):
    spec, layout, mechanism = robot()
    if lacking == "a floating base":
        spec = msgspec.structs.replace(spec, joints=spec.joints[1:], controls=(spec.joints[1].name,))
    elif lacking == "contact points":
        layout = msgspec.structs.replace(layout, contact_points=())
    else:
        mechanism = None
    with pytest.raises(InputError, match=f"base 'impulses' needs .*{lacking}"):
        Impulses(spec, layout, mechanism)
