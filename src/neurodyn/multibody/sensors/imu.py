# SPDX-License-Identifier: Apache-2.0
"""An inertial measurement unit: angular velocity, then specific force."""

from typing import Any

from neurodyn.multibody.instant import Instant
from neurodyn.multibody.sensors import accelerometer, gyroscope
from neurodyn.multibody.sensors.frame import SensorFrame


def observe(instant: Instant, at: SensorFrame) -> list[Any]:
    """Return angular velocity [rad/s] and specific force [m/s^2]."""
    return [*gyroscope.observe(instant, at), *accelerometer.observe(instant, at)]
