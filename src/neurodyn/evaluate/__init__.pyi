# SPDX-License-Identifier: Apache-2.0
from .base_states import (
    EstimatedStates as EstimatedStates,
    WayErrors as WayErrors,
    estimated_states as estimated_states,
)
from .checks.findings import CheckFinding as CheckFinding, CheckResult as CheckResult, RobotCheck as RobotCheck
from .checks.run import CHECKS as CHECKS, check as check
from .logged import beside_log as beside_log
from .metrics import METRICS as METRICS, Metric as Metric
from .named_scenarios import Scenario as Scenario, scenario as scenario, scenarios as scenarios
from .records import Evaluation as Evaluation
from .run import evaluate as evaluate
from .run_comparison import RunComparison as RunComparison, RunFigures as RunFigures, compare_figures as compare_figures
from .run_figures import compare_runs as compare_runs, figures_of as figures_of
from .simulated import beside_simulator as beside_simulator
from .world_model import forecast_log as forecast_log
