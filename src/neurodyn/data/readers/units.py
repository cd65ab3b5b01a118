# SPDX-License-Identifier: Apache-2.0
"""Units that logs are written in, and their size in SI units."""

import math

from neurodyn.core.errors import InputError
from neurodyn.core.spec import StateSpec

_TURN = 2.0 * math.pi
_UNITS: dict[str, dict[str, float]] = {
    "s": {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9, "min": 60.0},
    "rad": {"rad": 1.0, "mrad": 1e-3, "deg": _TURN / 360, "rev": _TURN},
    "m": {"m": 1.0, "cm": 1e-2, "mm": 1e-3, "um": 1e-6, "in": 0.0254},
    "rad/s": {"rad/s": 1.0, "mrad/s": 1e-3, "deg/s": _TURN / 360, "rev/s": _TURN, "rpm": _TURN / 60},
    "m/s": {"m/s": 1.0, "cm/s": 1e-2, "mm/s": 1e-3},
    "N m": {"N m": 1.0, "Nm": 1.0, "mN m": 1e-3, "mNm": 1e-3, "N cm": 1e-2, "N mm": 1e-3, "kgf cm": 0.0980665},
    "N": {"N": 1.0, "mN": 1e-3, "kN": 1e3, "kgf": 9.80665},
    "1": {"1": 1.0, "%": 1e-2},
}
_VELOCITY = {
    "revolute": ("rad/s",),
    "prismatic": ("m/s",),
    "ball": ("rad/s",) * 3,
    "free": ("m/s",) * 3 + ("rad/s",) * 3,
}
_EFFORT = {"revolute": "N m", "prismatic": "N"}


def factor(unit: str, quantity: str, where: str) -> float:
    """Return the size of `unit` in the SI unit `quantity`.

    Args:
        unit: Unit as written in a column map; empty for the SI unit.
        quantity: SI unit of what is measured: "s", "rad", "m", "rad/s", "m/s", "N m", "N" or "1".
        where: What has the unit, for the error message.

    Raises:
        InputError: The unit is unknown or measures something else.
    """
    known = _UNITS[quantity]
    if unit and unit not in known:
        raise InputError(f"{where}: unknown unit {unit!r}; valid for this quantity: {', '.join(known)}")
    return known[unit or quantity]


def position_units(spec: StateSpec) -> dict[str, str]:
    """Return the SI unit of each position coordinate."""
    return dict(zip(spec.q_names, spec.q_units, strict=True))


def velocity_units(spec: StateSpec) -> dict[str, str]:
    """Return the SI unit of each velocity coordinate."""
    return {name: u for joint in spec.joints for name, u in zip(joint.qd_names, _VELOCITY[joint.kind], strict=True)}


def control_units(spec: StateSpec) -> dict[str, str]:
    """Return the SI unit of each control: of a torque or force, or of a position where controls are targets."""
    if spec.control_kind == "target":
        positions = position_units(spec)
        return {name: positions[name] for name in spec.controls}
    kinds = {joint.name: joint.kind for joint in spec.joints}
    return {name: _EFFORT.get(kinds.get(name, ""), "N m") for name in spec.controls}
