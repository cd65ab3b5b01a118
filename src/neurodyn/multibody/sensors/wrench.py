# SPDX-License-Identifier: Apache-2.0
"""The wrench that a link receives through its joint: force [N], and torque about the sensor's origin [N m].

A force-torque sensor in the joint of a link reads what the robot before it does to the link and all behind it: at rest
their weight, upwards.
"""

from typing import Any

from neurodyn.multibody.instant import Instant
from neurodyn.multibody.sensors.frame import SensorFrame
from neurodyn.multibody.vectors import cross


def observe(instant: Instant, at: SensorFrame) -> list[Any]:
    """Return force and torque on the link."""
    moment, force = instant.transmitted[at.link]
    return [*at.along_axes(force), *at.along_axes(moment - cross(at.arm, force))]
