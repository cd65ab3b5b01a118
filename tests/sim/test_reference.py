# SPDX-License-Identifier: Apache-2.0
"""The simulator against closed-form mechanics, and as a function of state and torque alone."""

import msgspec
import numpy as np
import pytest
import torch

from neurodyn import robots
from neurodyn.core.seeds import generator
from neurodyn.robots import Joint, Robot, SimulatorConfig
from neurodyn.sim.newton.simulator import ReferenceSimulator
from neurodyn.sim.sampling import sample_states, sample_torques

G = 9.81


def finely(robot: Robot, dt: float, solver: SimulatorConfig | None = None) -> Robot:
    """Return a robot whose frame is one tiny step, so that a step gives an acceleration."""
    return msgspec.structs.replace(robot, dt=dt, simulator=solver or SimulatorConfig(substeps=1))


def acceleration(robot: Robot, q, qd, torque, dt=1e-3) -> np.ndarray:
    """Return (qd' - qd) / dt of one small step, which for semi-implicit Euler is the acceleration at q."""
    solver = msgspec.structs.replace(robot.simulator, substeps=1, mass_matrix_interval=1)
    q, qd, torque = (torch.tensor(np.atleast_2d(x), dtype=torch.float32) for x in (q, qd, torque))
    _, after = ReferenceSimulator(finely(robot, dt, solver), len(q), capture=False).step(q, qd, torque)
    return ((after.double() - qd.double()) / dt).numpy()


# --- the cartpole, written down on its own: slider x, pole angle t from upright, turning about +y ---------------
CART, POLE, HALF, ROTOR = 50.0, 2.5, 0.5, 0.01
POLE_INERTIA = POLE * (1.0**2 + 0.05**2) / 12 + 0.01 + POLE * HALF**2  # 0.01 as in the paper, see cartpole.urdf


def cartpole_mass_matrix(q: np.ndarray) -> np.ndarray:
    m = np.empty((len(q), 2, 2))
    m[:, 0, 0] = CART + POLE + ROTOR
    m[:, 0, 1] = m[:, 1, 0] = POLE * HALF * np.cos(q[:, 1])
    m[:, 1, 1] = POLE_INERTIA + ROTOR
    return m


def cartpole_force(q: np.ndarray, qd: np.ndarray, force: np.ndarray) -> np.ndarray:
    beyond = np.maximum(q[:, 0] - 4, 0) + np.minimum(q[:, 0] + 4, 0)
    spring = -1e4 * beyond - 10.0 * qd[:, 0] * (beyond != 0)
    slide = force + spring + POLE * HALF * np.sin(q[:, 1]) * qd[:, 1] ** 2
    return np.stack([slide, POLE * HALF * G * np.sin(q[:, 1])], axis=1)


def cartpole_acceleration(q, qd, force) -> np.ndarray:
    return np.linalg.solve(cartpole_mass_matrix(q), cartpole_force(q, qd, force)[..., None])[..., 0]


def runge_kutta(q, qd, force, dt, steps) -> tuple[np.ndarray, np.ndarray]:
    h = dt / steps
    for _ in range(steps):
        k1 = qd, cartpole_acceleration(q, qd, force)
        k2 = qd + h / 2 * k1[1], cartpole_acceleration(q + h / 2 * k1[0], qd + h / 2 * k1[1], force)
        k3 = qd + h / 2 * k2[1], cartpole_acceleration(q + h / 2 * k2[0], qd + h / 2 * k2[1], force)
        k4 = qd + h * k3[1], cartpole_acceleration(q + h * k3[0], qd + h * k3[1], force)
        q = q + h / 6 * (k1[0] + 2 * k2[0] + 2 * k3[0] + k4[0])
        qd = qd + h / 6 * (k1[1] + 2 * k2[1] + 2 * k3[1] + k4[1])
    return q, qd


def random_cartpoles(robot: Robot, count: int):
    rng = generator(3, "test")
    q, qd = sample_states(robot, count, rng)
    return q, qd, sample_torques(robot, count, 1, rng)[:, 0]


def test_cartpole_accelerates_as_derived_by_hand_also_beyond_its_limits(cartpole):
    q, qd, force = (x.double().numpy() for x in random_cartpoles(cartpole, 64))
    q[:32, 0] *= 1.6  # some of them beyond +-4 m
    assert (abs(q[:, 0]) > 4).sum() > 3
    expected = cartpole_acceleration(q, qd, force[:, 0])
    found = acceleration(cartpole, q, qd, force)
    np.testing.assert_allclose(found, expected, rtol=2e-3, atol=2e-2)


def test_declared_cartpole_simulator_is_semi_implicit_euler_with_one_mass_matrix_per_frame(cartpole):
    q0, qd0, force = random_cartpoles(cartpole, 64)
    q, qd, u = (x.double().numpy() for x in (q0, qd0, force))
    mass_matrix = cartpole_mass_matrix(q)
    for _ in range(5):
        qdd = np.linalg.solve(mass_matrix, cartpole_force(q, qd, u[:, 0])[..., None])[..., 0]
        qd = qd + cartpole.dt / 5 * qdd
        q = q + cartpole.dt / 5 * qd
    q_found, qd_found = ReferenceSimulator(cartpole, 64).step(q0, qd0, force)
    np.testing.assert_allclose(q_found.numpy(), q, atol=2e-5)
    np.testing.assert_allclose(qd_found.numpy(), qd, atol=2e-4)


def test_cartpole_simulator_converges_to_the_equations_of_motion(cartpole):
    q0, qd0, force = random_cartpoles(cartpole, 32)
    exact, _ = runge_kutta(q0.double().numpy(), qd0.double().numpy(), force[:, 0].double().numpy(), cartpole.dt, 50)
    errors = []
    for substeps in (10, 20, 40):
        q, _ = ReferenceSimulator(cartpole, 32, substeps=substeps).step(q0, qd0, force)
        errors.append(np.abs(q.double().numpy() - exact).mean())
    assert errors[0] / errors[1] == pytest.approx(2, rel=0.1)  # first order, as semi-implicit Euler is
    assert errors[1] / errors[2] == pytest.approx(2, rel=0.1)


def rotation(roll: float, pitch: float, yaw: float) -> np.ndarray:
    (cr, sr), (cp, sp), (cy, sy) = ((np.cos(a), np.sin(a)) for a in (roll, pitch, yaw))
    x = np.array([[1, 0, 0], [0, cr, -sr], [0, sr, cr]])
    y = np.array([[cp, 0, sp], [0, 1, 0], [-sp, 0, cp]])
    z = np.array([[cy, -sy, 0], [sy, cy, 0], [0, 0, 1]])
    return z @ y @ x


def test_off_centre_mass_on_a_turned_base_accelerates_as_derived_by_hand(tilted):
    """One hinge: I qdd = tau + axis . (c x m g), in world axes."""
    mass, centre = 1.5, np.array([0.1, -0.2, 0.3])
    principal = rotation(0.7, 0.2, -0.5)
    inertia = principal @ np.diag([0.02, 0.03, 0.04]) @ principal.T
    inertia += mass * (centre @ centre * np.eye(3) - np.outer(centre, centre))
    base = rotation(0.3, -0.4, 0.5) @ rotation(0, 0.6, 0)
    axis = np.array([0, 0, 1.0])
    angles, torques = np.linspace(-3, 3, 13)[:, None], np.linspace(-4, 4, 13)[:, None]
    expected = []
    for angle, torque in zip(angles[:, 0], torques[:, 0], strict=True):
        arm = base @ rotation(0, 0, angle) @ centre
        weight = np.cross(arm, mass * np.array([0, 0, -G]))
        expected.append((torque + (base @ axis) @ weight) / (axis @ inertia @ axis))
    found = acceleration(tilted, angles, np.zeros_like(angles), torques)
    np.testing.assert_allclose(found[:, 0], expected, rtol=1e-3, atol=1e-3)


# --- the torque-driven double pendulum ---------------------------------------------------------------------------
def frictionless(robot: Robot) -> Robot:
    joints = tuple(msgspec.structs.replace(joint, damping=0.0, friction=0.0) for joint in robot.joints)
    return msgspec.structs.replace(robot, joints=joints)


def test_pendulum_has_a_relative_elbow_and_hangs_at_zero(pendulum):
    """Lagrangian of two links, q1 from hanging down, q2 relative; I1, I2 about the joints (the authors' values)."""
    m1, m2, r1, r2, l1, i1, i2 = 0.523, 0.626, 0.2, 0.256, 0.2, 0.0319, 0.0509
    rng = np.random.default_rng(0)
    q, qd, u = rng.uniform(-3, 3, (32, 2)), rng.uniform(-5, 5, (32, 2)), rng.uniform(-3, 3, (32, 2))
    c2, s2, couple = np.cos(q[:, 1]), np.sin(q[:, 1]), m2 * l1 * r2
    m = np.empty((32, 2, 2))
    m[:, 0, 0] = i1 + i2 + m2 * l1**2 + 2 * couple * c2
    m[:, 0, 1] = m[:, 1, 0] = i2 + couple * c2
    m[:, 1, 1] = i2
    coriolis = np.stack([-couple * s2 * (2 * qd[:, 0] * qd[:, 1] + qd[:, 1] ** 2), couple * s2 * qd[:, 0] ** 2], 1)
    lower = m2 * r2 * np.sin(q.sum(1))
    weight = G * np.stack([(m1 * r1 + m2 * l1) * np.sin(q[:, 0]) + lower, lower], axis=1)
    expected = np.linalg.solve(m, (u - coriolis - weight)[..., None])[..., 0]
    found = acceleration(frictionless(pendulum), q, qd, u, dt=1e-4)
    np.testing.assert_allclose(found, expected, rtol=2e-2, atol=0.3)


def test_hanging_pendulum_rests_and_coulomb_friction_holds_small_torques(pendulum):
    simulator = ReferenceSimulator(pendulum, 3)
    torques = torch.zeros(3, 30, 2)
    torques[1, :, 0] = 0.08  # half of the shoulder's friction
    torques[2, :, 0] = 0.5
    q, _ = simulator.rollout(torch.zeros(3, 2), torch.zeros(3, 2), torques)
    assert q[0].abs().max() < 1e-6
    assert q[1].abs().max() < 0.01
    assert q[2, -1, 0] > 0.05  # a positive torque turns a positive way


# --- as a function -----------------------------------------------------------------------------------------------
NAMES = ["cartpole", "dfki-c1"]


def random_batch(robot: Robot, worlds: int, frames: int):
    rng = generator(1, "batch")
    return (*sample_states(robot, worlds, rng), sample_torques(robot, worlds, frames, rng))


@pytest.mark.parametrize("name", NAMES)
def test_rollout_is_bitwise_repeatable_and_worlds_do_not_touch_each_other(name):
    robot = robots.load(name)
    q, qd, u = random_batch(robot, 16, 8)
    simulator = ReferenceSimulator(robot, 16)
    first = simulator.rollout(q, qd, u)
    simulator.step(-q, 3 * qd, -u[:, 0])  # leaves no trace
    again = simulator.rollout(q, qd, u)
    alone = ReferenceSimulator(robot, 2).rollout(q[5:7], qd[5:7], u[5:7])
    for a, b, c in zip(first, again, alone, strict=True):
        assert torch.equal(a, b)
        assert torch.equal(a[5:7], c)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("substeps", [None, 1, 2, 3])
def test_captured_frame_equals_one_launched_kernel_by_kernel(name, substeps):
    robot = robots.load(name)
    q, qd, u = random_batch(robot, 4, 3)
    captured = ReferenceSimulator(robot, 4, substeps=substeps).rollout(q, qd, u)
    launched = ReferenceSimulator(robot, 4, substeps=substeps, capture=False).rollout(q, qd, u)
    for a, b in zip(captured, launched, strict=True):
        assert torch.equal(a, b)


def test_step_neither_changes_its_input_nor_returns_its_buffers(cartpole):
    q, qd, u = random_batch(cartpole, 4, 2)
    kept = q.clone(), qd.clone()
    simulator = ReferenceSimulator(cartpole, 4)
    first = simulator.step(q, qd, u[:, 0])
    copy = tuple(x.clone() for x in first)
    simulator.step(*first, u[:, 1])
    for now, then in zip((q, qd, *first), (*kept, *copy), strict=True):
        assert torch.equal(now, then)


def test_gravity_can_be_overridden(cartpole):
    q, qd, u = random_batch(cartpole, 2, 1)
    qd[:], u[:] = 0, 0
    _, after = ReferenceSimulator(cartpole, 2, gravity=[0, 0, 0]).step(q, qd, u[:, 0])
    assert after.abs().max() == 0
    _, after = ReferenceSimulator(cartpole, 2).step(q, qd, u[:, 0])
    assert after[:, 1].abs().min() > 1e-3


def test_nan_in_one_world_stays_there(cartpole):
    q, qd, u = random_batch(cartpole, 3, 4)
    clean = ReferenceSimulator(cartpole, 3).rollout(q, qd, u)[0]
    broken = q.clone()
    broken[1] = torch.nan
    simulator = ReferenceSimulator(cartpole, 3)
    found = simulator.rollout(broken, qd, u)[0]
    assert torch.equal(found[[0, 2]], clean[[0, 2]])
    assert torch.equal(simulator.rollout(q, qd, u)[0], clean)


def test_locked_and_driven_joints_of_an_mjcf(arm):
    simulator = ReferenceSimulator(arm, 1)
    q, qd = simulator.step(torch.tensor([[0.1, 0.3]]), torch.zeros(1, 2), torch.tensor([[4.0]]))
    assert q.shape == (1, 2)
    assert qd[0, 0] > 0
    assert qd[0, 1].abs() < 0.5  # the position actuator of the file, 1000 N m/rad, does not act


def test_joint_damping_and_limits_of_a_hinge_act(tilted):
    joint = Joint(name="turn", kind="revolute", lower=-0.5, upper=0.5, limit_ke=100.0, limit_kd=0.0, damping=0.2)
    robot = msgspec.structs.replace(tilted, joints=(joint,), gravity=(0.0, 0.0, 0.0))
    found = acceleration(robot, [[0.0], [0.6]], [[1.0], [0.0]], [[0.0], [0.0]])
    inertia = 1 / acceleration(robot, [[0.0]], [[0.0]], [[1.0]])[0, 0]
    np.testing.assert_allclose(found[:, 0] * inertia, [-0.2, -100 * 0.1], rtol=1e-2)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_cuda_agrees_with_the_processor(cartpole):
    q, qd, u = random_batch(cartpole, 8, 5)
    here = ReferenceSimulator(cartpole, 8).rollout(q, qd, u)[0]
    there = ReferenceSimulator(cartpole, 8, device="cuda:0").rollout(q.cuda(), qd.cuda(), u.cuda())[0]
    torch.testing.assert_close(there.cpu(), here, rtol=1e-4, atol=1e-4)
