# SPDX-License-Identifier: Apache-2.0
"""Steps of integrators in coordinates where rates are not derivatives of positions."""

import msgspec
import numpy as np
import pytest
import torch

from neurodyn.core.description.contacts import RoundedBox
from neurodyn.core.description.drive import Drive
from neurodyn.core.errors import InputError
from neurodyn.multibody.articulated import Tree
from neurodyn.multibody.engine import Engine, EngineConfig
from neurodyn.multibody.integrators import INTEGRATORS, IntegrationStep, displace
from neurodyn.multibody.motion import ContactMotion, FreeMotion
from tests.multibody import machines, reference
from tests.multibody.reference import Configuration, euler, random_mechanism, random_motion

KINDS, PARENTS = ("free", "ball", "prismatic", "revolute"), (-1, 0, 1, 2)


def setting(seed=0):
    rng = np.random.default_rng(seed)
    mechanism = random_mechanism(rng, KINDS, PARENTS)
    q, qd, acceleration = (x.tolist() for x in random_motion(rng, mechanism))
    return mechanism, Tree(mechanism, mechanism.quantities().__getitem__), q, qd, acceleration


@pytest.mark.parametrize("dt", [1e-7, 1e-3, 0.5])
def test_constant_rates_move_centre_and_rotation_along_straight_lines(dt):
    mechanism, tree, q, qd, _ = setting()
    positions, velocities = euler(tree, q, qd, [0.0] * mechanism.nv, dt)
    assert velocities == qd
    np.testing.assert_allclose(positions, reference.moved(mechanism, q, qd, dt), atol=1e-13)
    base = reference.matrix(mechanism.links[0].joint.parent_frame[3:])
    shift = Configuration(mechanism, positions).centres[0] - Configuration(mechanism, q).centres[0]
    np.testing.assert_allclose(shift, dt * base @ qd[:3], atol=1e-13)


def test_velocities_change_first_and_positions_follow_them():
    mechanism, tree, q, qd, acceleration = setting()
    positions, velocities = euler(tree, q, qd, acceleration, 0.01)
    np.testing.assert_allclose(velocities, np.add(qd, np.multiply(0.01, acceleration)), rtol=1e-15)
    np.testing.assert_allclose(positions, reference.moved(mechanism, q, velocities, 0.01), atol=1e-13)


def test_positions_are_the_integral_of_velocities():
    """Coordinates and rates belong together: Jacobians, from the rates, predict how links move."""
    mechanism, tree, q, qd, _ = setting(1)
    h = 1e-6
    ahead, behind = (displace(tree, q, qd, s) for s in (h, -h))
    before, after, here = (Configuration(mechanism, x) for x in (behind, ahead, q))
    for index, (jv, jw) in enumerate(here.jacobians()):
        rate = (after.centres[index] - before.centres[index]) / (2 * h)
        np.testing.assert_allclose(jv @ qd, rate, atol=1e-7)
        turn = (after.turns[index] - before.turns[index]) / (2 * h) @ here.turns[index].T
        np.testing.assert_allclose(reference.hat(jw @ qd), turn, atol=1e-7)


def test_quaternions_stay_of_unit_length():
    _, tree, q, qd, acceleration = setting(2)
    for _ in range(200):
        q, _ = euler(tree, q, qd, acceleration, 0.05)
    assert np.linalg.norm(q[3:7]) == pytest.approx(1.0, abs=1e-14)
    assert np.linalg.norm(q[7:11]) == pytest.approx(1.0, abs=1e-14)


def roll_out(name, mechanism, q, qd, dt, steps):
    """Positions and velocities after some steps without drives."""
    tree = Tree(mechanism, mechanism.quantities().__getitem__)

    def acceleration_at(q, qd):
        return tree.accelerations(tree.motions(q, qd), q, [0.0] * mechanism.nv)

    for _ in range(steps):
        q, qd = INTEGRATORS[name](IntegrationStep(tree, q, qd, acceleration_at(q, qd), dt, acceleration_at))
    return np.array([*q, *qd])


@pytest.mark.parametrize(("name", "order"), [("semi-implicit-euler", 1), ("rk4", 4)])
def test_the_error_falls_with_the_order_of_the_integrator(name, order):
    mechanism, _, q, qd, _ = setting(3)
    exact = roll_out("rk4", mechanism, q, qd, 0.1 / 32, 32)
    errors = [np.linalg.norm(roll_out(name, mechanism, q, qd, 0.1 / n, n) - exact) for n in (4, 8)]
    assert np.log2(errors[0] / errors[1]) == pytest.approx(order, abs=0.3)


@pytest.mark.parametrize(
    ("make", "contact"), [(machines.pendulum, None), (machines.hopper, "force"), (machines.sphere, "soft")]
)
def test_compiled_steps_converge_with_their_order(make, contact):
    """With springs, dry friction, limits and contacts as far as they are smooth."""
    mechanism = make()
    rng = np.random.default_rng(0)
    q, qd, _ = random_motion(rng, mechanism)
    if mechanism.links[0].joint.kind == "free":
        q[2] = 5.0  # in the air
    state = torch.tensor([[*q, *qd]], dtype=torch.float64)
    spec = machines.spec(mechanism, dt=0.02)

    def after(substeps, integrator):
        made = Engine(mechanism, spec, EngineConfig(substeps=substeps, contact=contact, integrator=integrator))
        held = torch.tensor([[[0.0, 0, 0, 0, 0, 1]]], dtype=torch.float64)[..., : made.ground_size]
        return made.program.rollout(state, frames=1, substeps=substeps, held=held)[0, -1]

    exact = after(32, "rk4")
    coarse, fine = ((after(n, "rk4") - exact).norm() for n in (2, 4))
    assert fine < coarse / 8 or fine < 1e-9
    assert fine < 1e-2 * (after(4, "semi-implicit-euler") - exact).norm()


@pytest.mark.parametrize("contact", [None, "soft"])
def test_a_step_of_runge_kutta_is_mujocos(contact):
    mujoco = pytest.importorskip("mujoco")
    models = pytest.importorskip("tests.multibody.mujoco_models")
    xml = f"""<mujoco><compiler angle="radian" autolimits="true"/>
    <option timestep=".01" integrator="RK4" {models.EXACT}/>
    <worldbody><body><joint name="slide" type="slide" axis="1 0 .2" damping=".3"/><inertial pos=".1 0 0" mass="2"
    diaginertia=".1 .2 .3"/><body pos="0 0 -.4"><joint name="hinge" axis="0 1 .1" damping=".2" stiffness="3"
    springref=".3" {'range="-.1 .1"' if contact else ""}/>
    <inertial pos=".1 .05 -.3" mass="1" diaginertia=".02 .03 .01"/>
    </body></body></worldbody></mujoco>"""
    model = mujoco.MjModel.from_xml_string(xml)
    mechanism = models.mechanism_of(model)
    states = models.random_states(mechanism, 8, 0, speed=3.0)
    theirs = torch.stack([models.Stepper(model).step(state) for state in states])
    ours, euler = (
        models.stepped(models.engine(mechanism, 0.01, contact=contact, integrator=name), states)
        for name in ("rk4", "semi-implicit-euler")
    )
    assert (ours - theirs).abs().max() < 1e-9
    assert (euler - theirs).abs().max() > 1e-4


def delayed_pendulum():
    mechanism = machines.pendulum()
    return msgspec.structs.replace(mechanism, drives={"elbow": Drive(kind="pd", kp=3.0, kd=0.1, delay=0.005)})


def rolling_sphere():
    sphere = RoundedBox("skin", 0, (0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0), (0.0, 0.0, 0.0), 0.1)
    return msgspec.structs.replace(machines.sphere(), shapes=(sphere,))


REFUSED = {
    "memory": (delayed_pendulum, {}, "the memory of drives or networks changes once in a step"),
    "impulses": (machines.sphere, {"contact": "impulse"}, "contact 'impulse' acts by impulses over a step"),
    "heightfield": (rolling_sphere, {"contact": "soft", "ground": "prisms"}, "with a heightfield are found once"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_mechanism_whose_acceleration_is_no_function_of_its_state_is_refused(case):
    make, config, message = REFUSED[case]
    mechanism = make()
    spec = machines.spec(mechanism, mechanism.drives, kind="target" if mechanism.drives else "torque")
    with pytest.raises(InputError, match=rf"integrator 'rk4' evaluates accelerations within a step, and .*{message}"):
        Engine(mechanism, spec, EngineConfig(integrator="rk4", **config))


def test_motions_of_bases_use_the_registered_integrator():
    """On a parabola a step of Runge-Kutta is exact, and one of Euler is not."""
    mechanism = machines.sphere()
    q, qd = torch.tensor([0.0, 0, 1, 0, 0, 0, 1]).double(), torch.zeros(6).double()
    gravity, torque = torch.tensor([0.0, 0.0, -9.81]).double(), torch.zeros(0).double()
    exact = 1.0 - 9.81 * 0.1**2 / 2
    free = [FreeMotion(mechanism, (), 0.1, 1, *name)(q, qd, torque, gravity)[0][2] for name in (("rk4",), ())]
    contact = [
        ContactMotion(mechanism, machines.spec(mechanism, dt=0.1), 1, **name)(q[None], qd[None], torque[None], gravity)
        for name in ({"integrator": "rk4"}, {})
    ]
    for runge_kutta, one_step in (free, [motion[0][0, 2] for motion in contact]):
        assert float(runge_kutta) == pytest.approx(exact, abs=1e-8)
        assert float(one_step) == pytest.approx(exact - 9.81 * 0.1**2 / 2, abs=1e-8)
