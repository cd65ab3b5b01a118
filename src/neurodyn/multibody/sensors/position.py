# SPDX-License-Identifier: Apache-2.0
"""The position of a point of the robot, of a marker or an end effector: x, y, z in the world [m]."""

from typing import Any

from neurodyn.multibody.instant import Instant
from neurodyn.multibody.sensors.frame import SensorFrame


def observe(instant: Instant, at: SensorFrame) -> list[Any]:
    """Return the place of the sensor's origin in the world."""
    pose = instant.poses[at.link]
    return [*(pose.origin + pose.turn @ at.arm)]
