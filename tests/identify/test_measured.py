# SPDX-License-Identifier: Apache-2.0
"""Sensors beside those of joints: known quantities come back from what they read, late and with gaps."""

import math

import msgspec
import pytest
import torch

from neurodyn.core.description.drive import Drive
from neurodyn.core.description.sensors import Sensor, Stream
from neurodyn.core.errors import InputError
from neurodyn.dynamics.hybrid.model import HybridDynamics
from neurodyn.geometry import rotation
from neurodyn.identify.fit.least_squares import levenberg_marquardt
from neurodyn.identify.fit.readings import ComparedReadings, interpolate, rotation_error
from tests.identify import sensed
from tests.multibody import machines

F64 = torch.float64
TURN = (0.1825741858, 0.3651483717, 0.0, 0.9128709292)
IMU = Sensor(kind="imu", link="base", position=(0.12, -0.05, 0.07), quaternion=TURN, noise=(0.01, 0.05))


def flights(worlds=6, frames=40, seed=1):
    """Starts and torques of a hopper in flight."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape):
        return torch.randn(shape, generator=generator, dtype=F64)

    q = torch.cat([draw(worlds, 3), draw(worlds, 4), 0.3 * draw(worlds, 1)], -1)
    q[:, 3:7] /= q[:, 3:7].norm(dim=-1, keepdim=True)
    time = 0.01 * torch.arange(frames, dtype=F64)
    control = 0.5 * torch.sin(draw(worlds, 1) + 9.0 * time)[..., None]
    return sensed.State(q, torch.cat([draw(worlds, 6), draw(worlds, 1)], -1)), control


def solved(residuals, iterations=40):
    start = residuals.start(residuals.space.nominal[None])
    point = levenberg_marquardt(residuals, start, iterations, tolerance=1e-13).point
    return dict(zip(residuals.space.names, residuals.values(point.x)[0].tolist(), strict=True))


def test_an_imu_finds_the_mass_centre_of_a_floating_base_its_delay_and_its_bias():
    """From a turned, off-centre unit alone, whose readings come 7 ms late in frames of 10 ms."""
    machine, (state, control) = machines.hopper(), flights()
    truth = {"base.com.x": 0.02, "base.com.z": 0.05, "base.mass": 2.4, "imu.bias.angular_velocity.y": 0.03}
    windows = sensed.log(machine, truth, {"imu": IMU}, state, control, controls=("knee",), delay=0.007)
    free = [*truth, "imu.delay=0:0.03"]
    residuals = sensed.residuals(
        machine, free, {"imu": IMU}, windows, controls=("knee",), positions=False, velocities=False, initial=False,
        huber=None,
    )  # fmt: skip
    found = solved(residuals)
    assert found.pop("imu.bias.angular_velocity.y") == pytest.approx(0.03, abs=1e-3)
    assert found.pop("imu.delay") == pytest.approx(0.007, abs=3e-4)
    assert found == pytest.approx({name: truth[name] for name in found}, rel=0.01, abs=5e-4)


def test_poses_of_an_end_effector_alone_find_links_and_where_it_sits():
    machine = machines.bare_pendulum()
    tip = Sensor(kind="pose", link="elbow", position=(0.0, 0.0, -0.45), quaternion=TURN)
    truth = {"elbow.origin.z": -0.55, "elbow.com.z": -0.2, "tip.position.z": -0.5, "tip.turn.x": 0.1}
    q = torch.tensor([[0.5, 0.2], [-0.8, 1.2], [2.0, -0.5]], dtype=F64)
    state, control = sensed.State(q, torch.zeros(3, 2, dtype=F64)), torch.zeros(3, 50, 0, dtype=F64)
    windows = sensed.log(machine, truth, {"tip": tip}, state, control, noise=1e-4)
    residuals = sensed.residuals(machine, list(truth), {"tip": tip}, windows, positions=False, velocities=False)
    found = solved(residuals)
    assert found == pytest.approx(truth, rel=0.01)
    every = sensed.residuals(
        machine, list(truth), {"tip": tip}, sensed.without(windows, 5), positions=False, velocities=False
    )
    assert every.measured.count == residuals.measured.count // 5
    assert solved(every) == pytest.approx(truth, rel=0.02)


def test_an_odometry_finds_an_inertia():
    machine, (state, control) = machines.hopper(), flights()
    odometry = {"odom": Sensor(kind="odometry", link="base", noise=0.01)}
    truth = {"base.inertia.xx": 0.026, "knee.mass": 0.6}
    windows = sensed.log(machine, truth, odometry, state, control, controls=("knee",))
    residuals = sensed.residuals(
        machine, list(truth), odometry, windows, controls=("knee",), positions=False, velocities=False
    )
    assert solved(residuals) == pytest.approx(truth, rel=0.01)


def test_contact_forces_find_friction():
    """A ball that slides over a plane: the force of the ground on it, not its motion, is compared."""
    machine = machines.sphere()
    q = torch.tensor([[0.0, 0.0, 0.0995, 0.0, 0.0, 0.0, 1.0]] * 3, dtype=F64)
    qd = torch.zeros(3, 6, dtype=F64)
    qd[:, :2] = torch.tensor([[4.0, 0.0], [-2.0, 3.2], [1.2, -4.8]], dtype=F64)
    plate = {"plate": Sensor(kind="contact_force", axes="world", noise=0.5)}
    truth = {"contact.friction": 0.45}
    windows = sensed.log(machine, truth, plate, sensed.State(q, qd), torch.zeros(3, 15, 0, dtype=F64), contact="force")
    forces = windows.readings[:, 5:-1]
    assert forces[..., 2].mean() > 4.0
    assert forces[..., :2].norm(dim=-1).mean() > 1.0, "the test needs something that slides"
    residuals = sensed.residuals(
        machine, list(truth), plate, windows, contact="force", positions=False, velocities=False, initial=False
    )
    assert solved(residuals) == pytest.approx(truth, rel=1e-3)


def test_torques_of_joints_find_a_rotor():
    """Of torque sensors behind the rotor, under known motor torques."""
    machine = machines.pendulum()
    sensor = {"torque": Sensor(kind="joint_torque", side="link", noise=0.01)}
    truth = {"shoulder.armature": 0.03, "shoulder.damping": 0.12}
    q = torch.tensor([[0.5, 0.2], [-0.8, 0.4]], dtype=F64)
    time = 0.01 * torch.arange(40, dtype=F64)
    control = torch.stack([torch.sin(7 * time), 0.3 * torch.cos(5 * time)], -1).expand(2, 40, 2)
    given = {"controls": ("shoulder", "elbow"), "joints": ("shoulder", "elbow")}
    windows = sensed.log(machine, truth, sensor, sensed.State(q, torch.zeros(2, 2, dtype=F64)), control, **given)
    residuals = sensed.residuals(machine, list(truth), sensor, windows, **given, positions=False, velocities=False)
    assert solved(residuals) == pytest.approx(truth, rel=0.01)


def test_torques_of_late_motors_find_lag_and_gain():
    """Of motors whose torque at the start of a frame depends on the commands before."""
    drives = {name: Drive(kind="torque", lag=0.03, longest_delay=0.02) for name in ("shoulder", "elbow")}
    machine = msgspec.structs.replace(machines.pendulum(), drives=drives)
    sensor = {"torque": Sensor(kind="joint_torque", noise=0.01)}
    truth = {"actuator.shoulder.lag": 0.045, "actuator.elbow.gain": 0.8}
    q = torch.tensor([[0.5, 0.2], [-0.8, 0.4]], dtype=F64)
    time = 0.01 * torch.arange(20, dtype=F64)
    control = torch.stack([torch.sin(7 * time), 0.3 * torch.cos(5 * time)], -1).expand(2, 20, 2)
    given = {"controls": ("shoulder", "elbow"), "joints": ("shoulder", "elbow")}
    windows = sensed.log(machine, truth, sensor, sensed.State(q, torch.zeros(2, 2, dtype=F64)), control, **given)
    residuals = sensed.residuals(machine, list(truth), sensor, windows, **given, positions=False, velocities=False)
    point = residuals.start(residuals.space.nominal[None])
    _, gradient = residuals.gradients(point)
    normal = residuals.normal(point)
    torch.testing.assert_close(normal.gradient[0, :, :2].sum(0), gradient.x[0], rtol=1e-5, atol=1e-3)
    own = residuals.dynamics  # a model with shorter steps remembers more of them
    config = msgspec.structs.replace(own.config, substeps=2 * own.config.substeps)
    finer = HybridDynamics(own.spec, machine, config, own.physical.specs)
    torch.testing.assert_close(
        residuals.with_dynamics(finer).errors(point), residuals.errors(point), rtol=0.0, atol=0.03
    )
    assert solved(residuals) == pytest.approx(truth, rel=1e-3)


def test_gradients_of_residuals_against_differences():
    """The adjoint's gradient of every kind of sensor, by quantities of machine and sensor, in float64."""
    machine, (state, control) = machines.hopper(), flights(worlds=2, frames=8)
    kinds = ("pose", "imu", "odometry", "wrench", "joint_torque")
    sensors = {f"a {k}": Sensor(kind=k, link="knee", position=(0.1, 0.0, 0.2), quaternion=TURN) for k in kinds}
    sensors["a joint_torque"] = Sensor(kind="joint_torque", side="link")
    given = {"controls": ("knee",), "joints": ("knee",)}
    windows = sensed.log(machine, {}, sensors, state, control, noise=0.01, **given)
    free = ("knee.mass", "base.com.y", "a imu.delay=0.004:0:0.02", "a imu.position.x", "a pose.turn.y",
            "a pose.delay=0.012:0:0.03", "a wrench.bias.torque.z", "a pose.bias.quaternion.rx")  # fmt: skip
    residuals = sensed.residuals(machine, free, sensors, windows, **given, huber=None)
    x = residuals.space.nominal[None] * 1.02 + 0.01
    point = residuals.start(x)
    _, gradient = residuals.gradients(point)
    steps = 1e-6 * torch.eye(x.shape[1], dtype=F64)
    for k, step in enumerate(steps):
        ahead, behind = (residuals.cost(residuals.start(x + s * step)) for s in (1, -1))
        assert float(gradient.x[0, k]) == pytest.approx(float(ahead - behind) / 2e-6, rel=2e-4, abs=1e-3)
    normal = residuals.normal(point)
    torch.testing.assert_close(normal.gradient[0, :, : x.shape[1]].sum(0), gradient.x[0], rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize(("delay", "compared"), [(-0.023, range(7)), (0.0, range(10)), (0.013, range(2, 10))])
def test_shorter_roll_outs_leave_out_readings_that_they_do_not_predict(delay: float, compared: range):
    """Of clocks that are off either way; the machine is known, so that errors are those of what is compared."""
    machine, (state, control) = machines.hopper(), flights(worlds=2, frames=20)
    sensors = {"odom": Sensor(kind="odometry", link="base", delay=delay)}
    windows = sensed.log(machine, {}, sensors, state, control, controls=("knee",), delay=delay)
    short = sensed.residuals(machine, (), sensors, windows, controls=("knee",)).within(10)
    assert torch.nonzero(short.measured.compared[0, :, 0])[:, 0].tolist() == list(compared)
    errors = short.errors(short.start(short.space.nominal[None]))[0, :, :, 2 * 7 :]
    assert errors.abs().max() < 0.01


def test_interpolation_is_exact_for_parabolas_and_smooth_in_the_delay():
    time = torch.arange(12, dtype=F64)
    values = torch.stack([0.3 * time**2 - time, 2.0 * time + 1.0], -1)[None]
    late = interpolate(values, torch.tensor([1.3]))
    inside = time[3:-1] - 1.3
    torch.testing.assert_close(late[0, 3:-1, 0], 0.3 * inside**2 - inside)
    torch.testing.assert_close(late[0, 3:-1, 1], 2.0 * inside + 1.0)
    assert torch.equal(interpolate(values, torch.tensor(0.0)), values)
    wavy = torch.sin(time)[None, :, None]
    assert torch.autograd.gradcheck(
        lambda d: interpolate(wavy, d)[:, 4:8], torch.tensor([1.0], dtype=F64, requires_grad=True), eps=1e-6, atol=1e-5
    )


@pytest.mark.parametrize("angle", [1e-9, 0.3, 3.0, math.pi])
def test_rotations_of_any_angle_are_errors_of_that_size(angle):
    axis = torch.tensor([0.6, 0.0, 0.8], dtype=F64)
    quaternion = rotation.exponential((angle * axis)[None])
    logged = torch.tensor([[0.0, 0.0, 0.0, -1.0]], dtype=F64)
    error = rotation_error(rotation.matrix(quaternion).flatten(-2), logged)
    assert float(error.norm()) == pytest.approx(angle, rel=1e-6)
    assert float((error[0] @ axis).abs()) == pytest.approx(angle, rel=1e-6)


def test_what_is_wrong_is_said():
    machine, (state, control) = machines.hopper(), flights(worlds=2, frames=8)
    windows = sensed.log(machine, {}, {"imu": IMU}, state, control, controls=("knee",))
    model, streams = sensed.model(machine, (), ("knee",)), sensed.streams({"imu": IMU})

    def refused(message, sensors, streams=streams, windows=windows, **free):
        with pytest.raises(InputError, match=message):
            ComparedReadings.of(model, sensors, streams, windows, **free)

    refused("the data hold no stream 'tip'; valid: imu", {"tip": Sensor(kind="pose")})
    refused("is of kind 'gyroscope', but the data hold a 'imu'", {"imu": Sensor(kind="gyroscope")})
    refused("a delay of 0.2 s is longer than windows of 0.08 s", {"imu": Sensor(kind="imu", delay=0.2)})
    refused("there is no link 'wrist'; valid: base, knee", {"imu": Sensor(kind="imu", link="wrist")})
    refused("noise has 4 numbers; valid: one for each", {"imu": Sensor(kind="imu", noise=(1.0,) * 4)})
    refused("hold no reading of it", {"imu": IMU}, windows=sensed.without(windows, 1000).rows(torch.tensor([0])).cut(1))
    for wrong in ({"noise": 0.0}, {"noise": (1.0, -1.0)}, {"quaternion": (1.0, 1.0, 0.0, 0.0)}, {"delay": math.inf}):
        with pytest.raises(ValueError, match="valid"):
            Sensor(kind="imu", **wrong)
    with pytest.raises(InputError, match="unknown kind of sensor 'lidar'; valid: accelerometer"):
        Sensor(kind="lidar")
    with pytest.raises(ValueError, match="needs joints"):
        Stream(name="torque", kind="joint_torque")
