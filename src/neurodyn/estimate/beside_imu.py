# SPDX-License-Identifier: Apache-2.0
r"""What else a robot may sense of its base, beside IMU and encoders: odometry, the heading, feet that touch.

One function a kind of sensor returns residuals in units of their noise, with derivatives by the errors of
`estimate.track`. With the rotation R of the base, the velocity v of the IMU, the angular velocity $\omega$ in axes of
the base, and a sensor at p from the IMU with axes S,

$$v_s = S^T (R^T v + \omega \times p), \qquad
\partial v_s = S^T (R^T [v]_\times \theta + R^T \delta v + [p]_\times B\,\delta b_\omega),$$

and the heading of a field $m$ in world axes moves by $\theta_z - m_z (m_x \theta_x + m_y \theta_y) / (m_x^2 + m_y^2)$.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from neurodyn.core.description.sensors import Sensor
from neurodyn.core.registry import Registry
from neurodyn.dynamics.coordinates import wrap_angle
from neurodyn.estimate.settings import EstimationSettings, ImuMounting, SensorBeside
from neurodyn.estimate.standing import LegPoints, points_on_ground
from neurodyn.estimate.track import GYROSCOPE, SIZE, TURN, VELOCITY, BaseTrack, skew
from neurodyn.geometry import rotation

Residual = tuple[Tensor, Tensor]
"""Residuals in units of their noise [runs, frames, k], zero where nothing was read, and derivatives, [..., k, SIZE]."""


@dataclass(frozen=True)
class BaseMoment:
    """States of the base, and what readings of them depend on.

    Attributes:
        track: States of the base.
        read: Readings of the gyroscope, shape [runs, frames, 3].
        spin: Angular velocities in world axes [rad/s], of the same shape.
        legs: Contact points in the base's frame.
        mounting: Place of the IMU.
        settings: The settings.
    """

    track: BaseTrack
    read: Tensor
    spin: Tensor
    legs: LegPoints
    mounting: ImuMounting
    settings: EstimationSettings


Measurement = Callable[[BaseMoment, Tensor, SensorBeside], list[Residual]]
"""From the base and a sensor's readings [runs, frames, numbers], NaN for none, to residuals."""

MEASUREMENTS: Registry[Measurement] = Registry("sensor beside the IMU")
"""What tells of the base beside its IMU, by kind of sensor."""


def residuals_beside(
    moment: BaseMoment, readings: Mapping[str, Tensor], sensors: Mapping[str, SensorBeside]
) -> list[Residual]:
    """Return the residuals of all sensors beside the IMU."""
    found: list[Residual] = []
    for name, one in sensors.items():
        if name in readings:
            found += MEASUREMENTS[one.stream.kind](moment, readings[name], one)
    return found


def _known(residual: Tensor, jacobian: Tensor, known: Tensor) -> Residual:
    """Return residuals and derivatives where readings are known, shape [runs, frames]; zeros elsewhere."""
    here = known[..., None]
    return torch.where(here, residual, 0.0), torch.where(here[..., None], jacobian, 0.0)


@MEASUREMENTS.register("odometry")
def odometry(moment: BaseMoment, readings: Tensor, one: SensorBeside) -> list[Residual]:
    """Return the residual of an odometry's linear velocity, in axes of the sensor [m/s]."""
    track, mounting = moment.track, moment.mounting
    place = torch.tensor(one.sensor.position, dtype=torch.float64) - mounting.position
    axes = rotation.matrix(torch.tensor(one.sensor.quaternion, dtype=torch.float64)).mT
    to_base = rotation.matrix(track.quaternion).mT
    spin = (moment.read - track.gyroscope) @ mounting.matrix.T
    velocity = (to_base @ track.velocity[..., None])[..., 0] + torch.linalg.cross(spin, place.expand(spin.shape))
    jacobian = torch.zeros(*velocity.shape, SIZE, dtype=torch.float64)
    jacobian[..., TURN] = axes @ to_base @ skew(track.velocity)
    jacobian[..., VELOCITY] = axes @ to_base
    jacobian[..., GYROSCOPE] = axes @ skew(place) @ mounting.matrix
    noise = _noise(one.sensor, moment.settings.odometry_noise)
    residual = velocity @ axes.T - readings[..., :3]
    return [_known(residual / noise, jacobian / noise, readings[..., :3].isfinite().all(-1))]


@MEASUREMENTS.register("magnetometer")
def magnetometer(moment: BaseMoment, readings: Tensor, one: SensorBeside) -> list[Residual]:
    """Return the residual of the heading by a magnetic field [rad].

    Where the field points to is unknown, as is the heading; only their change is not. So readings have a fourth number,
    the heading of the field at the start of the run.
    """
    axes = rotation.matrix(torch.tensor(one.sensor.quaternion, dtype=torch.float64))
    known = readings.isfinite().all(-1)
    field = (rotation.matrix(moment.track.quaternion) @ (axes @ readings[..., :3].nan_to_num()[..., None]))[..., 0]
    x, y, z = field.unbind(-1)
    flat = (x.square() + y.square()).clamp_min(1e-12)
    off = wrap_angle(torch.atan2(y, x) - readings[..., 3])
    jacobian = torch.zeros(*off.shape, 1, SIZE, dtype=torch.float64)
    jacobian[..., 0, 0], jacobian[..., 0, 1], jacobian[..., 0, 2] = -z * x / flat, -z * y / flat, 1.0
    noise = _noise(one.sensor, moment.settings.magnetometer_noise)
    return [_known(off[..., None] / noise, jacobian / noise, known)]


@MEASUREMENTS.register("foot_switch")
def touching_feet(moment: BaseMoment, readings: Tensor, one: SensorBeside) -> list[Residual]:
    """Return residuals of feet that touch: the lowest point of each is on the ground [m], nearly at rest [m/s].

    It touches from a reading of `SensorBeside.touching` on.
    """
    found: list[Residual] = []
    settings = moment.settings
    for column, joint in enumerate(one.stream.joints):
        chosen = moment.legs.of_joint(joint)
        on = readings[..., column].nan_to_num() > one.touching
        (height, slope), (speed, turned) = points_on_ground(
            moment.track, moment.legs, moment.spin, moment.mounting, chosen
        )
        found.append(_known(height / settings.standing_height, slope / settings.standing_height, on))
        found.append(_known(speed / settings.foot_speed, turned / settings.foot_speed, on))
    return found


MEASUREMENTS.add("foot_force", touching_feet)


def _noise(sensor: Sensor, default: float) -> float:
    return sensor.noises[0] if sensor.noises else default
