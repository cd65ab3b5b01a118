# SPDX-License-Identifier: Apache-2.0
"""The traced step of a mechanism: every name acts, every derivative is right, and laws are kept."""

from itertools import pairwise

import msgspec
import numpy as np
import pytest
import torch

from neurodyn.core.description.blueprint import Augmentation, Blueprint
from neurodyn.core.description.mechanism import Mechanism
from neurodyn.core.errors import InputError
from neurodyn.multibody.contacts.held_ground import GROUND_NUMBERS
from neurodyn.multibody.engine import Engine, EngineConfig, nominal
from tests.multibody import machines, reference
from tests.multibody.reference import Configuration

F64 = torch.float64
PLANE = torch.tensor([0.1, -0.2, 0.0, 0.1, 0.2, 0.9746794345], dtype=F64)
NETS = Blueprint(
    augmentations=(
        Augmentation(quantities=("passive.shoulder", "passive.elbow"), inputs=("qd.shoulder", "qd.elbow"), hidden=(3,)),
        Augmentation(quantities=("elbow.mass",), inputs=("sin(q.elbow)",), mode="scale", hidden=()),
    )
)


def run(engine, state, frames=1, **tensors):
    return engine.program.rollout(state, frames=frames, substeps=engine.config.substeps, **tensors)


def tensor(*values):
    return torch.tensor([values], dtype=F64)


# --- names ---------------------------------------------------------------------------------------------------------
@pytest.fixture(scope="module", params=["pendulum", "hopper", "hopper/impulse"])
def named(request):
    """An engine, and what has to be handed to it."""
    kind = request.param.partition("/")[0]
    mechanism = getattr(machines, kind)()
    mechanism = msgspec.structs.replace(mechanism, points=mechanism.points[:1])  # one is enough, and quicker
    contact = {"pendulum": None, "hopper": "force", "hopper/impulse": "impulse"}[request.param]
    spec = machines.spec(mechanism, ("elbow",) if kind == "pendulum" else ("knee",))
    # With the usual ones a point here sticks, or slips too fast to tell how fast.
    free = {None: (), "force": ("contact.slip_speed",), "impulse": ("contact.friction",)}[contact]
    return mechanism, spec, EngineConfig(contact=contact, substeps=1, free=free)


STARTS = {
    # Away from the joints' rest and within the reach of limits, moving, and with every point in the ground.
    "shoulder": (0.4, 0.9, 1.5, -2.0),
    "base": (0.0, 0.0, 0.37, 0.1, -0.05, 0.08, 0.99, 1.01, 0.3, -0.2, -2.0, 0.5, 0.4, -0.3, 0.7),
}


def start_of(mechanism):
    values = torch.tensor([STARTS[mechanism.names[0]]], dtype=F64)
    if mechanism.names[0] == "base":
        values[:, 3:7] /= values[:, 3:7].norm()
    return values


def test_every_name_can_be_acted_on_and_matters(named):
    """One constant network for every quantity, moved one by one: each changes the step, or is known not to here."""
    mechanism, spec, config = named
    names = Engine(mechanism, spec, config).names
    assert len(set(names)) == len(names)
    first = names[0]  # what all of them see; it comes first, so that it is known to all
    nets = tuple(Augmentation(quantities=(name,), inputs=(first,), hidden=()) for name in names[1:])
    engine = Engine(mechanism, spec, msgspec.structs.replace(config, blueprint=Blueprint(augmentations=nets)))
    assert engine.names == names
    acted = [net.quantities[0] for net in nets]
    weights = torch.zeros(2 * len(nets), dtype=F64, requires_grad=True)
    given = {"held": PLANE.expand(1, 1, GROUND_NUMBERS)} if config.contact else {}
    given |= {"control": tensor([0.7]), "parameters": torch.full((len(config.free),), 0.1, dtype=F64)}
    after = run(engine, start_of(mechanism), weights=weights, **given)[0, 1]
    slopes = torch.stack([torch.autograd.grad(x, weights, retain_graph=True)[0][1::2] for x in after])
    assert slopes.isfinite().all()
    idle = {name for name, slope in zip(acted, slopes.abs().amax(0).tolist(), strict=True) if slope == 0.0}
    seen = {name for name in names if name.startswith(("velocity.", "spin."))}  # by networks alone
    assert idle == unfelt(mechanism, config) | seen


def unfelt(mechanism, config):
    """Return the quantities that mean nothing to these mechanisms in the states of `STARTS`, by the laws of physics."""
    if mechanism.names[0] == "base":
        # The lower limit is not passed, there is no spring that could rest, and an axis has a direction only.
        # The push against the depth is stronger than that of a restitution of nearly nothing.
        bounce = {"contact.restitution"} if config.contact == "impulse" else set()
        return {"knee.lower", "knee.rest", "knee.axis.y"} | bounce
    # The shoulder turns about the y axis of the world: only what it does about that axis counts.
    about = {f"shoulder.inertia.{part}" for part in ("xx", "zz", "xy", "xz", "yz")}
    about |= {"wrench.shoulder.moment.x", "wrench.shoulder.moment.z", "elbow.origin.y", "shoulder.axis.y"}
    # Forces on the joint itself, and where the whole hangs, change nothing; nor do limits and springs that are not.
    held = {f"wrench.shoulder.force.{x}" for x in "xyz"} | {f"shoulder.origin.{x}" for x in "xyz"}
    return about | held | {"elbow.lower", "elbow.rest", "shoulder.limit_stiffness", "shoulder.limit_damping"}


def test_names_of_a_mechanism_are_those_of_its_parts():
    mechanism = machines.hopper()
    names = Engine(mechanism, machines.spec(mechanism, ("knee",)), EngineConfig(contact="force")).names
    expected = {
        "q.base.x", "qd.base.wz", "q.knee", "control.knee", "actuator.knee", "passive.knee", "torque.base.vx",
        "wrench.base.moment.x", "wrench.knee.force.z", "contact.foot.depth", "contact.left.normal",
        "contact.front.friction.y", "acceleration.base.wx", "acceleration.knee", "knee.mass", "base.com.x",
        "knee.damping", "gravity.z", "contact.friction",
    }  # fmt: skip
    assert expected <= set(names)
    # A floating base has no passive torques.
    assert not {"base.damping", "base.friction", "passive.base.vx"} & set(names)
    order = ("q.knee", "passive.knee", "torque.knee", "contact.foot.depth", "contact.foot.normal", "acceleration.knee")
    assert [x for x in names if x in order] == list(order)


# --- derivatives ---------------------------------------------------------------------------------------------------
FREE = ("shoulder.friction", "elbow.mass", "elbow.com.z", "elbow.inertia.xy", "elbow.origin.z", "elbow.axis.x",
        "gravity.z", "shoulder.armature", "elbow.limit_stiffness")  # fmt: skip


@pytest.fixture(scope="module")
def augmented():
    mechanism = machines.pendulum()
    config = EngineConfig(substeps=2, free=FREE, blueprint=NETS)
    return Engine(mechanism, machines.spec(mechanism, ("shoulder", "elbow")), config)


def augmented_inputs(engine, frames=3):
    generator = torch.Generator().manual_seed(3)
    state = torch.tensor([[0.3, 0.1, 0.6, -0.4], [-0.5, 0.85, -0.3, 0.5]], dtype=F64)  # the second is at its limit
    control = 0.5 * torch.randn(2, frames, 2, generator=generator, dtype=F64)
    weights = 0.5 * torch.randn(engine.config.blueprint.weights, generator=generator, dtype=F64)
    return {"state": state, "control": control, "parameters": torch.tensor(engine.nominal, dtype=F64),
            "weights": weights}  # fmt: skip


def test_gradients_of_a_rollout_by_state_control_parameters_and_weights(augmented):
    inputs = augmented_inputs(augmented)
    names, values = list(inputs), [x.requires_grad_() for x in inputs.values()]

    def rollout(*values):
        given = dict(zip(names, values, strict=True))
        return run(augmented, given.pop("state"), 3, **given)

    assert torch.autograd.gradcheck(rollout, values, eps=1e-6, atol=1e-7, rtol=1e-5)


def test_central_differences_of_several_sizes_agree_where_the_dynamics_are_smooth(augmented):
    """Of 20 frames, along one direction in everything: errors fall with the step squared, down to rounding."""
    inputs = augmented_inputs(augmented, frames=20)
    inputs["state"] = inputs["state"][:1]
    inputs["control"] = inputs["control"][:1]
    generator = torch.Generator().manual_seed(4)
    ways = {name: torch.randn(x.shape, generator=generator, dtype=F64) for name, x in inputs.items()}
    ways["parameters"] *= inputs["parameters"].abs() + 0.01

    def end(given):
        given = dict(given)
        return run(augmented, given.pop("state"), 20, **given)[0, -1]

    leaves = {name: x.clone().requires_grad_() for name, x in inputs.items()}
    after = end(leaves)
    exact = torch.stack(
        [
            sum((g * ways[n]).sum() for g, n in zip(torch.autograd.grad(x, list(leaves.values()), retain_graph=True),
                                                    leaves, strict=True))
            for x in after
        ]
    )  # fmt: skip
    errors = []
    for h in (1e-3, 1e-4, 1e-5):
        ahead, behind = (end({n: x + s * h * ways[n] for n, x in inputs.items()}) for s in (1, -1))
        errors.append(float(((ahead - behind) / (2 * h) - exact).abs().max() / exact.abs().max()))
    assert errors[0] < 1e-2
    assert errors[1] < errors[0] / 50
    assert errors[2] < 1e-6


CONTACT = ("contact.stiffness", "contact.damping", "contact.friction", "contact.slip_speed", "base.com.x", "knee.mass")


@pytest.fixture(scope="module")
def hopper():
    mechanism = machines.hopper()
    return Engine(
        mechanism, machines.spec(mechanism, ("knee",)), EngineConfig(contact="force", substeps=2, free=CONTACT)
    )


def lying(height=0.135):
    """A hopper whose four points are some millimetres in the plane, and slide."""
    state = torch.zeros(1, 15, dtype=F64)
    state[0, :8] = torch.tensor([0.05, -0.1, height - 0.02, 0.0, 0.0, 0.0, 1.0, -1.02])
    state[0, 8:] = torch.tensor([0.4, 0.3, -0.1, 0.2, -0.1, 0.3, 0.5])
    return state


def test_gradients_through_contact_by_state_control_parameters_and_ground(hopper):
    """Softer than a real ground, so that differences can resolve it; the contact neither opens nor closes."""
    parameters = torch.tensor([2e3, 0.5, 0.6, 0.2, 0.05, 0.5], dtype=F64)
    held = torch.tensor([0.0, 0.0, 0.0, 0.02, -0.03, 0.99935], dtype=F64).expand(1, 2, GROUND_NUMBERS).contiguous()
    values = [lying(), tensor([0.3], [-0.2]), held, parameters]

    def rollout(state, control, held, parameters):
        return run(hopper, state, 2, control=control, held=held, parameters=parameters)

    away = values[2].clone()
    away[..., 2] = -1e3
    touching, flying = (rollout(values[0], values[1], h, parameters) for h in (values[2], away))
    assert (touching - flying)[0, -1].abs().max() > 1e-3
    assert torch.autograd.gradcheck(rollout, [x.requires_grad_() for x in values], eps=1e-7, atol=1e-5, rtol=1e-5)


# --- laws ----------------------------------------------------------------------------------------------------------
def test_a_step_is_semi_implicit_with_the_accelerations_of_the_principle_of_dalembert():
    """Against Jacobians and finite differences, with passive torques written out once more."""
    mechanism = machines.pendulum()
    engine = Engine(mechanism, machines.spec(mechanism, ("elbow",)), EngineConfig(substeps=1))
    q, qd, u = np.array([0.4, 0.8]), np.array([1.5, -2.0]), 0.7
    shoulder, elbow = mechanism.links
    torque = [-(x.damping * v) - x.friction * np.tanh(v / 0.05) - x.stiffness * (p - x.rest)
              for x, p, v in zip(mechanism.links, q, qd, strict=True)]  # fmt: skip
    depth = q[1] - elbow.upper
    torque[1] += u - max(
        elbow.limit_stiffness * depth + elbow.limit_damping * 100 * depth / (1 + 100 * depth) * qd[1], 0
    )
    qd_next = qd + machines.DT * reference.accelerations(mechanism, q, qd, np.array(torque))
    found = run(engine, tensor(*q, *qd), control=tensor([u]))[0, 1].numpy()
    np.testing.assert_allclose(found, [*(q + machines.DT * qd_next), *qd_next], atol=1e-8)
    assert shoulder.upper is None


def test_energy_of_a_frictionless_double_pendulum_drifts_with_the_step():
    mechanism = machines.bare_pendulum()
    drifts = []
    for substeps in (1, 2, 4):
        engine = Engine(mechanism, machines.spec(mechanism, ()), EngineConfig(substeps=substeps))
        path = run(engine, tensor(1.5, 0.5, 0.0, 0.0), 100)[0].numpy()
        energy = [sum(Configuration(mechanism, x[:2]).energy(x[2:])) for x in path]
        drifts.append(np.abs(np.array(energy) - energy[0]).max())
    assert drifts[0] < 1.0  # of about 10 J that change their kind
    for coarse, fine in pairwise(drifts):
        assert coarse / fine == pytest.approx(2.0, rel=0.25)


def test_a_flying_body_with_its_mass_off_centre():
    """Its centre of mass follows a parabola, its angular momentum stays, whatever it does about it."""
    (link, _), points = machines.hopper().links, machines.hopper().points[1:]
    mechanism = Mechanism(links=(link,), points=points)
    engine = Engine(mechanism, machines.spec(mechanism), EngineConfig(substeps=10))
    turn = torch.tensor([0.1, 0.7, -0.2, 0.5], dtype=F64)
    state = torch.cat([tensor(0.1, 0.2, 0.3), (turn / turn.norm())[None], tensor(1.0, -0.5, 2.0, 3.0, -4.0, 5.0)], 1)
    path = run(engine, state, 50)[0].numpy()
    times = machines.DT * np.arange(51)
    centres = np.array([Configuration(mechanism, x[:7]).centres[0] for x in path])
    h = machines.DT / 10
    fallen = -0.5 * 9.81 * times * (times + h)  # of semi-implicit Euler
    expected = centres[0] + times[:, None] * path[0, 7:10] + fallen[:, None] * np.array([0, 0, 1])
    np.testing.assert_allclose(centres, expected, atol=1e-10)
    spins = np.array([Configuration(mechanism, x[:7]).inertia(0) @ x[10:13] for x in path])
    assert np.abs(spins - spins[0]).max() < 0.02 * np.abs(spins[0]).max()
    np.testing.assert_allclose(np.linalg.norm(path[:, 3:7], axis=1), 1.0, atol=1e-14)
    assert np.abs(path[:, :3] - centres).max() > 0.04  # the origin goes round it


def test_parameters_are_the_quantities_of_a_mechanism_that_is_built_with_them():
    mechanism = machines.pendulum()
    free = tuple(n for n in mechanism.quantities() if not n.endswith(("stiffness", "rest", "armature")))
    engine = Engine(mechanism, machines.spec(mechanism, ("elbow",)), EngineConfig(free=free))
    other = machines.pendulum(damping=0.3, friction=0.2)
    values = torch.tensor([other.quantities()[name] for name in free], dtype=F64)
    fixed = Engine(other, machines.spec(other, ("elbow",)), EngineConfig())
    state, control = tensor(0.4, 0.8, 1.5, -2.0), tensor([0.3], [0.1])
    expected = run(fixed, state, 2, control=control)
    torch.testing.assert_close(run(engine, state, 2, control=control, parameters=values), expected, atol=1e-12, rtol=0)


# --- refusals ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"free": ("elbow.weight",)},
            r"there is no parameter 'elbow.weight' \(did you mean .*\?\); valid: .*elbow.damping",
        ),
        ({"free": ("contact.friction",)}, "there is no parameter 'contact.friction'"),
        ({"contact": "force"}, "robot 'machine': has no points that could touch a ground; declare `contact_points`"),
        (
            {"blueprint": Blueprint(augmentations=(Augmentation(quantities=("elbow.speed",), inputs=("q.elbow",)),))},
            r"blueprint: there is no quantity 'elbow.speed' to act on \(did you mean .*\?\); valid: .*elbow.mass",
        ),
    ],
)
def test_what_is_not_there_is_refused_in_one_line(options, message):
    mechanism = machines.pendulum()
    with pytest.raises(InputError, match=message) as caught:
        Engine(mechanism, machines.spec(mechanism), EngineConfig(**options))
    assert "\n" not in str(caught.value)


def test_a_frame_has_at_least_one_step():
    with pytest.raises(ValueError, match="substeps is 0; valid: at least 1"):
        EngineConfig(substeps=0)


def test_nominal_quantities_are_those_of_the_mechanism_and_of_its_contact_model():
    mechanism = machines.hopper()
    assert nominal(mechanism, None) == mechanism.quantities()
    assert {"contact.stiffness", "contact.slip_speed"} <= set(nominal(mechanism, "force"))
    assert {"contact.restitution", "contact.cfm"} <= set(nominal(mechanism, "impulse"))
