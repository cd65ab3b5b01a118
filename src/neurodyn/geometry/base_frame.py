# SPDX-License-Identifier: Apache-2.0
r"""Floating base: velocities and gravity in base axes, and integration of changes expressed in base axes.

With the base's rotation $R$, its centre of mass $c$ in base axes (the point that a free joint's velocity $v$ refers
to):

$$R^T v, \quad R^T w, \quad R^T g$$

$$q' = \mathrm{normalise}(q\,\exp\theta), \quad x' = x + R\,(\Delta x + c) - R(q')\,c, \quad v' = v + R\,\Delta v,
\quad w' = w + R\,\Delta w$$

On a CPU, and wherever gradients are needed, these are torch operations; gradients of a view on a CPU are written out,
because those of some thirty small operations would take three times as long. On a GPU the launches would dominate, so
without gradients each function is one kernel (`geometry.base_kernels`).
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from neurodyn.geometry import rotation
from neurodyn.geometry.tensors import Matrices, Positions, Vectors, Velocities


class BaseView(NamedTuple):
    """Velocity and gravity of a floating base in base axes."""

    orientation: Tensor  # quaternion from base to world
    rotation: Matrices  # the same as a matrix
    linear: Vectors  # velocity [m/s]
    angular: Vectors  # velocity [rad/s]
    down: Vectors | None  # gravity in the unit of the input; None if none was passed


def view(q: Positions, qd: Velocities, down: Tensor | None, *, unit: bool, com: Tensor | None = None) -> BaseView:
    """Express the velocity of a floating base, and gravity, in base axes; positions and velocities of the base first.

    Gravity `down` is in world axes, in any unit, broadcastable to [..., 3]. `unit` normalises the quaternion first.
    With the centre of mass `com` in base axes [m], shape [3], the linear velocity is that of the base's origin.
    """
    tracked = torch.is_grad_enabled() and (q.requires_grad or qd.requires_grad)
    if tracked and q.ndim == 2 and q.is_cpu and (down is None or not down.requires_grad):
        orientation, matrix, linear, angular, seen = _View.apply(q, qd, down, unit, com)  # type: ignore[misc]
        return BaseView(orientation, matrix, linear, angular, seen)
    seen = _view(q, qd, down, unit)
    return seen if com is None else seen._replace(linear=_of_origin(seen, com))


def _of_origin(seen: BaseView, com: Tensor) -> Tensor:
    """Return the velocity of the base's origin, given that of its centre of mass."""
    return seen.linear - torch.linalg.cross(seen.angular, com.to(seen.linear).expand_as(seen.linear))


def _view(q: Tensor, qd: Tensor, down: Tensor | None, unit: bool) -> BaseView:
    if _one_kernel(q, qd):
        from neurodyn.geometry.base_kernels import base_view  # loads Warp

        given = q.new_zeros(1, 3) if down is None else down.to(q).expand(*q.shape[:-1], 3).reshape(-1, 3)
        table = base_view(q.flatten(0, -2), qd.flatten(0, -2), given, unit).unflatten(0, q.shape[:-1])
        orientation, matrix, linear, angular, seen = table.split([4, 9, 3, 3, 3], -1)
        return BaseView(orientation, matrix.unflatten(-1, (3, 3)), linear, angular, None if down is None else seen)
    orientation = rotation.normalise(q[..., 3:7]) if unit else q[..., 3:7]
    matrix = rotation.matrix(orientation)
    linear, angular = rotation.rotate_rows(qd[..., :6].unflatten(-1, (2, 3)), matrix).unbind(-2)
    seen = None
    if down is not None:
        rows = down.to(q).expand(*q.shape[:-1], 3).unsqueeze(-2)
        seen = rotation.rotate_rows(rows, matrix).squeeze(-2)
    return BaseView(orientation, matrix, linear, angular, seen)


class _View(torch.autograd.Function):
    """`view` of a batch of worlds on a CPU, with its gradients."""

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, qd: Tensor, down: Tensor | None, unit: bool, com: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor | None]:
        seen = _view(q, qd, down, unit)
        linear = seen.linear if com is None else _of_origin(seen, com)
        ctx.save_for_backward(q, qd, down, com, seen.orientation, seen.rotation)
        ctx.unit = unit
        ctx.set_materialize_grads(False)
        return seen.orientation, seen.rotation, linear, seen.angular, seen.down

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Any) -> tuple[Tensor, Tensor, None, None, None]:  # type: ignore[override]
        by_orientation, by_rotation, by_linear, by_angular, by_down = gradients
        q, qd, down, com, orientation, rotated = ctx.saved_tensors
        worlds = len(q)
        if com is not None and by_linear is not None:  # a . (b x c) = b . (c x a)
            lever = torch.linalg.cross(by_linear, com.to(by_linear).expand_as(by_linear))
            by_angular = lever if by_angular is None else by_angular + lever
        by_q, by_qd = torch.zeros_like(q), torch.zeros_like(qd)
        seen = [by_linear, by_angular]
        turned = [qd[:, :6].unflatten(-1, (2, 3))]
        if by_down is not None:
            seen.append(by_down)
            turned.append(down.to(q).expand(worlds, 3)[:, None])
        if any(part is not None for part in seen):
            rows = torch.stack([q.new_zeros(worlds, 3) if part is None else part for part in seen], 1)
            by_qd[:, :6] = torch.bmm(rows[:, :2], rotated.mT).flatten(1)
            given = turned[0] if len(turned) == 1 else torch.cat(turned, 1)
            by_matrix = torch.bmm(given.mT, rows)
            by_rotation = by_matrix if by_rotation is None else by_rotation + by_matrix
        if by_rotation is not None:
            by_turn = rotation.matrix_gradient(orientation, by_rotation)
            by_orientation = by_turn if by_orientation is None else by_orientation + by_turn
        if by_orientation is not None:
            if ctx.unit:
                along = (by_orientation * orientation).sum(-1, keepdim=True)
                length = torch.linalg.vector_norm(q[:, 3:7], dim=-1, keepdim=True)
                by_orientation = torch.addcmul(by_orientation, orientation, along, value=-1.0) / length
            by_q[:, 3:7] = by_orientation
        return by_q, by_qd, None, None, None


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
    moved = rotation.rotate_rows(torch.cat([shift, dqd[..., :6]], dim=-1).unflatten(-1, (3, 3)), base.mT)
    origin = q[..., :3] + moved[..., 0, :]
    if com is not None:
        origin = origin - rotation.rotate(turned, com.expand_as(origin))
    velocity = qd + torch.cat([moved[..., 1:, :].flatten(-2), dqd[..., 6:]], dim=-1)
    return torch.cat([origin, turned, q[..., 7:] + dq[..., 6 : q.shape[-1] - 1]], dim=-1), velocity


def _one_kernel(*tensors: Tensor) -> bool:
    if tensors[0].device.type == "cpu":
        return False
    return not (torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors))
