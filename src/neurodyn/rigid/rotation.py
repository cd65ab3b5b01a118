# SPDX-License-Identifier: Apache-2.0
"""Rotations as unit quaternions [x, y, z, w] and rotation vectors [rad]; batched, differentiable, any dtype.

Formulas: Sola, "Quaternion kinematics for the error-state Kalman filter" (arXiv 1711.02508), sections 1 to 4.
"""

import torch
from torch import Tensor


def multiply(a: Tensor, b: Tensor) -> Tensor:
    """Return the product a b: first b is applied, then a; shape [..., 4]."""
    a, b = torch.broadcast_tensors(a, b)
    u, v, s, t = a[..., :3], b[..., :3], a[..., 3:], b[..., 3:]
    vector = torch.addcmul(torch.addcmul(torch.linalg.cross(u, v), s, v), t, u)
    scalar = s * t - (u * v).sum(-1, keepdim=True)
    return torch.cat([vector, scalar], dim=-1)


def conjugate(q: Tensor) -> Tensor:
    """Return the inverse of unit quaternions, shape [..., 4]."""
    return torch.cat([-q[..., :3], q[..., 3:]], dim=-1)


def matrix(q: Tensor) -> Tensor:
    """Return rotation matrices of unit quaternions, shape [..., 3, 3]."""
    x, y, z, w = q.unbind(-1)
    xx, yy, zz, xy, xz, yz = x * x, y * y, z * z, x * y, x * z, y * z
    wx, wy, wz = w * x, w * y, w * z
    rows = [
        *(1 - 2 * (yy + zz), 2 * (xy - wz), 2 * (xz + wy)),
        *(2 * (xy + wz), 1 - 2 * (xx + zz), 2 * (yz - wx)),
        *(2 * (xz - wy), 2 * (yz + wx), 1 - 2 * (xx + yy)),
    ]
    return torch.stack(rows, dim=-1).unflatten(-1, (3, 3))


def rotate(q: Tensor, v: Tensor) -> Tensor:
    """Rotate vectors by unit quaternions, shapes [..., 4] and [..., 3]."""
    u = q[..., :3]
    once = 2 * torch.linalg.cross(u, v)
    return v + q[..., 3:] * once + torch.linalg.cross(u, once)


def exponential(vector: Tensor) -> Tensor:
    """Return unit quaternions of rotation vectors [rad], shape [..., 3] to [..., 4]; smooth at zero."""
    squared = vector.square().sum(-1, keepdim=True)
    small = squared < 1e-6
    angle = torch.sqrt(torch.where(small, torch.ones_like(squared), squared))
    sine = torch.where(small, 0.5 - squared / 48 + squared.square() / 3840, torch.sin(0.5 * angle) / angle)
    cosine = torch.where(small, 1 - squared / 8 + squared.square() / 384, torch.cos(0.5 * angle))
    return torch.cat([sine * vector, cosine], dim=-1)


def logarithm(q: Tensor) -> Tensor:
    """Return rotation vectors [rad] of length at most pi, shape [..., 4] to [..., 3]; q and -q give the same."""
    q = torch.where(q[..., 3:] < 0, -q, q)
    u, w = q[..., :3], q[..., 3:]
    squared = u.square().sum(-1, keepdim=True)
    small = squared < 1e-8
    sine = torch.sqrt(torch.where(small, torch.ones_like(squared), squared))
    # 2 atan2(s, w) / s for s to 0: (2 / w) (1 - s^2 / (3 w^2)).
    factor = torch.where(small, 2 / w.clamp_min(0.5) * (1 - squared / 3), 2 * torch.atan2(sine, w) / sine)
    return factor * u


def normalise(q: Tensor) -> Tensor:
    """Return quaternions of unit length, shape [..., 4]."""
    return q / torch.linalg.vector_norm(q, dim=-1, keepdim=True)
