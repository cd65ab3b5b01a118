# SPDX-License-Identifier: Apache-2.0
"""The actor of somebody else's checkpoint: a normaliser and layers."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from torch import Tensor

from neurodyn.core.errors import InputError

Layer = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Actor:
    """The action is that of the layers on clamp((observation - mean) / deviation, -clip, clip).

    Attributes:
        layers: Weight and bias of each layer, the last being that of the mean action, shapes [out, in] and [out].
        mean: Mean of observations, shape [observations]; None where they are not normalised.
        deviation: What they are divided by, shape [observations]; None where they are not normalised.
        clip: Size beyond which normalised observations are cut off; None for none.
    """

    layers: tuple[Layer, ...]
    mean: Tensor | None = None
    deviation: Tensor | None = None
    clip: float | None = None

    @property
    def observations(self) -> int:
        """Number of observations."""
        return self.layers[0][0].shape[1]

    @property
    def actions(self) -> int:
        """Number of components of an action."""
        return self.layers[-1][0].shape[0]

    @property
    def hidden(self) -> tuple[int, ...]:
        """Widths of the hidden layers."""
        return tuple(weight.shape[0] for weight, _ in self.layers[:-1])


def require_chain(names: Sequence[str], layers: Sequence[Layer], where: str) -> None:
    """Refuse layers of which one does not take what the one below gives.

    Raises:
        InputError: Which; or arrays of a layer have other shapes than [out, in] and [out].
    """
    for name, (weight, bias) in zip(names, layers, strict=True):
        if weight.ndim != 2 or bias.shape != weight.shape[:1]:
            shapes = f"{list(weight.shape)} and {list(bias.shape)}"
            raise InputError(f"{where}: {name} has shapes {shapes}; valid: [out, in], [out]")
    for (below, (weight, _)), (above, (upper, _)) in pairwise(zip(names, layers, strict=True)):
        if upper.shape[1] != weight.shape[0]:
            raise InputError(f"{where}: {above} takes {upper.shape[1]} numbers, but {below} gives {weight.shape[0]}")
