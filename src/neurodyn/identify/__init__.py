# SPDX-License-Identifier: Apache-2.0
"""Identification from logs: residuals, solvers, intervals, and discovery of missing effects."""

from neurodyn.core.registry import lazy

with lazy(__name__):
    from neurodyn.identify.adaptation.run import Adaptation, adapt
    from neurodyn.identify.adaptation.settings import AdaptationSettings
    from neurodyn.identify.certainty import profiles
    from neurodyn.identify.conditions import (
        ConditionSettings,
        IdentifiedConditions,
        adapt_conditions,
        identify_conditions,
    )
    from neurodyn.identify.discovery import Discovery, DiscoverySettings, discover
    from neurodyn.identify.discovery_run import discover_run
    from neurodyn.identify.drives import DriveNetworkSettings, identify_drive_network
    from neurodyn.identify.held_out import forecast_errors, hybrid_forecast, noise_floor
    from neurodyn.identify.identification import Identification
    from neurodyn.identify.intervals import Identifiability, Resamples, bootstrap, identifiability
    from neurodyn.identify.least_squares import Solution, fitted, levenberg_marquardt
    from neurodyn.identify.parameter_search import Convergence, curvature, judge
    from neurodyn.identify.population_search import basin_hopping
    from neurodyn.identify.priors import PRIORS, Prior, PriorKind, prior_of
    from neurodyn.identify.readings import Noise, estimate_noise
    from neurodyn.identify.residuals import Point, ResidualOptions, Residuals
    from neurodyn.identify.run import identify
    from neurodyn.identify.settings import IdentificationSettings, changed, load_identification

__all__ = [
    "PRIORS", "Adaptation", "AdaptationSettings", "ConditionSettings", "Convergence", "Discovery", "DiscoverySettings",
    "DriveNetworkSettings", "Identifiability", "Identification", "IdentificationSettings", "IdentifiedConditions",
    "Noise", "Point", "Prior", "PriorKind", "Resamples", "ResidualOptions", "Residuals", "Solution", "adapt",
    "adapt_conditions", "basin_hopping", "bootstrap", "changed", "curvature", "discover", "discover_run",
    "estimate_noise", "fitted", "forecast_errors", "hybrid_forecast", "identifiability", "identify",
    "identify_conditions", "identify_drive_network", "judge", "levenberg_marquardt", "load_identification",
    "noise_floor", "prior_of", "profiles",
]  # fmt: skip
