# SPDX-License-Identifier: Apache-2.0
r"""Floating base: velocities and gravity in base axes, and integration of changes expressed in base axes.

With the base's rotation $R$, its centre of mass $c$ in base axes (the point that a free joint's velocity $v$ refers
to):

$$R^T v, \quad R^T w, \quad R^T g$$

$$q' = \mathrm{normalise}(q\,\exp\theta), \quad x' = x + R\,(\Delta x + c) - R(q')\,c, \quad v' = v + R\,\Delta v,
\quad w' = w + R\,\Delta w$$

On a CPU, and wherever gradients are needed, these are torch operations. On a GPU the launches would dominate, so
without gradients each function is one kernel (`geometry.base_kernels`).
"""

from typing import NamedTuple

import torch
from torch import Tensor

from neurodyn.geometry import rotation
from neurodyn.geometry.tensors import Matrices, Positions, Vectors, Velocities


class BaseView(NamedTuple):
    """Velocity and gravity of a floating base in base axes."""

    orientation: Tensor  # quaternion from base to world
    rotation: Matrices  # the same as a matrix
    linear: Vectors  # velocity [m/s]
    angular: Vectors  # velocity [rad/s]
    down: Vectors | None  # gravity in the unit of the input; None if none was passed


def view(q: Positions, qd: Velocities, down: Tensor | None, *, unit: bool) -> BaseView:
    """Express the velocity of a floating base, and gravity, in base axes; positions and velocities of the base first.

    Gravity `down` is in world axes, in any unit, broadcastable to [..., 3]. `unit` normalises the quaternion first.
    """
    if _one_kernel(q, qd):
        from neurodyn.geometry.base_kernels import base_view  # loads Warp

        given = q.new_zeros(1, 3) if down is None else down.to(q).expand(*q.shape[:-1], 3).reshape(-1, 3)
        table = base_view(q.flatten(0, -2), qd.flatten(0, -2), given, unit).unflatten(0, q.shape[:-1])
        orientation, matrix, linear, angular, seen = table.split([4, 9, 3, 3, 3], -1)
        return BaseView(orientation, matrix.unflatten(-1, (3, 3)), linear, angular, None if down is None else seen)
    orientation = rotation.normalise(q[..., 3:7]) if unit else q[..., 3:7]
    matrix = rotation.matrix(orientation)
    linear, angular = rotation.turn_rows(qd[..., :6].unflatten(-1, (2, 3)), matrix).unbind(-2)
    seen = None
    if down is not None:
        rows = down.to(q).expand(*q.shape[:-1], 3).unsqueeze(-2)
        seen = rotation.turn_rows(rows, matrix).squeeze(-2)
    return BaseView(orientation, matrix, linear, angular, seen)


def advance(
    base: Matrices, q: Positions, qd: Velocities, dq: Velocities, dqd: Velocities, com: Tensor | None
) -> tuple[Positions, Velocities]:
    """Integrate a floating base and the joints of one degree of freedom that follow it.

    Args:
        base: Rotation of the base.
        q: Positions; only the base's where other joints are integrated elsewhere (velocities still change).
        qd: Velocities.
        dq: Position change, shape [..., nv]: of the centre of mass in base axes, a rotation vector, then joints.
        dqd: Velocity change, base part in base axes.
        com: Centre of mass of the base in base axes [m], shape [3]; None for the origin.
    """
    if _one_kernel(q, qd, dq, dqd):
        from neurodyn.geometry.base_kernels import base_advance  # loads Warp

        rows = [x.flatten(0, -2) for x in (base.flatten(-2), q, qd, dq, dqd)]
        after = base_advance(*rows, q.new_zeros(3) if com is None else com).unflatten(0, q.shape[:-1])
        return after[..., : q.shape[-1]], after[..., q.shape[-1] :]
    turned = rotation.normalise(rotation.multiply(q[..., 3:7], rotation.exponential(dq[..., 3:6])))
    shift = dq[..., :3] if com is None else dq[..., :3] + com
    moved = rotation.turn_rows(torch.cat([shift, dqd[..., :6]], dim=-1).unflatten(-1, (3, 3)), base.mT)
    origin = q[..., :3] + moved[..., 0, :]
    if com is not None:
        origin = origin - rotation.rotate(turned, com.expand_as(origin))
    velocity = qd + torch.cat([moved[..., 1:, :].flatten(-2), dqd[..., 6:]], dim=-1)
    return torch.cat([origin, turned, q[..., 7:] + dq[..., 6 : q.shape[-1] - 1]], dim=-1), velocity


def _one_kernel(*tensors: Tensor) -> bool:
    if tensors[0].device.type == "cpu":
        return False
    return not (torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors))
