# SPDX-License-Identifier: Apache-2.0
r"""The specific force that an accelerometer reads [m/s^2], along its own axes: at rest, gravity upwards.

With the spatial acceleration ($\dot w$, a) of the link less gravity, at the origin of its frame, an accelerometer at r
reads

$$f = a + w \times v + \dot w \times r + w \times (w \times r).$$
"""

from typing import Any

from neurodyn.multibody.instant import Instant
from neurodyn.multibody.sensors.frame import SensorFrame
from neurodyn.multibody.vectors import cross


def observe(instant: Instant, at: SensorFrame) -> list[Any]:
    """Return the acceleration of the sensor's origin less gravity."""
    motion, (spin, linear) = instant.motions[at.link], instant.accelerations[at.link]
    carried = cross(motion.spin, motion.velocity + cross(motion.spin, at.arm))
    return at.along_axes(linear + carried + cross(spin, at.arm))
