# SPDX-License-Identifier: Apache-2.0
"""Torques of joints [N m or N]: of the motor, or what the link receives after friction and rotor inertia."""

from typing import Any

from neurodyn.core.errors import InputError, choices
from neurodyn.multibody.instant import Instant
from neurodyn.multibody.sensors.frame import SensorFrame
from neurodyn.multibody.vectors import dot


def observe(instant: Instant, at: SensorFrame) -> list[Any]:
    """Return the torque of each of the sensor's joints."""
    read = _motor if at.sensor.side == "motor" else _link
    return [read(instant, at, name) for name in at.joints]


def _motor(instant: Instant, at: SensorFrame, name: str) -> Any:
    driven = [known.removeprefix("actuator.") for known in instant.scope.computed if known.startswith("actuator.")]
    if name not in driven:
        raise InputError(f"sensor {at.name!r}: joint {name!r} has no motor; valid: {choices(driven)}, or side: link")
    return instant.scope(f"actuator.{name}")


def _link(instant: Instant, at: SensorFrame, name: str) -> Any:
    tree = instant.tree
    single = {link.joint.name: index for index, link in enumerate(tree.links) if link.joint.scalar}
    if name not in single:
        raise InputError(f"sensor {at.name!r}: there is no joint {name!r} with one axis; valid: {choices(single)}")
    moment, force = instant.transmitted[single[name]]
    turning = tree.links[single[name]].joint.kind == "revolute"
    return dot(tree.axis(single[name]), moment if turning else force)
