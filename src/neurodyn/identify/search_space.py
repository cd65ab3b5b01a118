# SPDX-License-Identifier: Apache-2.0
"""Coordinates of the free quantities in least squares, and priors on them."""

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

import torch
from torch import Tensor

from neurodyn.core.description.parameter import Parameter
from neurodyn.core.errors import InputError, choices
from neurodyn.dynamics.hybrid.parameters import Parameters, size_of


class SearchSpace:
    """Coordinates x of the free quantities: value = size x, except for full inertias.

    Attributes:
        names: Names of the quantities.
        lower: Lower bounds, shape [n].
        upper: Upper bounds, shape [n].
        nominal: Coordinates of the nominal values, shape [n].
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

    def clipped(self, x: Tensor) -> Tensor:
        """Return the nearest coordinates within the bounds."""
        return torch.minimum(torch.maximum(x, self.lower), self.upper)

    def held(self, x: Tensor, gradient: Tensor) -> Tensor:
        """Return which coordinates are fixed, or lie on a bound that a descent step would cross, shape [..., n]."""
        return self.fixed | ((x <= self.lower) & (gradient > 0)) | ((x >= self.upper) & (gradient < 0))


class FixedSpace:
    """An empty search space: quantities keep their values, only initial states are searched."""

    def __init__(self, values: Tensor) -> None:
        self._values = values
        self.names: tuple[str, ...] = ()
        self.lower = self.upper = self.nominal = values.new_zeros(0)

    def values(self, x: Tensor) -> Tensor:
        """Return the physical values, shape [..., n]."""
        return self._values.expand(*x.shape[:-1], len(self._values))

    def clipped(self, x: Tensor) -> Tensor:
        """Return the coordinates as they are."""
        return x

    def held(self, x: Tensor, gradient: Tensor) -> Tensor:
        """Return an empty mask."""
        return torch.zeros_like(x, dtype=torch.bool)


@dataclass(frozen=True)
class Prior:
    """Independent normal priors on p of the free quantities.

    Attributes:
        columns: Indices of the quantities, int64, shape [p].
        mean: Their nominal values, shape [p].
        deviation: Standard deviations, shape [p].
    """

    columns: Tensor
    mean: Tensor
    deviation: Tensor

    def distance(self, values: Tensor) -> Tensor:
        """Return the distance of physical values [..., n] from the mean in standard deviations, shape [..., p]."""
        return (values[..., self.columns] - self.mean) / self.deviation

    def slope(self, quantities: int) -> Tensor:
        """Return the derivative of `distance` with respect to the physical values, shape [p, n]."""
        slope = torch.zeros(len(self.columns), quantities, dtype=torch.float64)
        slope[torch.arange(len(self.columns)), self.columns] = 1.0 / self.deviation
        return slope


def prior_of(specs: Sequence[Parameter], asked: Mapping[str, float | str]) -> Prior | None:
    """Return the prior for standard deviations given by name or pattern; None if none are given.

    Args:
        specs: The free quantities.
        asked: Standard deviations, in the unit of the quantity or as a share of its nominal value ("20%"). The last
            matching pattern counts.

    Raises:
        InputError: A pattern matches no free quantity, or a standard deviation is not a finite number above 0.
    """
    found: dict[int, float] = {}
    for pattern, width in asked.items():
        rows = [k for k, s in enumerate(specs) if fnmatchcase(s.name, pattern) or fnmatchcase(s.name, f"{pattern}.*")]
        if not rows:
            raise InputError(
                f"prior: {pattern!r} is not a free quantity; valid: {choices([spec.name for spec in specs])}, or "
                "patterns of them"
            )
        found |= {k: _deviation(pattern, width, specs[k]) for k in rows}
    if not found:
        return None
    columns = sorted(found)
    return Prior(
        torch.tensor(columns),
        torch.tensor([specs[k].nominal for k in columns], dtype=torch.float64),
        torch.tensor([found[k] for k in columns], dtype=torch.float64),
    )


def parse_priors(texts: Sequence[str]) -> dict[str, float | str]:
    """Parse priors from the command line: NAME=DEVIATION or NAME=SHARE%.

    Raises:
        InputError: A text is malformed.
    """
    found: dict[str, float | str] = {}
    for text in texts:
        name, given, width = text.partition("=")
        if not (name and given and width):
            raise InputError(f"prior {text!r} is malformed; valid: NAME=STANDARD_DEVIATION, NAME=20%")
        found[name] = width
    return found


def _deviation(pattern: str, width: float | str, spec: Parameter) -> float:
    text = str(width).strip()
    share = text.endswith("%")
    try:
        deviation = float(text.removesuffix("%")) * (0.01 * abs(spec.nominal) if share else 1.0)
    except ValueError:
        deviation = math.nan
    if not 0.0 < deviation < math.inf:
        nothing = share and spec.nominal == 0.0
        why = f", and the nominal value of {spec.name} is 0" if nothing else ""
        raise InputError(
            f"prior {pattern}={text}: its width is not a finite number above 0{why}; valid: a standard deviation in "
            "the unit of the quantity" + ("" if nothing else ", or a share of its nominal value such as 20%")
        )
    return deviation
