# SPDX-License-Identifier: Apache-2.0
"""The orientation of a sensor's axes in the world."""

from typing import Any

from neurodyn.multibody.instant import Instant
from neurodyn.multibody.sensors.frame import SensorFrame


def observe(instant: Instant, at: SensorFrame) -> list[Any]:
    """Return the rotation matrix from the sensor's axes to the world's, row by row."""
    return [*(instant.poses[at.link].turn @ at.turn).flatten()]
