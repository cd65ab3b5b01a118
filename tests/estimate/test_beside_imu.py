# SPDX-License-Identifier: Apache-2.0
"""Sensors of a base beside its IMU: derivatives against differences, and what they add."""

from dataclasses import replace

import msgspec
import numpy as np
import pytest
import torch

from neurodyn.core.description.sensors import Sensor, Stream
from neurodyn.core.errors import InputError
from neurodyn.estimate import EstimationSettings, SensedRun, filter_base, sensed_runs, smooth_base
from neurodyn.estimate.beside_imu import MEASUREMENTS, BaseMoment
from neurodyn.estimate.inertial import spins
from neurodyn.estimate.settings import SensorBeside
from neurodyn.estimate.smoother import BaseProblem
from neurodyn.estimate.track import SIZE, BaseTrack
from neurodyn.geometry import rotation
from tests.estimate.test_smoother import differences
from tests.estimate.tripod import IMU, SETTINGS, hop, model, tracked_log

TURNED = (0.1830127, 0.1830127, 0.6830127, 0.6830127)
FEET = tuple(model().spec.joints[1 + leg].name for leg in range(3))
BESIDE = {
    "way": SensorBeside(
        stream=Stream(name="way", kind="odometry"),
        sensor=Sensor(kind="odometry", position=(0.1, -0.05, 0.02), quaternion=TURNED, noise=0.02),
    ),
    "compass": SensorBeside(
        stream=Stream(name="compass", kind="magnetometer"), sensor=Sensor(kind="magnetometer", quaternion=TURNED)
    ),
    "feet": SensorBeside(
        stream=Stream(name="feet", kind="foot_switch", joints=FEET), sensor=Sensor(kind="foot_switch")
    ),
}


def readings(run: SensedRun, truth: dict[str, torch.Tensor], noise: float = 0.01) -> dict[str, torch.Tensor]:
    """What the sensors of BESIDE read: a field to the north-east and down."""
    generator = torch.Generator().manual_seed(3)
    turn, place = torch.tensor(TURNED, dtype=torch.float64), torch.tensor(BESIDE["way"].sensor.position).double()
    centre = rotation.rotate(truth["quaternion"], model().base_com.double().expand(run.frames, 3))
    arm = rotation.rotate(truth["quaternion"], place.expand(run.frames, 3)) - centre
    velocity = truth["linear"] + torch.linalg.cross(truth["angular"], arm)
    axes = rotation.multiply(truth["quaternion"], turn.expand(run.frames, 4))
    down = torch.tensor([0.5, 0.5, -0.7], dtype=torch.float64).expand(run.frames, 3)
    read = {
        "way": rotation.rotate(rotation.conjugate(axes), velocity),
        "compass": rotation.rotate(rotation.conjugate(axes), down),
    }
    noisy = {name: x + noise * torch.randn(x.shape, generator=generator, dtype=x.dtype) for name, x in read.items()}
    north = torch.full((run.frames, 1), np.pi / 4, dtype=torch.float64)
    return {"way": noisy["way"], "compass": torch.cat([noisy["compass"], north], 1)}


@pytest.mark.parametrize("name", list(BESIDE))
def test_residuals_have_the_derivatives_of_differences(name: str):
    run, truth = hop(0.4)
    one = BESIDE[name]
    read = readings(run, truth).get(name, torch.ones(run.frames, 3, dtype=torch.float64))[None]
    problem = BaseProblem.of(model(), [run], SETTINGS)
    generator = torch.Generator().manual_seed(1)
    track = problem.first().moved(0.3 * torch.randn(1, run.frames, SIZE, generator=generator, dtype=torch.float64))
    spin = spins(track, problem.inertial.spin, problem.mounting)  # held, as in the derivatives

    def residual(moved: BaseTrack) -> torch.Tensor:
        moment = BaseMoment(moved, problem.inertial.spin, spin, problem.legs, problem.mounting, SETTINGS)
        return torch.cat([r for r, _ in MEASUREMENTS[one.stream.kind](moment, read, one)], -1)

    moment = BaseMoment(track, problem.inertial.spin, spin, problem.legs, problem.mounting, SETTINGS)
    jacobian = torch.cat([j for _, j in MEASUREMENTS[one.stream.kind](moment, read, one)], -2)
    numeric = differences(residual, track, slice(None))
    first = 3 if name == "feet" else 0  # the spin turns with the base in the formula of a foot's velocity
    torch.testing.assert_close(jacobian[..., first:], numeric[..., first:], atol=1e-4, rtol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("way", [smooth_base, filter_base])
def test_odometry_makes_velocities_better(way):
    run, truth = hop(1.0)
    read = {"way": readings(run, truth)["way"]}
    settings = msgspec.structs.replace(SETTINGS, beside={"way": BESIDE["way"]})
    alone, both = (
        (one[0].after(5).linear - truth["linear"][5:]).norm(dim=1).mean()
        for one in (way(model(), run, SETTINGS), way(model(), replace(run, beside=read), settings))
    )
    assert float(both) < 0.75 * float(alone)


def test_a_magnetometer_keeps_the_heading_where_an_attitude_drifts():
    run, truth = hop(2.0)
    assert run.attitude is not None
    angle = 0.3 * torch.arange(run.frames, dtype=torch.float64) / run.frames
    nothing = torch.zeros_like(angle)
    drift = rotation.exponential(torch.stack([nothing, nothing, angle], 1))
    run = replace(run, attitude=rotation.multiply(drift, run.attitude))
    settings = msgspec.structs.replace(SETTINGS, beside={"compass": BESIDE["compass"]}, gyroscope_noise=0.1)
    read = {"compass": readings(run, truth)["compass"]}

    def heading(settings, run):
        turned = smooth_base(model(), run, settings)[0].quaternion
        return float(rotation.logarithm(rotation.multiply(turned, rotation.conjugate(truth["quaternion"])))[-1, 2])

    plain = msgspec.structs.replace(settings, beside={})
    assert abs(heading(settings, replace(run, beside=read))) < 0.5 * abs(heading(plain, run))


def test_logs_tell_of_feet_fields_and_delays():
    log = tracked_log(1)
    assert log.measured is not None
    late, rows = 2, len(log.measured)
    moved = np.concatenate([log.measured[:1].repeat(late, 0), log.measured[:-late]])
    extra = np.zeros((rows, 6), np.float32)
    extra[:, :3], extra[:, 3:] = (0.5, 0.5, -0.7), np.arange(rows)[:, None] % 2
    streams = (
        *log.header.streams, Stream(name="compass", kind="magnetometer"),
        Stream(name="feet", kind="foot_force", joints=FEET),
    )  # fmt: skip
    delayed = {name: msgspec.structs.replace(one, delay=late * log.header.spec.dt) for name, one in
               log.header.sensors.items()}  # fmt: skip
    header = msgspec.structs.replace(log.header, streams=streams, sensors=delayed)
    whole = replace(log, header=header, measured=np.concatenate([moved, extra], 1))
    (run,), settings = sensed_runs(whole, model(), EstimationSettings())
    (known,), _ = sensed_runs(log, model(), EstimationSettings())
    torch.testing.assert_close(run.angular_velocity[:-late], known.angular_velocity[:-late])
    assert run.beside["compass"].shape == (rows, 4)
    assert run.beside["feet"].shape == (rows, 3)
    assert settings.beside["feet"].touching == pytest.approx(0.1)
    assert settings.imu is not None
    assert settings.imu.position == IMU.position
    with pytest.raises(InputError, match=r"a foot of joint 'arm' has no contact point; valid: "):
        BaseProblem.of(model(), [run], settings).legs.of_joint("arm")
