# SPDX-License-Identifier: Apache-2.0
"""Compliance of soft constraints from solref and solimp, and MuJoCo's friction tangents."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from neurodyn.core.description.contacts import SOLIMP, SOLREF
from neurodyn.multibody.trace import exp, log, maximum, minimum, safe_sqrt, select_less
from neurodyn.multibody.trace.expression import TINY
from neurodyn.multibody.vectors import Vector, array, dot, normalised

_LEAST, _MOST = 1e-4, 0.9999
"""MuJoCo clamps impedances and midpoints to this range."""


@dataclass(frozen=True)
class Yielding:
    """Compliance of a kind of constraint; numbers, or traced values for parameters."""

    damping: Any  # b [1/s]
    stiffness: Any  # k [1/s^2]
    impedance: Callable[[Any], Any]  # d as a function of |r|

    def weight(self, violation: Any, inverse_weight: Any) -> Any:
        """Return 1 / R of a row with this violation, from its A."""
        share = self.impedance(violation)
        return share / ((1.0 - share) * inverse_weight)

    def reference(self, violation: Any) -> Any:
        """Return k d r of a row with this violation, r = -violation."""
        return -(self.stiffness * self.impedance(violation) * violation)


def yielding(quantity: Callable[[str], Any], solref: str, solimp: str, dt: Any) -> Yielding:
    """Return the compliance of a kind of constraint, with time constants above two steps of `dt` [s], as in MuJoCo.

    `solref` and `solimp` are prefixes of quantities; see `core.description.contacts.constraint_quantities`.
    """
    time, ratio = (quantity(f"{solref}.{part}") for part in SOLREF)
    first, last, width, midpoint, power = (quantity(f"{solimp}.{part}") for part in SOLIMP)
    first, last, midpoint = (minimum(maximum(x, _LEAST), _MOST) for x in (first, last, midpoint))
    width, power = maximum(width, TINY), maximum(power, 1.0)
    safe = last * maximum(time, 2.0 * dt)
    by_ratio = safe * maximum(ratio, TINY)
    stiffness = select_less(0.0, time, 1.0 / (by_ratio * by_ratio), -time / (last * last))
    damping = select_less(0.0, ratio, 2.0 / safe, -ratio / last)

    def impedance(violation: Any) -> Any:
        x = minimum(maximum(violation, 0.0) / width, 1.0)
        rising = _power(x, power) / _power(midpoint, power - 1.0)
        falling = 1.0 - _power(1.0 - x, power) / _power(1.0 - midpoint, power - 1.0)
        return first + (last - first) * select_less(midpoint, x, falling, rising)

    return Yielding(damping, stiffness, impedance)


def _power(x: Any, exponent: Any) -> Any:
    """Return x to a power, both at least 0."""
    if isinstance(exponent, float) and exponent.is_integer():
        return x ** int(exponent) if exponent else 1.0
    return exp(exponent * log(x))


_ALIGNED = 0.5
"""Least length of a capsule's unit axis projected to the ground for which MuJoCo aligns the tangents with it."""


def tangent(normal: Vector, axis: Vector | None = None, *, always: bool = False) -> Vector:
    """Return the first tangent of a contact with a unit normal, as MuJoCo Warp defines it.

    `axis` is the unit axis of a capsule on a plane; with `always`, the tangent follows it even where it is nearly
    along the normal, as in MuJoCo's C library.
    """
    y = normal[1]
    across = array([-(normal[0] * y), 1.0 - y * y, -(normal[2] * y)])
    along = array([-(normal[0] * normal[2]), -(y * normal[2]), 1.0 - normal[2] * normal[2]])
    steep = select_less(y, 0.5, select_less(-0.5, y, 0.0, 1.0), 1.0)  # 1 if the y axis is too close to the normal
    chosen = array([a + steep * (b - a) for a, b in zip(across, along, strict=True)])
    if axis is None:
        return normalised(chosen)
    flat = axis - dot(normal, axis) * array(normal)
    if always:
        return normalised(flat)
    # MuJoCo uses the y or z axis itself here, not its projection to the plane.
    fallback = [steep * 0.0, 1.0 - steep, steep]
    size = safe_sqrt(dot(flat, flat))
    return array([select_less(size, _ALIGNED, b, a / size) for a, b in zip(flat, fallback, strict=True)])
