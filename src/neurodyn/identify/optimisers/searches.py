# SPDX-License-Identifier: Apache-2.0
"""Searches from many starts, by name: what comes before the local optimiser where one start is not enough."""

from collections.abc import Callable

from neurodyn.core.registry import Registry
from neurodyn.identify.optimisers.basin_hopping import Population, basin_hopping

SEARCHES: Registry[Callable[..., Population]] = Registry("search")
"""Searches by name; each takes the arguments of `basin_hopping`."""

SEARCHES.add("basin-hopping", basin_hopping)
