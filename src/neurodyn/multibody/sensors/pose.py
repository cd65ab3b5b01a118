# SPDX-License-Identifier: Apache-2.0
"""A pose, of an end effector or a tracked body: position, then orientation."""

from typing import Any

from neurodyn.multibody.instant import Instant
from neurodyn.multibody.sensors import orientation, position
from neurodyn.multibody.sensors.frame import SensorFrame


def observe(instant: Instant, at: SensorFrame) -> list[Any]:
    """Return position and rotation matrix in the world."""
    return [*position.observe(instant, at), *orientation.observe(instant, at)]
