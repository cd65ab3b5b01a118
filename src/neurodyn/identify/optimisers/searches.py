# SPDX-License-Identifier: Apache-2.0
"""Searches from many starts, by name: what comes before the local optimiser where one start is not enough."""

from collections.abc import Callable
from dataclasses import dataclass

from neurodyn.core.registry import Registry
from neurodyn.identify.optimisers.basin_hopping import Population, basin_hopping
from neurodyn.identify.residuals import Residuals


@dataclass(frozen=True)
class Search:
    """A search from many starts.

    Attributes:
        run: The search, with the arguments of `basin_hopping`.
        require: Refuses residuals that it cannot search, and packages that are missing, with an InputError.
    """

    run: Callable[..., Population]
    require: Callable[[Residuals], object] = lambda residuals: None


SEARCHES: Registry[Search] = Registry("search", islands="neurodyn.identify.optimisers.islands:ISLANDS")
SEARCHES.add("basin-hopping", Search(basin_hopping))
