# SPDX-License-Identifier: Apache-2.0
"""Search space of the least squares: coordinates of the free quantities."""

import copy
import math

import torch
from torch import Tensor

from neurodyn.dynamics.hybrid.parameters import Parameters, size_of


class BoxedSpace:
    """Coordinates x of free quantities, between bounds.

    Attributes:
        names: Names of the coordinates.
        lower: Lower bounds, shape [n].
        upper: Upper bounds, shape [n].
        nominal: Coordinates of the nominal values, shape [n].
    """

    names: tuple[str, ...]
    lower: Tensor
    upper: Tensor
    nominal: Tensor

    def values(self, x: Tensor) -> Tensor:
        """Return the physical values of all free quantities, shape [..., quantities]."""
        raise NotImplementedError

    def clipped(self, x: Tensor) -> Tensor:
        """Return the nearest coordinates within the bounds."""
        return torch.minimum(torch.maximum(x, self.lower), self.upper)

    def at_active_bound(self, x: Tensor, gradient: Tensor) -> Tensor:
        """Return which coordinates lie on a bound that a descent step would cross, bool, shape [..., n]."""
        return ((x <= self.lower) & (gradient > 0)) | ((x >= self.upper) & (gradient < 0))


class SearchSpace(BoxedSpace):
    """Scaled coordinates, value = size x, except for full inertias.

    Attributes:
        fixed: Coordinates that are held constant, bool, shape [n].
    """

    def __init__(self, quantities: Parameters) -> None:
        self._quantities = quantities
        specs = quantities.specs
        self.names = tuple(spec.name for spec in specs)
        self._size = torch.tensor([size_of(spec) for spec in specs], dtype=torch.float64)
        self._block = torch.zeros(len(specs), dtype=torch.bool)
        self._block[[index for block in quantities.blocks for index in block]] = True
        lower = [-math.inf if spec.lower is None else spec.lower for spec in specs]
        upper = [math.inf if spec.upper is None else spec.upper for spec in specs]
        self.lower = self._bound(lower, -math.inf)
        self.upper = self._bound(upper, math.inf)
        self.nominal = self.of(quantities.nominal)
        self.fixed = torch.zeros(len(specs), dtype=torch.bool)

    def fixing(self, column: int) -> "SearchSpace":
        """Return this space with one coordinate fixed."""
        space = copy.copy(self)
        space.fixed = self.fixed.clone()
        space.fixed[column] = True
        return space

    def _bound(self, values: list[float], otherwise: float) -> Tensor:
        return torch.where(self._block, otherwise, torch.tensor(values, dtype=torch.float64) / self._size)

    def values(self, x: Tensor) -> Tensor:
        """Return the physical values of coordinates, shape [..., n]."""
        if not self._block.any():
            return x * self._size
        return torch.where(self._block, self._quantities(x), x * self._size)

    def of(self, values: Tensor) -> Tensor:
        """Return the coordinates of physical values, shape [..., n]."""
        x = values / self._size
        return torch.where(self._block, self._quantities.raw_of(values), x) if self._block.any() else x

    def at_active_bound(self, x: Tensor, gradient: Tensor) -> Tensor:
        """Return which coordinates are fixed, or lie on a bound that a descent step would cross."""
        return self.fixed | super().at_active_bound(x, gradient)


class FixedSpace(BoxedSpace):
    """An empty search space: quantities keep their values, only initial states are searched."""

    def __init__(self, values: Tensor) -> None:
        self._values = values
        self.names = ()
        self.lower = self.upper = self.nominal = values.new_zeros(0)

    def values(self, x: Tensor) -> Tensor:
        """Return the physical values, shape [..., n]."""
        return self._values.expand(*x.shape[:-1], len(self._values))
