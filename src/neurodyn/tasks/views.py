# SPDX-License-Identifier: Apache-2.0
"""What policies see of a task: the state, or what a robot's own sensors tell (`tasks.sensing`)."""

from typing import Literal

View = Literal["state", "sensors"]
STATE, SENSORS = "state", "sensors"
"""Whether policies see the state, or what a robot's own sensors tell."""
VIEWS: tuple[View, ...] = (STATE, SENSORS)
