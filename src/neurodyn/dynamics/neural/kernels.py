# SPDX-License-Identifier: Apache-2.0
"""Compiled kernels of a frame of neural dynamics.

The encoding both ways, and the network with its members and their mean.
"""

from functools import cache
from typing import Any

import torch
from torch import Tensor

from neurodyn.dynamics.neural.base_prediction import GRAVITY
from neurodyn.dynamics.neural.encoding import Encoding
from neurodyn.dynamics.neural.kernel_texts import (
    BLOCK,
    compiled_activations,
    decode_text,
    encode_text,
    mean_text,
    network_text,
)
from neurodyn.geometry.launching import FixedLaunch, table_kernel, warp_device
from neurodyn.nets.members import Dense, Weight, linear_weights
from neurodyn.nets.predictor import Predictor


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


_GROUP = 16
"""Worlds of a CPU's thread: their inputs stay in its first cache beside some rows of weights."""


class CompiledNetwork:
    """Normalisation, network and short cut between fixed buffers.

    The weights are read where they lie: what changes them in place is felt at the next call.

    Attributes:
        commands: The recorded launches.
        hidden: Hidden states, overwritten by every run, shape [cells, worlds, width].
        cells: Those of each recurrent layer, shape [worlds, width] each.
    """

    def __init__(self, predictor: Predictor, x: Tensor, y: Tensor) -> None:
        """Record the launch.

        Args:
            predictor: The predictor, of which there is a compiled form (`is_plain`).
            x: Where its inputs are, shape [worlds, inputs], contiguous.
            y: Where its outputs go, contiguous: shape [1, worlds, outputs], or their mean and then those of each
                member, shape [1 + members, worlds, outputs].
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
        self._places = [_place(weight) for weight in weights]
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
        """Look where the weights are now; modules that are moved replace them.

        Returns:
            Whether they are still such as the kernel wants them.
        """
        found = self._addresses()
        if found == self._found:
            return True
        if not is_plain(self._predictor, self.hidden):
            return False
        self._found = found
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


_Place = tuple[dict[str, Any], str]
"""Where a parameter or a buffer is looked up, in the dictionary of its module."""


def _weights(predictor: Predictor, dense: Dense) -> list[Weight | None]:
    """Return statistics, short cut, cells and layers, in the kernel's order."""
    given, wanted = predictor.normaliser, predictor.denormaliser
    weights: list[Weight | None] = [Weight(given, "mean"), Weight(given, "gain")]
    weights += [Weight(wanted, name) for name in ("mean", "std", "gain")]
    weights += [None, None] if predictor.skip is None else linear_weights(predictor.skip)
    weights += [weight for cell in dense.cells for weight in cell]
    return weights + [weight for layer in dense.layers for weight in layer]


def _place(weight: Weight | None) -> _Place | None:
    return None if weight is None else (weight.holder, weight.name)


@cache
def _kernel(dtype: torch.dtype, activations: tuple[str, ...]) -> Any:
    return table_kernel(network_text(dtype))


@cache
def _mean_kernel(dtype: torch.dtype) -> Any:
    return table_kernel(mean_text(dtype))
