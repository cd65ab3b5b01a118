# SPDX-License-Identifier: Apache-2.0
"""Vectors and matrices of three, of floats or of traced values; zeros and ones cost nothing once traced."""

from typing import Any

from neurodyn.multibody.trace import cos, safe_sqrt, select_less, sin

Vector = list[Any]
"""Three scalars."""

Matrix = list[list[Any]]
"""Three rows of three scalars."""

IDENTITY: Matrix = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]


def add(a: Vector, b: Vector) -> Vector:
    """Return a + b."""
    return [x + y for x, y in zip(a, b, strict=True)]


def subtract(a: Vector, b: Vector) -> Vector:
    """Return a - b."""
    return [x - y for x, y in zip(a, b, strict=True)]


def scale(s: Any, a: Vector) -> Vector:
    """Return s a."""
    return [s * x for x in a]


def dot(a: Vector, b: Vector) -> Any:
    """Return a . b."""
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]


def cross(a: Vector, b: Vector) -> Vector:
    """Return a x b."""
    return [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]]


def apply(m: Matrix, a: Vector) -> Vector:
    """Return M a."""
    return [dot(row, a) for row in m]


def apply_transposed(m: Matrix, a: Vector) -> Vector:
    """Return M^T a."""
    return [m[0][i] * a[0] + m[1][i] * a[1] + m[2][i] * a[2] for i in range(3)]


def product(a: Matrix, b: Matrix) -> Matrix:
    """Return A B."""
    return [[dot(row, [b[0][j], b[1][j], b[2][j]]) for j in range(3)] for row in a]


def transpose(m: Matrix) -> Matrix:
    """Return M^T."""
    return [[m[j][i] for j in range(3)] for i in range(3)]


def plus(a: Matrix, b: Matrix) -> Matrix:
    """Return A + B."""
    return [add(x, y) for x, y in zip(a, b, strict=True)]


def minus(a: Matrix, b: Matrix) -> Matrix:
    """Return A - B."""
    return [subtract(x, y) for x, y in zip(a, b, strict=True)]


def outer(a: Vector, b: Vector) -> Matrix:
    """Return a b^T."""
    return [[x * y for y in b] for x in a]


def skew(a: Vector) -> Matrix:
    """Return the matrix [a] with [a] b = a x b."""
    return [[0.0, -a[2], a[1]], [a[2], 0.0, -a[0]], [-a[1], a[0], 0.0]]


def mirrored(m: Matrix) -> Matrix:
    """Return a symmetric matrix from its upper triangle; what was computed below it is then not needed."""
    return [[m[min(i, j)][max(i, j)] for j in range(3)] for i in range(3)]


def symmetric_inverse(m: Matrix) -> Matrix:
    """Return the inverse of a symmetric positive definite matrix, by its cofactors."""
    (a, b, c), (_, d, e), (_, _, f) = m
    first = [d * f - e * e, c * e - b * f, b * e - c * d]
    scale_ = 1.0 / (a * first[0] + b * first[1] + c * first[2])
    xx, xy, xz = (scale_ * x for x in first)
    yy, yz, zz = scale_ * (a * f - c * c), scale_ * (b * c - a * e), scale_ * (a * d - b * b)
    return [[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]]


def normalised(a: list[Any]) -> list[Any]:
    """Return a / |a|."""
    inverse = 1.0 / safe_sqrt(sum((x * x for x in a[1:]), start=a[0] * a[0]))
    return [inverse * x for x in a]


def axis_rotation(axis: Vector, angle: Any) -> Matrix:
    """Return the rotation by an angle about a unit axis (Rodrigues' formula)."""
    s, c = sin(angle), cos(angle)
    v = 1.0 - c
    x, y, z = axis
    xx, yy, zz = (1.0 if isinstance(e, float) and abs(e) == 1.0 else c + e * e * v for e in axis)
    return [
        [xx, x * y * v - z * s, x * z * v + y * s],
        [x * y * v + z * s, yy, y * z * v - x * s],
        [x * z * v - y * s, y * z * v + x * s, zz],
    ]


def turned(q: list[Any], rotation: Vector) -> list[Any]:
    """Return exp(rotation / 2) q: a unit quaternion, turned by a rotation vector in the axes it turns into."""
    # Below 1e-6 rad the sine is its argument; the root is kept away from zero, where its slope is infinite.
    squared = dot(rotation, rotation)
    angle = safe_sqrt(squared)
    ratio = select_less(squared, 1e-12, 0.5, sin(0.5 * angle) / angle)
    real = select_less(squared, 1e-12, 1.0 - 0.125 * squared, cos(0.5 * angle))
    rx, ry, rz = scale(ratio, rotation)
    x, y, z, w = q
    product_ = [
        real * x + rx * w + ry * z - rz * y,
        real * y - rx * z + ry * w + rz * x,
        real * z + rx * y - ry * x + rz * w,
        real * w - rx * x - ry * y - rz * z,
    ]
    return normalised(product_)
