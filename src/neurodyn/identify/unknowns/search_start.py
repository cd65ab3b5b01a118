# SPDX-License-Identifier: Apache-2.0
"""Where a search of quantities begins."""

from torch import Tensor

from neurodyn.data.header import Delay
from neurodyn.identify.unknowns.quantities import DELAY
from neurodyn.identify.unknowns.search_space import CoordinateSpace

_FIRST_LAG, _LEAST_LAG = 0.01, 0.001
"""Start of lags that are declared 0, and the least one [s]: at 0 they have no derivative."""


def first_coordinates(space: CoordinateSpace, measured: Delay | None = None) -> Tensor:
    """Return the start of a search: the declared values, but with a delay of motors as measured in the log.

    Lags that are declared 0 begin above it. A measured delay is that of both; half of it is given to each.
    """
    x, late = space.nominal.clone(), None
    if measured is not None and measured.usable:
        late = max(measured.seconds - measured.applied, 0.0)
    lags = [k for k, one in enumerate(space.coordinates) if one.name.endswith(".lag") and one.nominal == 0.0]
    lag = _FIRST_LAG if late is None else min(max(0.5 * late, _LEAST_LAG), _FIRST_LAG)
    for k in lags:
        x[k] = space.coordinates[k].of(lag)
    if late is not None and DELAY in space.names:
        k = space.names.index(DELAY)
        x[k] = space.coordinates[k].of(max(late - (lag if lags else 0.0), 0.0))
    return space.clip(x)
