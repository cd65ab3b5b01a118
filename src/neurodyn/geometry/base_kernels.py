# SPDX-License-Identifier: Apache-2.0
# Warp compiles these functions and infers types that neither checker knows.
# ruff: noqa: ANN201
# pyright: basic, reportOperatorIssue=false, reportIndexIssue=false, reportArgumentType=false, reportCallIssue=false
# pyright: reportAttributeAccessIssue=false, reportGeneralTypeIssues=false, reportReturnType=false
"""The functions of `base_frame` as one Warp kernel each, one thread per world; without gradients."""

from typing import Any

import warp as wp
from torch import Tensor

from neurodyn.geometry.launching import Launch, Launches, operator, start_warp

VIEW = 22
"""Columns of a view: quaternion, matrix, linear and angular velocity, gravity."""

start_warp()
_LAUNCHES = Launches()


@wp.func
def rotation_matrix(q: Any):
    """Return the matrix of a quaternion [x, y, z, w] by the formula of `rotation.matrix`, also without unit length."""
    one = q.dtype(1.0)
    two = q.dtype(2.0)
    x, y, z, w = q[0], q[1], q[2], q[3]
    return wp.matrix_from_rows(
        wp.vector(one - two * (y * y + z * z), two * (x * y - z * w), two * (x * z + y * w)),
        wp.vector(two * (x * y + z * w), one - two * (x * x + z * z), two * (y * z - x * w)),
        wp.vector(two * (x * z - y * w), two * (y * z + x * w), one - two * (x * x + y * y)),
    )


@wp.func
def triple(table: wp.array2d[Any], row: int, first: int):
    """Return three consecutive entries of a row as a vector."""
    return wp.vector(table[row, first], table[row, first + 1], table[row, first + 2])


@wp.kernel(enable_backward=False, module="unique")
def base_view_kernel(q: wp.array2d[Any], qd: wp.array2d[Any], down: wp.array2d[Any], unit: int, out: wp.array2d[Any]):
    """Write the view of the base of one world."""
    world = wp.tid()
    quaternion = wp.vector(q[world, 3], q[world, 4], q[world, 5], q[world, 6])
    if unit != 0:
        quaternion = quaternion / wp.length(quaternion)
    matrix = rotation_matrix(quaternion)
    back = wp.transpose(matrix)
    linear = back * triple(qd, world, 0)
    angular = back * triple(qd, world, 3)
    seen = back * triple(down, wp.min(world, down.shape[0] - 1), 0)
    for i in range(4):
        out[world, i] = quaternion[i]
    for i in range(3):
        for j in range(3):
            out[world, 4 + 3 * i + j] = matrix[i, j]
        out[world, 13 + i] = linear[i]
        out[world, 16 + i] = angular[i]
        out[world, 19 + i] = seen[i]


@wp.kernel(enable_backward=False, module="unique")
def base_advance_kernel(
    base: wp.array2d[Any],
    q: wp.array2d[Any],
    qd: wp.array2d[Any],
    dq: wp.array2d[Any],
    dqd: wp.array2d[Any],
    com: wp.array[Any],
    out: wp.array2d[Any],
):
    """Write positions, then velocities of one world after a change; joints after the base have one coordinate each."""
    world = wp.tid()
    nq = q.shape[1]
    nv = qd.shape[1]
    half = q.dtype(0.5)
    centre = wp.vector(com[0], com[1], com[2])
    matrix = wp.matrix_from_rows(triple(base, world, 0), triple(base, world, 3), triple(base, world, 6))
    vector = half * triple(dq, world, 3)
    angle = wp.length(vector)
    share = q.dtype(1.0)
    if angle > q.dtype(0.0):
        share = wp.sin(angle) / angle
    quaternion = wp.quaternion(q[world, 3], q[world, 4], q[world, 5], q[world, 6])
    change = wp.quaternion(share * vector[0], share * vector[1], share * vector[2], wp.cos(angle))
    product = quaternion * change
    turned = wp.vector(product[0], product[1], product[2], product[3])
    turned = turned / wp.length(turned)
    origin = triple(q, world, 0) + matrix * (triple(dq, world, 0) + centre) - rotation_matrix(turned) * centre
    linear = matrix * triple(dqd, world, 0)
    angular = matrix * triple(dqd, world, 3)
    for i in range(3):
        out[world, i] = origin[i]
        out[world, nq + i] = qd[world, i] + linear[i]
        out[world, nq + 3 + i] = qd[world, 3 + i] + angular[i]
    for i in range(4):
        out[world, 3 + i] = turned[i]
    for i in range(7, nq):
        out[world, i] = q[world, i] + dq[world, i - 1]
    for i in range(6, nv):
        out[world, nq + i] = qd[world, i] + dqd[world, i]


def _view(q: Tensor, qd: Tensor, down: Tensor, unit: bool) -> Tensor:
    out = _view_like(q, qd, down, unit)
    tensors: list[tuple[Tensor, Any]] = [(q, None), (qd, None), (down, None)]
    key = ("view", len(q), unit, q.dtype, q.device)
    arguments = [*tensors, int(unit), (out, None)]
    _LAUNCHES.get(key, lambda: Launch(base_view_kernel, (len(q),), q.device, arguments))([*tensors, (out, None)])
    return out


def _view_like(q: Tensor, qd: Tensor, down: Tensor, unit: bool) -> Tensor:
    return q.new_empty(q.shape[0], VIEW)


def _advance(base: Tensor, q: Tensor, qd: Tensor, dq: Tensor, dqd: Tensor, com: Tensor) -> Tensor:
    out = _advance_like(base, q, qd, dq, dqd, com)
    tensors: list[tuple[Tensor, Any]] = [(x, None) for x in (base, q, qd, dq, dqd, com, out)]
    key = ("advance", len(q), q.dtype, q.device)
    _LAUNCHES.get(key, lambda: Launch(base_advance_kernel, (len(q),), q.device, list(tensors)))(tensors)
    return out


def _advance_like(base: Tensor, q: Tensor, qd: Tensor, dq: Tensor, dqd: Tensor, com: Tensor) -> Tensor:
    return q.new_empty(q.shape[0], q.shape[1] + qd.shape[1])


base_view = operator("base_view", "(Tensor q, Tensor qd, Tensor down, bool unit) -> Tensor", _view, _view_like)
"""Return views of bases, shape [worlds, VIEW]; gravity has shape [worlds or 1, 3]."""

base_advance = operator(
    "base_advance",
    "(Tensor base, Tensor q, Tensor qd, Tensor dq, Tensor dqd, Tensor com) -> Tensor",
    _advance,
    _advance_like,
)
"""Return positions, then velocities after a change, shape [worlds, nq + nv]; rotations have shape [worlds, 9]."""
