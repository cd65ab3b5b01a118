# SPDX-License-Identifier: Apache-2.0
"""The network of a predictor as a compiled kernel."""

from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from neurodyn.dynamics.neural.compiled.texts import ACTIVATIONS, BLOCK, network_text
from neurodyn.geometry.launching import warp_device
from neurodyn.multibody.trace.native import FixedLaunch, native_kernel
from neurodyn.nets.dense import Dense, Weight, linear_weights
from neurodyn.nets.predictor import Predictor

_GROUP = 16
"""Worlds of a CPU's thread: their inputs stay in its first cache beside some rows of weights."""


class CompiledNetwork:
    """Normalisation, network and short cut between fixed buffers.

    The weights are read where they lie: what changes them in place is felt at the next call.

    Attributes:
        hidden: Hidden states, overwritten by every run, shape [cells, worlds, width].
    """

    def __init__(self, predictor: Predictor, dense: Dense, x: Tensor, y: Tensor) -> None:
        """Record the launch.

        Args:
            predictor: The predictor.
            dense: Its network.
            x: Where its inputs are, shape [worlds, inputs], contiguous.
            y: Where its outputs go, shape [worlds, outputs], contiguous.
        """
        worlds, on_gpu = x.shape[0], x.device.type == "cuda"
        widths = [*(3 * dense.width for _ in dense.cells), *(w.tensor.shape[0] for w, _ in dense.layers)]
        stride = x.shape[1] + 2 * max(widths)
        self.hidden = x.new_zeros(len(dense.cells), worlds, dense.width)
        self._kept = (x, y, x.new_empty(worlds, stride), x.new_full((1,), predictor.clip or 0.0))
        group = 1 if on_gpu else _GROUP
        self._numbers = [
            worlds, group, x.shape[1], y.shape[1], len(dense.cells), dense.width, len(dense.layers),
            ACTIVATIONS.index(dense.activation), int(predictor.clip is not None), int(predictor.skip is not None),
            stride, max(widths),
        ]  # fmt: skip
        self._weights = _weights(predictor, dense)
        threads = worlds * BLOCK if on_gpu else -(-worlds // group)
        self._launch = FixedLaunch(_kernel(x.dtype), threads, self._words(), warp_device(x.device))

    @property
    def command(self) -> Any:
        """The recorded launch."""
        return self._launch.command

    def refresh(self) -> None:
        """Look where the weights are now; a module that moves replaces them."""
        self._launch.update(self._words())

    def _words(self) -> list[int]:
        x, y, scratch, limit = self._kept
        buffers = [tensor.data_ptr() for tensor in (x, y, self.hidden, scratch, limit)]
        return [*self._numbers, *buffers, *(w if isinstance(w, int) else w.tensor.data_ptr() for w in self._weights)]


def supports(predictor: Predictor, dense: Dense | None) -> bool:
    """Return whether there is a compiled form of a network: plain layers, of one precision, without parametrizations."""
    if dense is None or dense.activation not in ACTIVATIONS:
        return False
    weights = [w for w in _weights(predictor, dense) if isinstance(w, Weight)]
    like = next(predictor.parameters())
    plain = all(w.name in w.module._parameters or w.name in w.module._buffers for w in weights)
    return plain and all(w.tensor.dtype == like.dtype and w.tensor.is_contiguous() for w in weights)


def _weights(predictor: Predictor, dense: Dense) -> list[Weight | int]:
    """Return what the kernel reads after its buffers: statistics, short cut, cells and layers with their widths."""
    given, wanted = predictor.normaliser, predictor.denormaliser
    statistics: list[tuple[nn.Module, str]] = [
        (given, "mean"), (given, "gain"), (wanted, "mean"), (wanted, "std"), (wanted, "gain"),
    ]  # fmt: skip
    weights: list[Weight | int] = [Weight(module, name) for module, name in statistics]
    weights += [0, 0] if predictor.skip is None else linear_weights(predictor.skip)
    weights += [weight for cell in dense.cells for weight in cell]
    for matrix, bias in dense.layers:
        weights += [matrix, bias, matrix.tensor.shape[0]]
    return weights


@cache
def _kernel(dtype: torch.dtype) -> Any:
    return native_kernel(network_text(dtype))
