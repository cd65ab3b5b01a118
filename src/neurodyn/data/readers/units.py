# SPDX-License-Identifier: Apache-2.0
"""Units that logs are written in, and their size in SI units."""

import math

from neurodyn.core.description.spec import StateSpec
from neurodyn.core.errors import InputError

_TURN = 2.0 * math.pi
_UNITS: dict[str, dict[str, float]] = {
    "s": {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9, "min": 60.0},
    "rad": {"rad": 1.0, "mrad": 1e-3, "deg": _TURN / 360, "rev": _TURN},
    "m": {"m": 1.0, "cm": 1e-2, "mm": 1e-3, "um": 1e-6, "in": 0.0254},
    "rad/s": {"rad/s": 1.0, "mrad/s": 1e-3, "deg/s": _TURN / 360, "rev/s": _TURN, "rpm": _TURN / 60},
    "m/s": {"m/s": 1.0, "cm/s": 1e-2, "mm/s": 1e-3},
    "m/s^2": {"m/s^2": 1.0, "g": 9.80665, "mg": 9.80665e-3},
    "N m": {"N m": 1.0, "Nm": 1.0, "mN m": 1e-3, "mNm": 1e-3, "N cm": 1e-2, "N mm": 1e-3, "kgf cm": 0.0980665},
    "N": {"N": 1.0, "mN": 1e-3, "kN": 1e3, "kgf": 9.80665},
    "1": {"1": 1.0, "%": 1e-2},
}


def factor(unit: str, quantity: str, where: str) -> float:
    """Return the size of `unit` in the SI unit `quantity`.

    Args:
        unit: Unit as written in a column map; empty for the SI unit.
        quantity: SI unit of what is measured: "s", "rad", "m", "rad/s", "m/s", "m/s^2", "N m", "N" or "1".
        where: What has the unit, for the error message.

    Raises:
        InputError: The unit is unknown or measures something else.
    """
    known = _UNITS[quantity]
    if unit and unit not in known:
        raise InputError(f"{where}: unknown unit {unit!r}; valid for this quantity: {', '.join(known)}")
    return known[unit or quantity]


def state_units(spec: StateSpec) -> dict[str, dict[str, str]]:
    """Return the SI unit of each coordinate of "q", "qd" and "control" by its name."""
    return {
        "q": dict(zip(spec.q_names, spec.q_units, strict=True)),
        "qd": dict(zip(spec.qd_names, spec.qd_units, strict=True)),
        "control": dict(zip(spec.controls, spec.control_units, strict=True)),
    }
