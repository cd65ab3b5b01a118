# SPDX-License-Identifier: Apache-2.0
"""The twist of an odometry: velocity of the sensor's origin [m/s] and angular velocity [rad/s], in the child frame.

As in nav_msgs/Odometry: both along the axes of the moving frame, and the velocity that of its origin, not of the centre
of mass.
"""

from typing import Any

from neurodyn.multibody.instant import Instant
from neurodyn.multibody.sensors.frame import SensorFrame


def observe(instant: Instant, at: SensorFrame) -> list[Any]:
    """Return linear and angular velocity."""
    return [*at.along_axes(at.velocity), *at.along_axes(instant.motions[at.link].spin)]
