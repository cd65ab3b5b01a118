# SPDX-License-Identifier: Apache-2.0
"""Compiled kernels of a frame of neural dynamics: encoding, network (with ensemble members and mean) and decoding."""

from functools import cache
from typing import Any

import torch
from torch import Tensor

from neurodyn.dynamics.neural.base_prediction import GRAVITY
from neurodyn.dynamics.neural.encoding import Encoding
from neurodyn.dynamics.neural.kernel_sources import (
    BLOCK,
    compiled_activations,
    decode_source,
    encode_source,
    mean_source,
    network_source,
)
from neurodyn.geometry.launching import FixedLaunch, table_kernel, warp_device
from neurodyn.nets.members import Dense, Weight, linear_weights
from neurodyn.nets.predictor import Predictor


def encode_launch(
    encoding: Encoding, state: Tensor, start: Tensor, torque: Tensor, gravity: Tensor, x: Tensor
) -> tuple[Any, Any]:
    """Return the recorded launch that fills all network inputs but contact features, and the objects to keep alive.

    Args:
        encoding: The encoding.
        state: Present state, shape [worlds, nq + nv], contiguous.
        start: Base prediction, shape [worlds, nq + nv]; rows need not be adjacent in memory.
        torque: Torques [N m or N], shape [worlds, nu], contiguous.
        gravity: Gravity in world axes [m/s^2], shape [worlds, 3], contiguous.
        x: Network inputs, shape [worlds, inputs], contiguous.
    """
    spec, coordinates = encoding.spec, encoding.coordinates
    pairs = encoding.pairs
    numbers = [
        spec.nq, spec.nv, spec.nu, x.shape[1], int(coordinates.free), int(encoding.starts_ahead),
        len(coordinates.balls), len(encoding.angles), len(encoding.plain), len(encoding.limit_rows), len(pairs[0]),
        state.stride(0), start.stride(0),
    ]  # fmt: skip
    indices = [
        *encoding.angles, *encoding.plain, *encoding.limit_rows, *encoding.limit_dofs, *pairs[0], *pairs[1],
        *(row for row, _ in coordinates.balls),
    ]  # fmt: skip
    constants = torch.cat([encoding.dt[None], *encoding.limit_constants])
    return _launch(_encode(x.dtype), numbers, [state, start, torque, gravity, x], constants, indices)


def decode_launch(encoding: Encoding, start: Tensor, y: Tensor, q_next: Tensor, qd_next: Tensor) -> tuple[Any, Any]:
    """Return the recorded launch that applies network outputs, and the objects to keep alive.

    Args:
        encoding: The encoding.
        start: Base prediction, shape [worlds, nq + nv]; rows need not be adjacent in memory.
        y: Network outputs of all worlds, once or for several members, shape [rows, outputs], contiguous.
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
    return table_kernel(encode_source(dtype, GRAVITY))


@cache
def _decode(dtype: torch.dtype) -> Any:
    return table_kernel(decode_source(dtype))


_GROUP = 16
"""Worlds per CPU thread, so few that their inputs and some rows of weights fit the L1 cache."""


class CompiledNetwork:
    """Normalisation, network and linear skip with fixed buffers.

    The kernel reads the weights in place, so in-place changes take effect at the next call.

    Attributes:
        commands: The recorded launches.
        hidden: Hidden states, overwritten by every run, shape [cells, worlds, width].
        cells: Views of the hidden states of each recurrent layer, shape [worlds, width] each.
    """

    def __init__(self, predictor: Predictor, x: Tensor, y: Tensor) -> None:
        """Record the launch for a predictor with a compiled form (`is_plain`).

        Args:
            predictor: The predictor.
            x: Buffer of the inputs, shape [worlds, inputs], contiguous.
            y: Buffer of the outputs, contiguous: shape [1, worlds, outputs] for a single network, or
                [1 + members, worlds, outputs] with the mean first.
        """
        dense = predictor.net.dense()
        assert dense is not None
        self._predictor = predictor
        worlds, on_gpu = x.shape[0], x.device.type == "cuda"
        widths = [*(3 * dense.width for _ in dense.cells), *(w.rows for w, _ in dense.layers)]
        stride = x.shape[1] + 2 * max(widths)
        self.hidden = x.new_zeros(len(dense.cells), worlds, dense.width)
        self.cells = self.hidden.unbind(0)
        limit = x.new_full((1,), predictor.clip or 0.0)
        self._kept = (x, y, self.hidden, x.new_empty(worlds, stride), limit)
        outputs = y[1:] if len(y) > 1 else y
        group = 1 if on_gpu else _GROUP
        known = compiled_activations()
        numbers = [
            worlds, group, x.shape[1], y.shape[-1], len(dense.cells), dense.width, len(dense.layers),
            known.index(dense.activation), int(predictor.clip is not None), int(predictor.skip is not None),
            stride, max(widths),
        ]  # fmt: skip
        rest = [tensor.data_ptr() for tensor in self._kept[2:]]
        self._fixed = [[*numbers, x.data_ptr(), own.data_ptr(), *rest] for own in outputs]
        weights = _weights(predictor, dense)
        # By module and name, because tensors are replaced when modules are moved.
        self._places: list[tuple[dict[str, Any], str] | None] = [
            None if weight is None else (weight.holder, weight.name) for weight in weights
        ]
        self._strides = [0 if weight is None else weight.stride for weight in weights]
        self._widths = [matrix.rows for matrix, _ in dense.layers]
        threads, self._found = worlds * BLOCK if on_gpu else -(-worlds // group), self._addresses()
        device = warp_device(x.device)
        self._launches = [
            FixedLaunch(_kernel(x.dtype, known), threads, self._words(member), device) for member in range(len(outputs))
        ]
        self.commands: list[Any] = [launch.command for launch in self._launches]
        if len(y) > 1:
            words = [y[0].numel(), len(outputs), outputs.data_ptr(), y.data_ptr()]
            self._mean = FixedLaunch(_mean_kernel(x.dtype), y[0].numel(), words, device)
            self.commands.append(self._mean.command)

    def refresh(self) -> bool:
        """Update the addresses of the weights, which change when modules are moved; False without a compiled form."""
        addresses = self._addresses()
        if addresses == self._found:
            return True
        if not is_plain(self._predictor, self.hidden):
            return False
        self._found = addresses
        for member, launch in enumerate(self._launches):
            launch.update(self._words(member))
        return True

    def _addresses(self) -> list[int]:
        return [0 if place is None else place[0][place[1]].data_ptr() for place in self._places]

    def _words(self, member: int) -> list[int]:
        own = [first + member * stride for first, stride in zip(self._found, self._strides, strict=True)]
        return self._fixed[member] + own + self._widths


def is_plain(predictor: Predictor, like: Tensor) -> bool:
    """Return whether a network has a compiled form: plain layers, in the precision and on the device of `like`."""
    dense = predictor.net.dense()
    if dense is None or dense.activation not in compiled_activations():
        return False
    weights = [weight for weight in _weights(predictor, dense) if weight is not None]
    if any(weight.holder.get(weight.name) is None for weight in weights):
        return False
    tensors = [weight.tensor for weight in weights]
    return all(w.dtype == like.dtype and w.device == like.device and w.is_contiguous() for w in tensors)


def _weights(predictor: Predictor, dense: Dense) -> list[Weight | None]:
    """Return statistics, linear skip, cells and layers, in the order of the kernel's arguments."""
    given, wanted = predictor.normaliser, predictor.denormaliser
    weights: list[Weight | None] = [Weight(given, "mean"), Weight(given, "gain")]
    weights += [Weight(wanted, name) for name in ("mean", "std", "gain")]
    weights += [None, None] if predictor.skip is None else linear_weights(predictor.skip)
    weights += [weight for cell in dense.cells for weight in cell]
    return weights + [weight for layer in dense.layers for weight in layer]


@cache
def _kernel(dtype: torch.dtype, activations: tuple[str, ...]) -> Any:
    return table_kernel(network_source(dtype))


@cache
def _mean_kernel(dtype: torch.dtype) -> Any:
    return table_kernel(mean_source(dtype))
