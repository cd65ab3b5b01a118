# SPDX-License-Identifier: Apache-2.0
"""Networks as matrices, for code that runs them without torch."""

from dataclasses import dataclass
from typing import Any, NamedTuple

from torch import Tensor, nn

from neurodyn.nets.members import MemberLinear


class Weight(NamedTuple):
    """A parameter or buffer by its place in a module, where it is looked up anew: modules that move replace theirs.

    Attributes:
        module: The module.
        name: Its name there.
        members: Whether its first axis are members, with matrices transposed (`nets.members`).
    """

    module: nn.Module
    name: str
    members: bool = False

    @property
    def holder(self) -> dict[str, Tensor | None]:
        """The module's dictionary that it stands in; without it where the module computes it (parametrizations)."""
        module: Any = self.module
        return module._parameters if self.name in module._parameters else module._buffers

    @property
    def tensor(self) -> Tensor:
        """What is there now; of members as in a layer of one, shape [members, ...]."""
        found = getattr(self.module, self.name)
        return found.mT if self.members else found

    @property
    def rows(self) -> int:
        """Rows of a matrix."""
        return self.tensor.shape[-2]

    @property
    def stride(self) -> int:
        """Bytes from one member to the next; 0 where there is but one."""
        tensor = self.tensor
        return tensor.stride(0) * tensor.element_size() if self.members else 0


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


def linear_weights(layer: nn.Linear | MemberLinear) -> tuple[Weight, Weight]:
    """Return matrix and bias of a layer."""
    members = isinstance(layer, MemberLinear)
    return Weight(layer, "weight", members), Weight(layer, "bias", members)
