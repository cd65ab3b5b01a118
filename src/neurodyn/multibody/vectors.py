# SPDX-License-Identifier: Apache-2.0
"""Vectors and 3 x 3 matrices of floats or traced values; zeros and ones cost nothing once traced.

They are numpy arrays of objects; their sums and products (`+`, `-`, `*`, `@`) are evaluated entry by entry, in order.
"""

from typing import Any

import numpy as np

from neurodyn.multibody.trace import arctan2, cos, maximum, safe_sqrt, select_less, sin

Vector = np.ndarray
"""Three scalars."""

Matrix = np.ndarray
"""Three rows of three scalars."""


def array(values: Any) -> np.ndarray:
    """Return scalars as a vector, or rows of scalars as a matrix."""
    return np.array(values, dtype=object)


EYE: Matrix = array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
ZERO: Vector = array([0.0, 0.0, 0.0])


def dot(a: Any, b: Any) -> Any:
    """Return a . b."""
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]


def cross(a: Vector, b: Vector) -> Vector:
    """Return a x b."""
    return array([a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]])


def skew(a: Vector) -> Matrix:
    """Return the matrix [a] with [a] b = a x b."""
    return array([[0.0, -a[2], a[1]], [a[2], 0.0, -a[0]], [-a[1], a[0], 0.0]])


def mirror(m: Matrix) -> Matrix:
    """Return a symmetric matrix from its upper triangle, so that the lower need not be computed."""
    return array([[m[min(i, j)][max(i, j)] for j in range(3)] for i in range(3)])


def symmetric_inverse(m: Matrix) -> Matrix:
    """Return the inverse of a symmetric positive definite matrix, by its cofactors."""
    (a, b, c), (_, d, e), (_, _, f) = m
    first = [d * f - e * e, c * e - b * f, b * e - c * d]
    inverse = 1.0 / (a * first[0] + b * first[1] + c * first[2])
    xx, xy, xz = (inverse * x for x in first)
    yy, yz, zz = inverse * (a * f - c * c), inverse * (b * c - a * e), inverse * (a * d - b * b)
    return array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])


def normalise(a: Any) -> np.ndarray:
    """Return a / |a|."""
    inverse = 1.0 / safe_sqrt(sum((x * x for x in a[1:]), start=a[0] * a[0]))
    return array([inverse * x for x in a])


def axis_rotation(axis: Vector, angle: Any) -> Matrix:
    """Return the rotation by an angle about a unit axis (Rodrigues' formula)."""
    s, c = sin(angle), cos(angle)
    v = 1.0 - c
    x, y, z = axis
    xx, yy, zz = (1.0 if isinstance(e, float) and abs(e) == 1.0 else c + e * e * v for e in axis)
    return array(
        [
            [xx, x * y * v - z * s, x * z * v + y * s],
            [x * y * v + z * s, yy, y * z * v - x * s],
            [x * z * v - y * s, y * z * v + x * s, zz],
        ]
    )


def turn(q: Any, rotation: Vector) -> np.ndarray:
    """Return exp(rotation / 2) q: a unit quaternion rotated by a rotation vector expressed in the outer frame."""
    # Below 1e-6 rad the sine is its argument; the root is kept away from zero, where its slope is infinite.
    squared = dot(rotation, rotation)
    angle = safe_sqrt(squared)
    ratio = select_less(squared, 1e-12, 0.5, sin(0.5 * angle) / angle)
    real = select_less(squared, 1e-12, 1.0 - 0.125 * squared, cos(0.5 * angle))
    rx, ry, rz = ratio * rotation
    x, y, z, w = q
    product_ = [
        real * x + rx * w + ry * z - rz * y,
        real * y - rx * z + ry * w + rz * x,
        real * z + rx * y - ry * x + rz * w,
        real * w - rx * x - ry * y - rz * z,
    ]
    return normalise(product_)


def matrix_quaternion(rotation: Matrix) -> tuple[Vector, Any]:
    """Return vector and real part of the quaternion of a rotation, up to their common sign (Shepperd's method)."""
    (a, b, c), (d, e, f), (g, h, i) = rotation
    candidates = (  # 4 times the square of an entry; 4 times the products of this entry with x, y, z and w
        (1.0 + a + e + i, (h - f, c - g, d - b, None)),
        (1.0 + a - e - i, (None, b + d, c + g, h - f)),
        (1.0 - a + e - i, (b + d, None, f + h, c - g)),
        (1.0 - a - e + i, (c + g, f + h, None, d - b)),
    )
    greatest, chosen = 0.0, [0.0] * 4
    for square, products in candidates:
        root = safe_sqrt(square)
        own = [0.5 * root if x is None else 0.5 * x / root for x in products]
        chosen = [select_less(greatest, square, new, old) for new, old in zip(own, chosen, strict=True)]
        greatest = maximum(greatest, square)
    return array(chosen[:3]), chosen[3]


def rotation_vector(vector: Vector, real: Any) -> Vector:
    """Return the shortest rotation vector of a unit quaternion [rad]."""
    square = dot(vector, vector)
    size = safe_sqrt(square)
    sign = select_less(real, 0.0, -1.0, 1.0)
    angle = 2.0 * arctan2(size, sign * real)
    return sign * select_less(square, 1e-12, 2.0, angle / size) * vector
