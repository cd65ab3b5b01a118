# SPDX-License-Identifier: Apache-2.0
from .confidence.certainty import profiles as profiles
from .conditions import (
    ConditionSettings as ConditionSettings,
    IdentifiedConditions as IdentifiedConditions,
    adapt_conditions as adapt_conditions,
    identify_conditions as identify_conditions,
)
from .discovery.sparse_groups import (
    Discovery as Discovery,
    DiscoverySettings as DiscoverySettings,
    discover as discover,
)
from .discovery.run import discover_run as discover_run
from .drives import DriveNetworkSettings as DriveNetworkSettings, identify_drive_network as identify_drive_network
from .ladder.held_out import (
    horizon_errors as horizon_errors,
    hybrid_forecast as hybrid_forecast,
    noise_floor as noise_floor,
)
from .fit.intervals import (
    Identifiability as Identifiability,
    Resamples as Resamples,
    bootstrap as bootstrap,
    identifiability as identifiability,
)
from .fit.least_squares import Solution as Solution, fitted as fitted, levenberg_marquardt as levenberg_marquardt
from .confidence.parameter_search import Convergence as Convergence, curvature as curvature, judge as judge
from .fit.population_search import basin_hopping as basin_hopping
from .unknowns.priors import PRIORS as PRIORS, Prior as Prior, PriorKind as PriorKind, prior_of as prior_of
from .fit.readings import Noise as Noise, estimate_noise as estimate_noise
from .stages.problem import Identification as Identification
from .fit.residuals import Point as Point, ResidualOptions as ResidualOptions, Residuals as Residuals
from .run import adapt as adapt, identify as identify
from .settings import (
    AdaptationSettings as AdaptationSettings,
    IdentificationSettings as IdentificationSettings,
    changed as changed,
    load_identification as load_identification,
)
from .unknowns.search_space import BoxedSpace as BoxedSpace
