# SPDX-License-Identifier: Apache-2.0
"""What sensors read: against dynamics in world axes from Jacobians, with off-centre sensors on turned links."""

import msgspec
import numpy as np
import pytest
import torch

from neurodyn.core.description.mechanism import Mechanism
from neurodyn.core.description.parameter import select_parameters
from neurodyn.core.description.scene import Plane, Scene
from neurodyn.core.description.sensors import SENSOR_KINDS, Sensor, Stream
from neurodyn.core.errors import InputError
from neurodyn.dynamics.batch import State
from neurodyn.dynamics.hybrid.model import HybridDynamics
from neurodyn.dynamics.hybrid.readings import MountedSensor, SensorModel, sensor_quantities
from neurodyn.multibody.engine import EngineConfig, nominal
from tests.multibody import machines, reference

F64 = torch.float64
PLACE = (0.13, -0.21, 0.08)
TURN = tuple(np.array([1.0, -2.0, 0.5, 3.0]) / np.linalg.norm([1.0, -2.0, 0.5, 3.0]))
KINDS = ["free", "revolute", "prismatic", "ball", "revolute"]
PARENTS = [-1, 0, 1, 0, 3]
TORQUE = [1.5, -0.7]


def observed(mechanism, sensors, state, torque, *, controls=(), contact=None, joints=()):
    """Return the readings of sensors by name, and the acceleration over a step of one substep."""
    scene = Scene(shapes=(Plane(),)) if contact else None
    config = EngineConfig(substeps=1, contact=contact)
    model = HybridDynamics(machines.spec(mechanism, controls, 1e-3), mechanism, config, scene=scene)
    mounted = []
    for name, of in sensors.items():
        sensor = Sensor(position=PLACE, quaternion=TURN, **of)
        listed = tuple(joints) if sensor.kind == "joint_torque" else ()
        mounted.append(MountedSensor(name, sensor, Stream(name=name, kind=sensor.kind, joints=listed)))
    observation = SensorModel(model, mounted)
    none = torch.zeros(1, 0, dtype=F64)
    found = observation(state, torque, none, none, model.weights.detach())[0].detach().numpy()
    readings, first = {}, 0
    for one in mounted:
        readings[one.name] = found[first : first + sum(one.widths)]
        first += sum(one.widths)
    path = model.rollout(state, torque[:, None]).qd[0].detach().numpy()
    return readings, (path[1] - path[0]) / 1e-3


@pytest.fixture(scope="module")
def machine():
    """Every kind of joint between random frames, driven, and the readings of sensors on all links."""
    rng = np.random.default_rng(11)
    mechanism = reference.random_mechanism(rng, KINDS, PARENTS)
    links = (*mechanism.links[:-1], msgspec.structs.replace(mechanism.links[-1], armature=0.1))
    mechanism = msgspec.structs.replace(mechanism, links=links)
    q, qd, _ = reference.random_motion(rng, mechanism)
    driven = tuple(name for name, kind in zip(mechanism.names, KINDS, strict=True) if kind == "revolute")
    sensors = {f"{kind}-{link}": {"kind": kind, "link": name} for link, name in enumerate(mechanism.names)
               for kind in ("imu", "pose", "odometry")}  # fmt: skip
    sensors |= {"world": {"kind": "odometry", "link": mechanism.names[4], "axes": "world"}}
    sensors |= {"wrench": {"kind": "wrench", "link": mechanism.names[3]}}
    sensors |= {side: {"kind": "joint_torque", "side": side} for side in ("motor", "link")}
    state = State(torch.tensor(q[None]), torch.tensor(qd[None]))
    found = observed(mechanism, sensors, state, torch.tensor([TORQUE], dtype=F64), controls=driven, joints=driven)
    return mechanism, q, qd, driven, *found


def motion(mechanism, q, qd, rates, link, place, step=1e-4):
    """Return rotation, place, velocity and acceleration of a point of a link, and its spin, all in world axes."""

    def at(configuration):
        return configuration.origins[link] + configuration.turns[link] @ np.array(place)

    here = reference.Configuration(mechanism, q)
    jacobians = [
        (c.point(link, at(c)), c.spin_jacobians[link])
        for c in (reference.Configuration(mechanism, reference.moved(mechanism, q, qd, s)) for s in (step, -step))
    ]
    jv, jw = here.point(link, at(here)), here.spin_jacobians[link]
    acceleration = jv @ rates + (jacobians[0][0] - jacobians[1][0]) @ qd / (2 * step)
    return here.turns[link], at(here), jv @ qd, acceleration, jw @ qd


@pytest.mark.parametrize("link", range(len(KINDS)))
def test_readings_are_those_of_a_moving_frame(machine, link):
    mechanism, q, qd, _, readings, rates = machine
    turn, place, velocity, acceleration, spin = motion(mechanism, q, qd, rates, link, PLACE)
    axes = turn @ reference.matrix(TURN)
    force = acceleration - np.array(mechanism.gravity)
    np.testing.assert_allclose(readings[f"imu-{link}"], [*(axes.T @ spin), *(axes.T @ force)], rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(readings[f"pose-{link}"], [*place, *axes.flatten()], atol=1e-9)
    np.testing.assert_allclose(readings[f"odometry-{link}"], [*(axes.T @ velocity), *(axes.T @ spin)], atol=1e-9)
    if link == 4:
        np.testing.assert_allclose(readings["world"], [*velocity, *spin], atol=1e-9)


def test_a_wrench_and_joint_torques_carry_what_hangs_on_them(machine):
    """Force and moment on a link are what moves it and all behind it; the torque of a motor is what drives it."""
    mechanism, q, qd, driven, readings, rates = machine
    gravity = np.array(mechanism.gravity)
    turn, place, *_ = motion(mechanism, q, qd, rates, 3, PLACE)
    force, moment = np.zeros(3), np.zeros(3)
    for link in (3, 4):
        mass, com = mechanism.links[link].mass, mechanism.links[link].com
        _, centre, _, acceleration, spin = motion(mechanism, q, qd, rates, link, com)
        ahead, behind = (
            reference.Configuration(mechanism, reference.moved(mechanism, q, qd, s)).spin_jacobians[link] @ qd
            for s in (1e-4, -1e-4)
        )
        here = reference.Configuration(mechanism, q)
        inertia, turning = here.inertia(link), here.spin_jacobians[link] @ rates + (ahead - behind) / 2e-4
        force += mass * (acceleration - gravity)
        moment += np.cross(centre - place, mass * (acceleration - gravity))
        moment += inertia @ turning + np.cross(spin, inertia @ spin)
    axes = turn @ reference.matrix(TURN)
    np.testing.assert_allclose(readings["wrench"], [*(axes.T @ force), *(axes.T @ moment)], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(readings["motor"], TORQUE, atol=1e-12)
    armature = [mechanism.links[mechanism.names.index(name)].armature for name in driven]
    dofs = [machines.spec(mechanism).qd_names.index(name) for name in driven]
    np.testing.assert_allclose(readings["link"], np.array(TORQUE) - armature * rates[dofs], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("contact", ["force", "impulse", "soft"])
def test_forces_of_contacts_are_what_momentum_takes_from_the_ground(contact):
    mechanism = machines.hopper()
    values = torch.tensor([0.0, 0.0, 0.345, 0.1, -0.05, 0.08, 0.99, 1.01, 0.3, -0.2, -1.0, 0.5, 0.4, -0.3, 0.7])
    values = values.double()[None]
    values[:, 3:7] /= values[:, 3:7].norm()
    state, torque = State(values[:, :8], values[:, 8:]), torch.tensor([[0.4]], dtype=F64)
    sensors = {f"{link} force": {"kind": "contact_force", "link": link, "axes": "world"} for link in mechanism.names}
    readings, rates = observed(mechanism, sensors, state, torque, controls=("knee",), contact=contact)
    total = sum(readings.values())
    needed = np.zeros(3)
    for index, link in enumerate(mechanism.links):
        *_, acceleration, _ = motion(mechanism, state.q[0].numpy(), state.qd[0].numpy(), rates, index, link.com)
        needed += link.mass * (acceleration - np.array(mechanism.gravity))
    assert np.linalg.norm(needed) > 5.0, "the test needs something that touches"
    np.testing.assert_allclose(total, needed, rtol=1e-5, atol=1e-5)


def test_gradients_of_readings_against_differences():
    """By state, torque, the model's quantities and the sensor's place and turn, in float64."""
    mechanism = machines.hopper()
    free = ("knee.mass", "base.com.x", "knee.origin.z", "contact.friction")
    config, scene = EngineConfig(substeps=1, contact="force"), Scene(shapes=(Plane(),))
    parameters = select_parameters(nominal(mechanism, "force"), free)
    model = HybridDynamics(machines.spec(mechanism, ("knee",)), mechanism, config, parameters, scene=scene)
    mounted = [
        MountedSensor(
            kind,
            Sensor(kind=kind, link="knee", position=PLACE, quaternion=TURN),
            Stream(name=kind, kind=kind, joints=("knee",) if kind == "foot_force" else ()),
        )
        for kind, about in SENSOR_KINDS.items()
        if kind != "joint_torque" and about.compared
    ]
    names = tuple(name for name in sensor_quantities(mounted) if name.startswith(("imu.position", "imu.turn")))
    observation = SensorModel(model, mounted, names)
    q = torch.tensor([[0.0, 0.0, 0.3, 0.1, -0.05, 0.08, 0.99, 0.6]], dtype=F64)
    q[:, 3:7] /= q[:, 3:7].norm()
    qd = torch.tensor([[0.3, -0.2, -1.0, 0.5, 0.4, -0.3, 0.7]], dtype=F64)
    sensor = torch.tensor([[*PLACE, 0.05, -0.1, 0.2]], dtype=F64)
    inputs = [q, qd, torch.tensor([[0.4]], dtype=F64), model.physical().detach()[None], sensor]
    inputs = [x.clone().requires_grad_() for x in inputs]

    def read(*given):
        return observation(State(*given[:2]), *given[2:], model.weights.detach())

    assert read(*inputs).abs().max() > 5.0
    assert torch.autograd.gradcheck(read, inputs, eps=1e-6, atol=2e-4, rtol=1e-4)


def test_unknown_links_and_joints_are_refused():
    mechanism, zero = machines.pendulum(), torch.zeros(1, 2, dtype=F64)

    def refused(message, mechanism=mechanism, joints=(), **of):
        with pytest.raises(InputError, match=message):
            observed(mechanism, {"thing": of}, State(zero, zero), zero[:, :0], joints=joints)

    refused("there is no link 'wrist'; valid: elbow, shoulder", kind="pose", link="wrist")
    refused("joint 'elbow' has no motor", kind="joint_torque", joints=("elbow",))
    refused("there is no joint 'wrist'", kind="joint_torque", joints=("wrist",), side="link")
    joint = msgspec.structs.replace(mechanism.links[0].joint, name="thing")
    named = Mechanism(links=(msgspec.structs.replace(mechanism.links[0], joint=joint),))
    refused("has the name of a link", mechanism=named, kind="pose")
