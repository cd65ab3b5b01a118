# SPDX-License-Identifier: Apache-2.0
"""The force of all contacts on a link [N]: what a force plate feels, with the other sign, or a sensor in a foot.

Where contacts are impulses it is their mean over a step of the engine.
"""

from typing import Any

from neurodyn.multibody.instant import Instant
from neurodyn.multibody.sensors.frame import SensorFrame
from neurodyn.multibody.vectors import ZERO


def observe(instant: Instant, at: SensorFrame) -> list[Any]:
    """Return the force on the link."""
    return at.along_axes(instant.pushes.get(at.link, (ZERO, ZERO))[1])
