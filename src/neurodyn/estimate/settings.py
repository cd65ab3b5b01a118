# SPDX-License-Identifier: Apache-2.0
"""Settings of the estimation of a floating base."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import msgspec
import torch
from torch import Tensor

from neurodyn.core.config import Config, require_numbers
from neurodyn.core.description.sensors import Sensor, Stream
from neurodyn.geometry import rotation
from neurodyn.geometry.rotation import quaternion_matrix


class SensorBeside(Config, frozen=True):
    """A sensor of the base beside its IMU (`estimate.beside_imu`).

    Attributes:
        stream: Kind and joints of its readings.
        sensor: Where it sits on the base, and its noise.
        touching: Reading of a foot beyond which it is in contact.
    """

    stream: Stream
    sensor: Sensor
    touching: float = 0.5


class EstimationSettings(Config, frozen=True):
    """Settings of `smooth_base` and of the causal filter. Standard deviations are those of independent errors.

    Attributes:
        imu: Where the IMU sits on the base, and its noise; None for the robot's sensor of kind imu, else at the base's
            origin and along its axes.
        specific_force: What a reading of the accelerometer is: the value at an "instant", or the mean over the frame
            "before" or "after" its row. A store's stream says so itself.
        gyroscope_noise: Of a reading [rad/s].
        accelerometer_noise: Of the mean over a frame [m/s^2].
        gyroscope_bias: Of the bias at the start [rad/s].
        accelerometer_bias: The same [m/s^2].
        gyroscope_drift: Random walk of the bias [rad/s per root second].
        accelerometer_drift: The same [m/s^2 per root second].
        attitude_noise: Of the roll and pitch of the IMU's own attitude [rad].
        heading_noise: Of its heading [rad].
        rate_noise: Of joint velocities [rad/s].
        ground_noise: Random walk of the ground's height under the base, on steps and slopes [m per root second].
        standing_height: How far a loaded foot is above or in the ground [m].
        standing_speed: How fast it slips [m/s].
        model_noise: Errors of a model's frame in free flight, for the causal filter: velocity of the base [m/s],
            angular velocity [rad/s], joint velocities [rad/s]. The smoother finds them.
        foot_speed: How fast a foot slips whose force or switch says that it touches [m/s].
        odometry_noise: Of an odometry's linear velocity [m/s], if its sensor declares none.
        magnetometer_noise: Of the heading by a magnetometer [rad], if its sensor declares none.
        beside: Sensors of the base beside its IMU, by the names of their streams.
        rounds: Gauss-Newton steps with the model; 0 for a smoother without.
        imu_place_noise: How far the IMU may sit from where it is said to [m], along each axis; 0 for exactly there.
        imu_turn_noise: How far it may be turned [rad]; 0 for as said. The smoother finds both; the filter takes them.
    """

    imu: Sensor | None = None
    specific_force: Literal["instant", "before", "after"] = "instant"
    gyroscope_noise: float = 0.02
    accelerometer_noise: float = 0.2
    gyroscope_bias: float = 0.02
    accelerometer_bias: float = 0.2
    gyroscope_drift: float = 1e-3
    accelerometer_drift: float = 5e-3
    attitude_noise: float = 0.02
    heading_noise: float = 0.2
    rate_noise: float = 0.05
    ground_noise: float = 0.003
    standing_height: float = 0.035
    standing_speed: float = 1.0
    model_noise: tuple[float, float, float] = (0.02, 0.05, 0.1)
    foot_speed: float = 0.3
    odometry_noise: float = 0.1
    magnetometer_noise: float = 0.05
    beside: dict[str, SensorBeside] = msgspec.field(default_factory=dict)
    rounds: int = 12
    imu_place_noise: float = 0.0
    imu_turn_noise: float = 0.0

    def __post_init__(self) -> None:
        require_numbers(self)

    @property
    def mounting_free(self) -> bool:
        """Whether the place and the turn of the IMU are found."""
        return self.imu_place_noise > 0.0 and self.imu_turn_noise > 0.0

    @classmethod
    def on_board(cls, sensors: Mapping[str, Sensor]) -> "EstimationSettings":
        """Return the settings for a robot's own readings, each of the frame before, by its declared sensors."""
        imu = next((sensor for sensor in sensors.values() if sensor.kind == "imu"), None)
        return cls(imu=imu, specific_force="before")


@dataclass(frozen=True)
class ImuMounting:
    """Place of an IMU on the base.

    Attributes:
        position: In the base's frame [m], shape [3].
        matrix: Rotation from the axes of the IMU to those of the base, shape [3, 3].
    """

    position: Tensor
    matrix: Tensor

    @classmethod
    def of(cls, sensor: Sensor | None) -> "ImuMounting":
        """Return the place of a sensor; without one, the base's origin and axes."""
        sensor = Sensor(kind="imu") if sensor is None else sensor
        return cls(
            torch.tensor(sensor.position, dtype=torch.float64),
            torch.tensor(quaternion_matrix(sensor.quaternion), dtype=torch.float64),
        )

    def moved(self, change: Tensor) -> "ImuMounting":
        """Return the place moved [m] and turned [rad], both along axes of the base, by a vector of six numbers."""
        turn = rotation.matrix(rotation.exponential(change[3:]))
        return ImuMounting(self.position + change[:3], turn @ self.matrix)
