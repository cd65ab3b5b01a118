# SPDX-License-Identifier: Apache-2.0
"""What sensors read, as traced functions of a step: one kind a file."""

from collections.abc import Callable
from typing import Any

from neurodyn.core.registry import Registry
from neurodyn.multibody.instant import Instant
from neurodyn.multibody.sensors.frame import SensorFrame

Observer = Callable[[Instant, SensorFrame], list[Any]]
"""From a step and a sensor's place to its reading; a rotation is the nine entries of its matrix, row by row."""

OBSERVERS: Registry[Observer] = Registry(
    "kind of sensor",
    position="neurodyn.multibody.sensors.position:observe",
    orientation="neurodyn.multibody.sensors.orientation:observe",
    pose="neurodyn.multibody.sensors.pose:observe",
    gyroscope="neurodyn.multibody.sensors.gyroscope:observe",
    accelerometer="neurodyn.multibody.sensors.accelerometer:observe",
    imu="neurodyn.multibody.sensors.imu:observe",
    odometry="neurodyn.multibody.sensors.odometry:observe",
    contact_force="neurodyn.multibody.sensors.contact_force:observe",
    wrench="neurodyn.multibody.sensors.wrench:observe",
    joint_torque="neurodyn.multibody.sensors.joint_torque:observe",
)
"""What each kind of sensor reads; the layout of readings is in `core.description.sensors.SENSOR_KINDS`."""

__all__ = ["OBSERVERS", "Observer", "SensorFrame"]
