# SPDX-License-Identifier: Apache-2.0
"""The encoding, both ways, as compiled kernels: from state to network inputs, from outputs to the next state."""

from functools import cache
from typing import Any

import torch
from torch import Tensor

from neurodyn.dynamics.neural.base_prediction import GRAVITY
from neurodyn.dynamics.neural.compiled.texts import decode_text, encode_text
from neurodyn.dynamics.neural.encoding import Encoding
from neurodyn.geometry.fixed_launch import FixedLaunch, table_kernel
from neurodyn.geometry.launching import warp_device


def encode_launch(
    encoding: Encoding, state: Tensor, start: Tensor, torque: Tensor, gravity: Tensor, x: Tensor
) -> tuple[Any, Any]:
    """Return the recorded launch that fills network inputs but for contact features, and what it must keep.

    Args:
        encoding: The encoding.
        state: Present state, shape [worlds, nq + nv], contiguous as all but `start`.
        start: State where the prediction starts, likewise; rows may lie apart.
        torque: Torques [N m or N], shape [worlds, nu].
        gravity: Gravity in world axes [m/s^2], shape [worlds, 3].
        x: Network inputs, shape [worlds, inputs].
    """
    spec, config, coordinates = encoding.spec, encoding.config, encoding.coordinates
    limits, pairs = config.limits, encoding.pairs
    numbers = [
        spec.nq, spec.nv, spec.nu, x.shape[1], int(coordinates.free), int(encoding.starts_ahead),
        len(coordinates.balls), len(encoding.angles), len(encoding.plain), len(limits), len(pairs[0]),
        state.stride(0), start.stride(0),
    ]  # fmt: skip
    dof_of = dict(zip(coordinates.scalars, coordinates.scalar_dofs, strict=True))
    rows = [limit.coordinate for limit in limits]
    indices = [
        *encoding.angles, *encoding.plain, *rows, *(dof_of[row] for row in rows), *pairs[0], *pairs[1],
        *(row for row, _ in coordinates.balls),
    ]  # fmt: skip
    constants = torch.cat([encoding.dt[None], *encoding.limit_constants])
    return _launch(_encode(x.dtype), numbers, [state, start, torque, gravity, x], constants, indices)


def decode_launch(encoding: Encoding, start: Tensor, y: Tensor, q_next: Tensor, qd_next: Tensor) -> tuple[Any, Any]:
    """Return the recorded launch that applies network outputs, and what it must keep.

    Args:
        encoding: The encoding.
        start: State where the prediction starts, shape [worlds, nq + nv]; rows may lie apart.
        y: Network outputs, once or several times those of all worlds, shape [rows, outputs], contiguous.
        q_next: Next positions, shape [rows, nq], contiguous.
        qd_next: Next velocities, shape [rows, nv], contiguous.
    """
    spec, coordinates = encoding.spec, encoding.coordinates
    numbers = [
        spec.nq, spec.nv, int(coordinates.free), int(encoding.starts_ahead), len(coordinates.balls),
        len(coordinates.scalars), start.stride(0), len(start),
    ]  # fmt: skip
    balls = coordinates.balls
    indices = [*coordinates.scalars, *coordinates.scalar_dofs, *(row for row, _ in balls), *(dof for _, dof in balls)]
    constants = torch.cat([encoding.dt[None], coordinates.com, encoding.kappa])
    return _launch(_decode(y.dtype), numbers, [start, y, q_next, qd_next], constants, indices)


def _launch(
    kernel: Any, numbers: list[int], tensors: list[Tensor], constants: Tensor, indices: list[int]
) -> tuple[Any, Any]:
    like = tensors[-1]
    places = torch.tensor(indices or [0], dtype=torch.int32, device=like.device)
    kept = [*tensors, constants, places]
    words = [*numbers, *(tensor.data_ptr() for tensor in kept)]
    launch = FixedLaunch(kernel, like.shape[0], words, warp_device(like.device))
    return launch.command, (launch, kept)


@cache
def _encode(dtype: torch.dtype) -> Any:
    return table_kernel(encode_text(dtype, GRAVITY))


@cache
def _decode(dtype: torch.dtype) -> Any:
    return table_kernel(decode_text(dtype))
