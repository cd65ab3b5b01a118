# SPDX-License-Identifier: Apache-2.0
"""What is estimated of a floating base."""

from collections.abc import Iterator
from dataclasses import dataclass, fields

import msgspec
import torch
from torch import Tensor

from neurodyn.core.description.sensors import Sensor
from neurodyn.estimate.robust import ModelScatter
from neurodyn.geometry import rotation

ERRORS = (
    *(f"turn.{x}" for x in "xyz"), *(f"linear.{x}" for x in "xyz"), "height", *(f"angular.{x}" for x in "xyz"),
    *(f"bias.angular_velocity.{x}" for x in "xyz"), *(f"bias.specific_force.{x}" for x in "xyz"),
)  # fmt: skip
"""Coordinates of the covariance of an estimate: a small rotation in world axes [rad], velocity of the centre of mass
[m/s], height [m], angular velocity [rad/s], and biases of the IMU [rad/s, m/s^2]."""


@dataclass(frozen=True)
class EstimatedRun:
    """States of a floating base along a run, in the convention of `StateSpec`.

    Heading and horizontal position are those of dead reckoning from (0, 0), because nothing measures them; the height
    is that above the ground under the base.

    Attributes:
        position: Of the base's origin [m], shape [frames, 3].
        quaternion: Rotation from the base to the world, scalar last, shape [frames, 4].
        linear: Velocity of the base's centre of mass in world axes [m/s], shape [frames, 3].
        angular: Angular velocity in world axes [rad/s], shape [frames, 3].
        covariance: Of the errors `ERRORS`, shape [frames, 16, 16].
        contacts: Whether a contact point of each shape touches the ground, shape [frames, shapes].
        angular_velocity_bias: Of the gyroscope, in its axes [rad/s], shape [frames, 3].
        specific_force_bias: Of the accelerometer, in its axes [m/s^2], shape [frames, 3].
    """

    position: Tensor
    quaternion: Tensor
    linear: Tensor
    angular: Tensor
    covariance: Tensor
    contacts: Tensor
    angular_velocity_bias: Tensor
    specific_force_bias: Tensor

    def after(self, frame: int) -> "EstimatedRun":
        """Return the states from a frame on."""
        return EstimatedRun(*(getattr(self, field.name)[frame:] for field in fields(self)))

    def deviation(self, name: str) -> Tensor:
        """Return the standard deviation of an error, shape [frames]."""
        index = ERRORS.index(name)
        return self.covariance[:, index, index].sqrt()


MOUNTING = tuple(f"{what}.{x}" for what in ("position", "turn") for x in "xyz")
"""Names of the numbers of a mounting: place of an IMU [m] and a rotation vector of its axes [rad], in the base's."""


@dataclass(frozen=True)
class MountingEstimate:
    """How an IMU is mounted other than its declaration says.

    Attributes:
        change: Numbers `MOUNTING`, shape [6].
        covariance: Of them, shape [6, 6].
    """

    change: Tensor
    covariance: Tensor

    def on(self, sensor: Sensor) -> Sensor:
        """Return a sensor that is mounted on the IMU, or is it, as it is."""
        turned = rotation.multiply(
            rotation.exponential(self.change[3:]), torch.tensor(sensor.quaternion, dtype=torch.float64)
        )
        x, y, z = (a + b for a, b in zip(sensor.position, self.change[:3].tolist(), strict=True))
        return msgspec.structs.replace(sensor, position=(x, y, z), quaternion=tuple(turned.tolist()))


@dataclass(frozen=True)
class BaseEstimate:
    """States of a floating base along the runs of a log.

    Attributes:
        runs: The runs.
        shapes: Names of the shapes in `EstimatedRun.contacts`.
        errors: Names of the coordinates of the covariances.
        scatter: How far the model was trusted; None if it was not used.
        mounting: How the IMU is mounted other than said; None if that was not asked.
    """

    runs: tuple[EstimatedRun, ...]
    shapes: tuple[str, ...]
    errors: tuple[str, ...] = ERRORS
    scatter: ModelScatter | None = None
    mounting: MountingEstimate | None = None

    def __getitem__(self, index: int) -> EstimatedRun:
        return self.runs[index]

    def __len__(self) -> int:
        return len(self.runs)

    def __iter__(self) -> Iterator[EstimatedRun]:
        return iter(self.runs)
