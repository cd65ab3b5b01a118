# SPDX-License-Identifier: Apache-2.0
"""Networks as matrices, for code that runs them without torch."""

from dataclasses import dataclass
from typing import Any, NamedTuple

from torch import Tensor, nn


class Weight(NamedTuple):
    """A parameter or buffer by its place in a module, where it is looked up anew: modules that move replace theirs."""

    module: nn.Module
    name: str

    @property
    def holder(self) -> dict[str, Tensor | None]:
        """The module's dictionary that it stands in; without it where the module computes it (parametrizations)."""
        module: Any = self.module
        return module._parameters if self.name in module._parameters else module._buffers

    @property
    def tensor(self) -> Tensor:
        """What is there now."""
        return getattr(self.module, self.name)


@dataclass(frozen=True)
class Dense:
    r"""A network of gated recurrent units and fully connected layers, one after another.

    Attributes:
        cells: $W_i, W_h, b_i, b_h$ of each recurrent layer, gates in the order r, z, n as in `nets.gru`.
        layers: $W, b$ of each fully connected layer.
        activation: Name of the activation between these.
        width: Size of a hidden state; 0 without recurrent layers.
    """

    cells: tuple[tuple[Weight, Weight, Weight, Weight], ...]
    layers: tuple[tuple[Weight, Weight], ...]
    activation: str
    width: int = 0


def linear_weights(layer: nn.Linear) -> tuple[Weight, Weight]:
    """Return matrix and bias of a layer."""
    return Weight(layer, "weight"), Weight(layer, "bias")
