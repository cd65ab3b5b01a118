# SPDX-License-Identifier: Apache-2.0
"""The network of a predictor as a compiled kernel."""

from functools import cache
from typing import Any

import torch
from torch import Tensor

from neurodyn.dynamics.neural.compiled.texts import ACTIVATIONS, BLOCK, network_text
from neurodyn.geometry.fixed_launch import FixedLaunch, table_kernel
from neurodyn.geometry.launching import warp_device
from neurodyn.nets.dense import Dense, Weight, linear_weights
from neurodyn.nets.predictor import Predictor

_GROUP = 16
"""Worlds of a CPU's thread: their inputs stay in its first cache beside some rows of weights."""


class CompiledNetwork:
    """Normalisation, network and short cut between fixed buffers.

    The weights are read where they lie: what changes them in place is felt at the next call.

    Attributes:
        hidden: Hidden states, overwritten by every run, shape [cells, worlds, width].
        cells: Those of each recurrent layer, shape [worlds, width] each.
    """

    def __init__(self, predictor: Predictor, x: Tensor, y: Tensor) -> None:
        """Record the launch.

        Args:
            predictor: The predictor, of which there is a compiled form (`is_plain`).
            x: Where its inputs are, shape [worlds, inputs], contiguous.
            y: Where its outputs go, shape [worlds, outputs], contiguous.
        """
        dense = predictor.net.dense()
        assert dense is not None
        self._predictor = predictor
        worlds, on_gpu = x.shape[0], x.device.type == "cuda"
        widths = [*(3 * dense.width for _ in dense.cells), *(w.tensor.shape[0] for w, _ in dense.layers)]
        stride = x.shape[1] + 2 * max(widths)
        self.hidden = x.new_zeros(len(dense.cells), worlds, dense.width)
        self.cells = self.hidden.unbind(0)
        limit = x.new_full((1,), predictor.clip or 0.0)
        self._kept = (x, y, self.hidden, x.new_empty(worlds, stride), limit)
        group = 1 if on_gpu else _GROUP
        numbers = [
            worlds, group, x.shape[1], y.shape[1], len(dense.cells), dense.width, len(dense.layers),
            ACTIVATIONS.index(dense.activation), int(predictor.clip is not None), int(predictor.skip is not None),
            stride, max(widths),
        ]  # fmt: skip
        self._fixed = numbers + [tensor.data_ptr() for tensor in self._kept]
        self._places, self._widths = _places(predictor, dense)
        threads = worlds * BLOCK if on_gpu else -(-worlds // group)
        self._launch = FixedLaunch(_kernel(x.dtype), threads, self._words(), warp_device(x.device))

    @property
    def command(self) -> Any:
        """The recorded launch."""
        return self._launch.command

    def refresh(self) -> bool:
        """Look where the weights are now; modules that are moved replace them.

        Returns:
            Whether they are still such as the kernel wants them.
        """
        words = self._words()
        if words == self._launch.words:
            return True
        if not is_plain(self._predictor, self.hidden):
            return False
        self._launch.update(words)
        return True

    def _words(self) -> list[int]:
        weights = [0 if place is None else place[0][place[1]].data_ptr() for place in self._places]
        return self._fixed + weights + self._widths


def is_plain(predictor: Predictor, like: Tensor) -> bool:
    """Return whether a network has a compiled form: plain layers, in the precision and on the device of `like`."""
    dense = predictor.net.dense()
    if dense is None or dense.activation not in ACTIVATIONS:
        return False
    places, _ = _places(predictor, dense)
    weights = [place[0].get(place[1]) for place in places if place is not None]
    return all(
        w is not None and w.dtype == like.dtype and w.device == like.device and w.is_contiguous() for w in weights
    )


_Place = tuple[dict[str, Any], str]
"""Where a parameter or a buffer is looked up, in the dictionary of its module."""


def _places(predictor: Predictor, dense: Dense) -> tuple[list[_Place | None], list[int]]:
    """Return the places of statistics, short cut, cells and layers, in the kernel's order, and the layers' widths."""
    given, wanted = predictor.normaliser, predictor.denormaliser
    weights: list[Weight | None] = [Weight(given, "mean"), Weight(given, "gain")]
    weights += [Weight(wanted, name) for name in ("mean", "std", "gain")]
    weights += [None, None] if predictor.skip is None else linear_weights(predictor.skip)
    weights += [weight for cell in dense.cells for weight in cell]
    weights += [weight for layer in dense.layers for weight in layer]
    places = [None if weight is None else (weight.holder, weight.name) for weight in weights]
    return places, [matrix.tensor.shape[0] for matrix, _ in dense.layers]


@cache
def _kernel(dtype: torch.dtype) -> Any:
    return table_kernel(network_text(dtype))
