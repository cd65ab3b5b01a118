# SPDX-License-Identifier: Apache-2.0
r"""Rotations as unit quaternions [x, y, z, w] and rotation vectors [rad]; batched, differentiable, any dtype.

Formulas: Sola, "Quaternion kinematics for the error-state Kalman filter" (arXiv 1711.02508), sections 1 to 4. With a
unit quaternion $q = [u, w]$ and a rotation vector $\theta$ of length $|\theta|$:

$$R(q)\,v = v + 2 w\,(u \times v) + 2\,u \times (u \times v)$$

$$\exp \theta = \left[\frac{\sin(|\theta|/2)}{|\theta|}\,\theta,\ \cos(|\theta|/2)\right], \quad
\log q = 2\,\mathrm{atan2}(|u|, w)\,\frac{u}{|u|}$$
"""

from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from neurodyn.geometry.tensors import Matrices, Quaternions, Rows, Vectors


def multiply(a: Quaternions, b: Quaternions) -> Quaternions:
    """Return the product a b: first b is applied, then a; shape [..., 4]."""
    return _map(_products(a, b), _hamilton(a.device, a.dtype))


def conjugate(q: Quaternions) -> Quaternions:
    """Return the inverse of unit quaternions, shape [..., 4]."""
    return torch.cat([-q[..., :3], q[..., 3:]], dim=-1)


def matrix(q: Quaternions) -> Matrices:
    """Return rotation matrices of unit quaternions, shape [..., 3, 3]."""
    table, identity = _entries(q.device, q.dtype)
    return (_map(_products(q, q), table) + identity).unflatten(-1, (3, 3))


def matrix_gradient(q: Quaternions, gradient: Matrices) -> Quaternions:
    """Return the gradient in unit quaternions, shape [worlds, 4], from that in their matrices, [worlds, 3, 3]."""
    table, _ = _entries(q.device, q.dtype)
    products = (gradient.flatten(1) @ table.t()).unflatten(-1, (4, 4))
    return torch.bmm(products + products.mT, q.unsqueeze(-1)).squeeze(-1)


def rotate_rows(rows: Rows, matrix: Matrices) -> Rows:
    """Return rows times a rotation matrix, i.e. R^T v for each row v, shape [..., vectors, 3].

    On a GPU this avoids a matrix product, which may be rounded to ten bits (TF32) if the user allows it.
    """
    return _map(rows, matrix)


def _map(rows: Tensor, matrix: Tensor) -> Tensor:
    """Return rows @ matrix in full precision on every device."""
    if rows.device.type == "cpu":  # matrix products are exact there, and fastest
        return torch.bmm(rows, matrix) if rows.ndim == matrix.ndim == 3 else rows @ matrix
    return (rows.unsqueeze(-1) * (matrix if matrix.ndim == 2 else matrix.unsqueeze(-3))).sum(-2)


def quaternion_matrix(q: Any) -> list[list[Any]]:
    """Return the rotation matrix of one unit quaternion of numbers or traced values, as rows."""
    x, y, z, w = q
    return [
        [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
        [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
        [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)],
    ]


def rotate(q: Quaternions, v: Vectors) -> Vectors:
    """Rotate vectors by unit quaternions, shapes [..., 4] and [..., 3]."""
    u = q[..., :3]
    once = 2 * torch.linalg.cross(u, v)
    return v + q[..., 3:] * once + torch.linalg.cross(u, once)


def exponential(vector: Vectors) -> Quaternions:
    """Return unit quaternions of rotation vectors [rad], shape [..., 3] to [..., 4]; differentiable at zero."""
    half = 0.5 * vector
    angle = torch.linalg.vector_norm(half, dim=-1, keepdim=True)
    # The gradients of norm and sinc are taken to be zero at zero, as that of their product is.
    return torch.cat([torch.sinc(angle / torch.pi) * half, torch.cos(angle)], dim=-1)


def logarithm(q: Quaternions) -> Vectors:
    """Return rotation vectors [rad] of length at most pi, shape [..., 4] to [..., 3]; q and -q give the same."""
    q = torch.where(q[..., 3:] < 0, -q, q)
    u, w = q[..., :3], q[..., 3:]
    squared = u.square().sum(-1, keepdim=True)
    small = squared < 1e-8
    sine = torch.sqrt(torch.where(small, torch.ones_like(squared), squared))
    # 2 atan2(s, w) / s for s to 0: (2 / w) (1 - s^2 / (3 w^2)).
    factor = torch.where(small, 2 / w.clamp_min(0.5) * (1 - squared / 3), 2 * torch.atan2(sine, w) / sine)
    return factor * u


def from_matrix(matrix: Matrices) -> Quaternions:
    """Return unit quaternions of rotation matrices, shape [..., 3, 3] to [..., 4]; any angle, differentiable.

    Of the four forms of Shepperd (1978), the one with the largest root is used.
    """
    (a, b, c), (d, e, f), (g, h, i) = (row.unbind(-1) for row in matrix.unbind(-2))
    squares = torch.stack([1 + a - e - i, 1 - a + e - i, 1 - a - e + i, 1 + a + e + i], -1)
    forms = torch.stack(
        [
            torch.stack([squares[..., 0], b + d, c + g, h - f], -1),
            torch.stack([b + d, squares[..., 1], f + h, c - g], -1),
            torch.stack([c + g, f + h, squares[..., 2], d - b], -1),
            torch.stack([h - f, c - g, d - b, squares[..., 3]], -1),
        ],
        -2,
    )
    largest = squares.argmax(-1)[..., None, None].expand(*squares.shape[:-1], 1, 4)
    return normalise(forms.gather(-2, largest)[..., 0, :])


def normalise(q: Quaternions) -> Quaternions:
    """Return quaternions of unit length, shape [..., 4]."""
    return q / torch.linalg.vector_norm(q, dim=-1, keepdim=True)


def _products(a: Tensor, b: Tensor) -> Tensor:
    """Return all products a_i b_j, shape [..., 16]; one table product then replaces many small operations."""
    return (a.unsqueeze(-1) * b.unsqueeze(-2)).flatten(-2)


@lru_cache(maxsize=16)
def _hamilton(device: torch.device, dtype: torch.dtype) -> Tensor:
    """Return the coefficients of the products a_i b_j in the entries of the quaternion a b, shape [16, 4]."""
    x, y, z, w = range(4)
    return _table(device, dtype, [
        [(1, w, x), (1, x, w), (1, y, z), (-1, z, y)],
        [(1, w, y), (1, y, w), (1, z, x), (-1, x, z)],
        [(1, w, z), (1, z, w), (1, x, y), (-1, y, x)],
        [(1, w, w), (-1, x, x), (-1, y, y), (-1, z, z)],
    ])  # fmt: skip


@lru_cache(maxsize=16)
def _entries(device: torch.device, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return the coefficients of q_i q_j in the entries of R - 1, shape [16, 9], and the identity, shape [9]."""
    x, y, z, w = range(4)
    table = _table(device, dtype, [
        *([(-2, y, y), (-2, z, z)], [(2, x, y), (-2, w, z)], [(2, x, z), (2, w, y)]),
        *([(2, x, y), (2, w, z)], [(-2, x, x), (-2, z, z)], [(2, y, z), (-2, w, x)]),
        *([(2, x, z), (-2, w, y)], [(2, y, z), (2, w, x)], [(-2, x, x), (-2, y, y)]),
    ])  # fmt: skip
    with torch.inference_mode(False):
        return table, torch.eye(3, device=device, dtype=dtype).flatten()


def _table(device: torch.device, dtype: torch.dtype, columns: list[list[tuple[int, int, int]]]) -> Tensor:
    with torch.inference_mode(False):  # reused by later calls, which may need gradients
        table = torch.zeros(16, len(columns), device=device, dtype=dtype)
        for column, terms in enumerate(columns):
            for share, i, j in terms:
                table[4 * i + j, column] = share
        return table
