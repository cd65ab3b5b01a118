# SPDX-License-Identifier: Apache-2.0
r"""A floating base: what is seen in its axes, and how it moves by a change that is expressed in them.

With $R$ the rotation of the base and $c$ its centre of mass in its own axes, of which a free joint's velocity $v$ is:

$$R^T v, \quad R^T w, \quad R^T g$$

$$q' = \mathrm{normalise}(q\,\exp\theta), \quad x' = x + R\,(\Delta x + c) - R(q')\,c, \quad v' = v + R\,\Delta v,
\quad w' = w + R\,\Delta w$$

These are many small operations, which a processor runs as they stand. A GPU waits longer for each than it works; there,
and where no gradients are wanted, each function is one kernel (`geometry.base_kernels`).
"""

from typing import NamedTuple

import torch
from torch import Tensor

from neurodyn.geometry import rotation
from neurodyn.geometry.tensors import Matrices, Positions, Vectors, Velocities


class BaseView(NamedTuple):
    """A floating base as it sees itself.

    Attributes:
        orientation: Quaternion, base to world, shape [..., 4].
        rotation: Its matrix, shape [..., 3, 3].
        linear: Velocity in axes of the base [m/s], shape [..., 3].
        angular: Angular velocity, likewise [rad/s].
        down: Gravity in axes of the base, in the unit that was given, shape [..., 3]; None where none was.
    """

    orientation: Tensor
    rotation: Matrices
    linear: Vectors
    angular: Vectors
    down: Vectors | None


def view(q: Positions, qd: Velocities, down: Tensor | None, *, unit: bool) -> BaseView:
    """Return what a floating base sees of itself.

    Args:
        q: Positions that begin with the pose of the base, shape [..., nq].
        qd: Velocities that begin with those of the base, shape [..., nv].
        down: Gravity in world axes, in any unit, shape [3] or one that broadcasts to [..., 3]; None for none.
        unit: Whether the quaternion is normalised first.
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
    """Move a floating base and joints of one degree of freedom behind it.

    Args:
        base: Rotation of the base, shape [..., 3, 3].
        q: Positions, shape [..., nq]; of the base alone where there are other joints, whose velocities change all the
            same.
        qd: Velocities, shape [..., nv].
        dq: Change of position, of the base in its axes, that of its centre of mass and a rotation vector, shape [...,
            nv].
        dqd: Change of velocity, likewise, shape [..., nv].
        com: Centre of mass of the base in its own axes [m], shape [3]; None for its origin.
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
