# SPDX-License-Identifier: Apache-2.0
"""Identification from logs: residuals, solvers, intervals, and discovery of missing effects."""

from typing import TYPE_CHECKING

from neurodyn.core.lazy import lazy

if TYPE_CHECKING:
    from neurodyn.identify.basin_hopping import basin_hopping
    from neurodyn.identify.discover import Discovery, DiscoverySettings, discover
    from neurodyn.identify.discovery_run import discover_run
    from neurodyn.identify.held_out import forecast_errors, hybrid_forecast, noise_floor
    from neurodyn.identify.identify import Identification
    from neurodyn.identify.least_squares import levenberg_marquardt
    from neurodyn.identify.noise import Noise
    from neurodyn.identify.residuals import ResidualOptions, Residuals
    from neurodyn.identify.run import identify
    from neurodyn.identify.settings import IdentificationSettings, changed, load_identification

__all__ = [
    "Discovery", "DiscoverySettings", "Identification", "IdentificationSettings", "Noise", "ResidualOptions",
    "Residuals", "basin_hopping", "changed", "discover", "discover_run", "forecast_errors", "hybrid_forecast",
    "identify", "levenberg_marquardt", "load_identification", "noise_floor",
]  # fmt: skip

lazy(__name__)
