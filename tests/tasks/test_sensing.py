# SPDX-License-Identifier: Apache-2.0
"""Policies of sensors: which terms they see, the axes of the IMU, and the errors that a robot declares."""

import msgspec
import numpy as np
import pytest
import torch

from neurodyn.control.starts import SampledStarts
from neurodyn.core.description.sensors import Sensor
from neurodyn.core.errors import InputError
from neurodyn.dynamics.batch import State
from neurodyn.dynamics.hybrid.declared import declared_hybrid
from neurodyn.policy.worlds.disturbances import Disturbances, disturbances_of
from neurodyn.policy.worlds.environment import PolicyEnvironment
from neurodyn.robots import load as load_robot
from neurodyn.robots.sections import Encoders
from neurodyn.sim.simulators import articulation
from neurodyn.tasks import TASKS, ObservationTerm, load
from neurodyn.tasks.sensing import GRAVITY, GYROSCOPE, Imu, base_joints, sensed_terms

UNKNOWN = ("base_linear_velocity", "base_height", "height", "velocity", "base_orientation", "pose")
"""Terms that no robot measures."""


@pytest.mark.parametrize("name", [*TASKS, "velocity@go2"])
def test_every_task_can_be_seen_through_sensors_and_its_critic_sees_the_state(name):
    task, state = load(name, "sensors"), load(name, "state")
    terms = {term.name for term in task.readings}
    assert "last_action" in terms
    assert not terms & set(UNKNOWN)
    assert task.groups["critic"].columns[: len(state.observations)] == state.observations
    assert ({"gyroscope", "gravity"} <= terms) == (task.declaration().spec.floating or name == "planar-run")
    assert task.observing("state").observations == state.observations


def test_only_walking_tasks_see_sensors_by_default():
    assert load("velocity@go2").observes == "sensors"
    assert {load(name).observes for name in TASKS} == {"state"}


def test_a_planar_base_has_an_imu_and_no_encoders():
    robot = load_robot("planar-runner")
    assert base_joints(robot) == ("x", "z", "pitch")
    assert base_joints(load_robot("cartpole")) == ()
    task = load("planar-run", "sensors")
    assert not {"x", "z", "pitch"} & set(task.observations)
    dynamics = declared_hybrid("planar-runner")
    q, qd = torch.zeros(1, 9), torch.zeros(1, 9)
    q[0, 2], qd[0, 2] = 0.3, -0.7
    now = dynamics.quantities(State(q, qd))
    seen = dict(zip(task.observations, task.observe(now, task.begin(now, torch.Generator()))[0].tolist(), strict=True))
    axis = np.array(articulation(robot).joints[2].axis)
    assert [seen[f"gyroscope.{x}"] for x in "xyz"] == pytest.approx(-0.7 * axis, abs=1e-6)
    assert seen["gravity.z"] == pytest.approx(-np.cos(0.3), abs=1e-6)
    assert abs(seen["gravity.x"]) == pytest.approx(np.sin(0.3), abs=1e-6)


TURN = (0.1, -0.5, 0.3, 0.806225775)


def _matrix(quaternion):
    x, y, z, w = quaternion
    return np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
            [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
            [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)],
        ]
    )


@pytest.mark.parametrize("link", ["", "ankle_1", "hip_3"])
def test_an_imu_reads_in_its_own_axes_wherever_it_is(link):
    """On a rotated ant, against the built robot's kinematics and differences of its rotation, in float64."""
    robot = msgspec.structs.replace(
        load_robot("ant"), sensors={"imu": Sensor(kind="imu", link=link, position=(0.1, 0.0, 0.2), quaternion=TURN)}
    )
    built, rng = articulation(robot), np.random.default_rng(3)
    q = np.concatenate([rng.normal(size=3), rng.normal(size=4), rng.uniform(-0.5, 0.5, 8)])
    q[3:7] /= np.linalg.norm(q[3:7])
    qd = rng.normal(size=14)
    imu = Imu.of(robot)
    assert imu is not None
    dynamics = declared_hybrid("ant")
    now = dynamics.quantities(State(torch.tensor(q[None]), torch.tensor(qd[None])))
    number = [joint.name for joint in built.joints].index(link) if link else 0

    def sensor_to_world(q):
        return built.kinematics(q[None]).rotations[0, number] @ _matrix(TURN)

    at, step = sensor_to_world(q), 1e-6
    turned = q.copy()
    spin = qd[3:6] * step / 2
    x, y, z, w = q[3:7]
    left = np.array([[w, z, -y], [-z, w, x], [y, -x, w], [-x, -y, -z]])  # d q = 1/2 (spin, 0) q, world axes
    turned[3:7] += left @ spin
    turned[7:] += qd[6:] * step
    change = at.T @ (sensor_to_world(turned) - at) / step
    spun = np.array([change[2, 1], change[0, 2], change[1, 0]])
    assert imu.term(GYROSCOPE).source(now, None)[0].numpy() == pytest.approx(spun, abs=2e-5)
    assert imu.term(GRAVITY).source(now, None)[0].numpy() == pytest.approx(-at[2], abs=1e-9)


def test_gradients_of_the_readings_against_differences():
    robot = msgspec.structs.replace(
        load_robot("ant"), sensors={"imu": Sensor(kind="imu", link="ankle_2", quaternion=TURN)}
    )
    imu, dynamics = Imu.of(robot), declared_hybrid("ant")
    assert imu is not None
    generator = torch.Generator().manual_seed(1)
    q, qd = (torch.randn(1, n, generator=generator, dtype=torch.float64) for n in (15, 14))

    def read(q, qd):
        unit = torch.cat([q[:, :3], torch.nn.functional.normalize(q[:, 3:7], dim=-1), q[:, 7:]], -1)
        return imu.read(dynamics.quantities(State(unit, qd)))

    assert torch.autograd.gradcheck(read, (q.requires_grad_(), qd.requires_grad_()), atol=1e-5)


def test_a_robot_gives_its_readings_itself():
    task = load("ant-run", "sensors")
    dynamics = declared_hybrid("ant")
    now = dynamics.quantities(task.start(1, torch.Generator().manual_seed(0)))
    memory = task.begin(now, torch.Generator())
    given = {GYROSCOPE: torch.tensor([[1.0, 2.0, 3.0]]), GRAVITY: torch.tensor([[0.1, 0.2, -0.9]])}
    seen = task.observe(now.replacing({name: lambda of, value=value: value for name, value in given.items()}), memory)
    assert seen[0, :6].tolist() == pytest.approx([1.0, 2.0, 3.0, 0.1, 0.2, -0.9])


def _robot(**errors):
    imu = Sensor(kind="imu", noise=(0.01, 0.3), bias=0.02, delay=0.012, rate=200.0)
    encoders = Encoders(noise=0.002, velocity_noise=0.05, bias=0.001, delay=0.004)
    return msgspec.structs.replace(load_robot("ant"), sensors={"imu": imu}, encoders=encoders, **errors)


def test_terms_have_the_errors_that_the_robot_declares():
    terms = {term.name: term for term in sensed_terms(_robot(), load("ant-run").observation_terms(), ("a",))["policy"]}
    root = 3.0**0.5
    assert terms["gyroscope"].noise == pytest.approx(0.01 * root)
    assert terms["gyroscope"].bias == pytest.approx(0.02 * root)
    assert (terms["gyroscope"].delay, terms["gyroscope"].rate) == (0.012, 200.0)
    assert terms["gravity"].noise == 0.05  # the usual one: an IMU's own says nothing of its attitude filter
    assert terms["joint_position"].noise == pytest.approx(0.002 * root)
    assert terms["joint_velocity"].noise == pytest.approx(0.05 * root)
    assert terms["joint_velocity"].delay == 0.004
    assert terms["last_action"].noise == terms["last_action"].delay == 0.0


@pytest.mark.parametrize(("given", "message"), [({"rate": 0.0}, "rate is 0"), ({"bias": -0.1}, "bias is")])
def test_bad_errors_of_a_sensor_are_refused(given, message):
    with pytest.raises((InputError, ValueError), match=message):
        Sensor(kind="imu", **given)


@pytest.mark.parametrize(("given", "message"), [({"noise": -1.0}, "noise"), ({"rate": -5.0}, "rate")])
def test_bad_errors_of_encoders_are_refused(given, message):
    with pytest.raises(ValueError, match=message):
        Encoders(**given)


def test_an_unknown_sensor_or_link_or_view_is_refused():
    terms = {"policy": (ObservationTerm("x", "joint_position", sensor="gyroscop"),)}
    with pytest.raises(InputError, match=r"'gyroscop'.*gyroscope"):
        sensed_terms(load_robot("ant"), terms, ())
    robot = msgspec.structs.replace(load_robot("ant"), sensors={"imu": Sensor(kind="imu", link="torso")})
    with pytest.raises(InputError, match="no link 'torso'"):
        sensed_terms(robot, load("ant-run").observation_terms(), ())
    with pytest.raises(InputError, match="'sensor'"):
        load("ant-run", "sensor")  # pyright: ignore[reportArgumentType]


class TestTiming:
    """Delays and rates of sensors, on a ramp: what is read tells when it was read."""

    def lateness(self, texts, frames=200, worlds=64):
        task = load("ant-run", "sensors")
        dynamics = declared_hybrid("ant")
        disturbances = Disturbances(disturbances_of(texts, task), task, dynamics)
        generator = torch.Generator().manual_seed(0)
        columns, dt = len(task.observations), dynamics.spec.dt
        still = torch.zeros(worlds, len(task.actions))
        state = disturbances.begin(torch.zeros(worlds, columns), still, None, generator)
        late = []
        for frame in range(1, frames):
            state = disturbances.see(state, torch.full((worlds, columns), frame * dt), still, None, generator)
            late.append(frame * dt - state.seen)
        late = torch.stack(late[50:])
        return {name: late[..., place] for place, name in enumerate(task.observations)}

    def test_each_sensor_is_late_by_itself(self):
        late = self.lateness(["delay.gyroscope=.025:.025:step", "delay.encoder=.01:.01:step"])
        assert late["gyroscope.x"] == pytest.approx(torch.full_like(late["gyroscope.x"], 0.025), abs=1e-4)
        assert late["hip_1"] == pytest.approx(torch.full_like(late["hip_1"], 0.01), abs=1e-4)
        assert late["hip_1_velocity"] == pytest.approx(torch.full_like(late["hip_1"], 0.01), abs=1e-4)
        assert float(late["gravity.x"].abs().max()) < 1e-4

    def test_a_slow_sensor_holds_its_readings_and_starts_anywhere(self):
        period = 1 / 13
        late = self.lateness(["rate.gyroscope=13:13:step", "delay.gyroscope=.02:.02:step"])["gyroscope.x"]
        assert float(late.min()) >= 0.02 - 1e-4
        assert float(late.max()) <= 0.02 + period + 1e-4
        assert float(late.mean()) == pytest.approx(0.02 + period / 2, abs=0.003)
        assert float(late[0].std()) > 0.01  # worlds differ in their phase
        times = torch.arange(len(late))[:, None] / 60 - late  # when it was read: constant between readings
        kept = (times.diff(dim=0).abs() < 1e-4).float().mean()
        assert float(kept) == pytest.approx(1 - 13 / 60, abs=0.03)


def test_errors_of_sensors_act_in_evaluations_too_and_those_given_replace_them():
    task, dynamics = load("cartpole-swingup", "sensors"), declared_hybrid("cartpole")
    exact, usual = (
        PolicyEnvironment(task, dynamics, SampledStarts(task, 0), 8, noisy=noisy).seen for noisy in (False, None)
    )
    assert not torch.equal(exact, usual)
    texts = ["observation.*=+0:0:step", "observation.*=+0:0"]
    given = PolicyEnvironment(task, dynamics, SampledStarts(task, 0), 8, disturbed=disturbances_of(texts, task)).seen
    assert torch.equal(exact, given)
