# SPDX-License-Identifier: Apache-2.0
"""Tangents of a contact where MuJoCo puts them: a pyramid of friction is not the same in all directions."""

from neurodyn.multibody.trace import safe_sqrt, select_less
from neurodyn.multibody.vectors import Vector, array, dot

_ALIGNED = 0.5
"""Least length of a capsule's unit axis along the ground, for which MuJoCo turns the tangents to it."""


def tangent(normal: Vector, axis: Vector | None = None) -> Vector:
    """Return the first tangent of a contact, as MuJoCo Warp has it.

    MuJoCo's C library has another one of capsules that stand on a plane.

    Args:
        normal: Unit normal.
        axis: Unit axis of a capsule on a plane; None for other contacts.
    """
    y = normal[1]
    across = array([-(normal[0] * y), 1.0 - y * y, -(normal[2] * y)])
    along = array([-(normal[0] * normal[2]), -(y * normal[2]), 1.0 - normal[2] * normal[2]])
    steep = select_less(y, 0.5, select_less(-0.5, y, 0.0, 1.0), 1.0)  # 1 where the y axis is too near to the normal
    chosen = array([a + steep * (b - a) for a, b in zip(across, along, strict=True)])
    if axis is None:
        return _unit(chosen)
    flat = axis - dot(normal, axis) * array(normal)
    # Here it takes the y or z axis as it is, not its part along the plane.
    fallback = [steep * 0.0, 1.0 - steep, steep]
    size = safe_sqrt(dot(flat, flat))
    return array([select_less(size, _ALIGNED, b, a / size) for a, b in zip(flat, fallback, strict=True)])


def _unit(a: Vector) -> Vector:
    inverse = 1.0 / safe_sqrt(dot(a, a))
    return array([inverse * x for x in a])
