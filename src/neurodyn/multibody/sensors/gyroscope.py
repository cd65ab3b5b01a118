# SPDX-License-Identifier: Apache-2.0
"""The angular velocity that a gyroscope reads [rad/s], along its own axes."""

from typing import Any

from neurodyn.multibody.instant import Instant
from neurodyn.multibody.sensors.frame import SensorFrame


def observe(instant: Instant, at: SensorFrame) -> list[Any]:
    """Return the angular velocity of the link."""
    return at.along_axes(instant.motions[at.link].spin)
