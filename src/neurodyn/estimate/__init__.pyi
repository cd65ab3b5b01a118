# SPDX-License-Identifier: Apache-2.0
from .base_estimate import ERRORS as ERRORS, BaseEstimate as BaseEstimate, EstimatedRun as EstimatedRun
from .causal import BaseFilter as BaseFilter, filter_base as filter_base
from .sensed import SensedRun as SensedRun
from .sensed_logs import sensed_runs as sensed_runs
from .settings import EstimationSettings as EstimationSettings
from .smoother import smooth_base as smooth_base
