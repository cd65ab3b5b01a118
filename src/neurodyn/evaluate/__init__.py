# SPDX-License-Identifier: Apache-2.0
"""Model errors against simulator, log and trivial baselines; calibration, long-run stability, timing."""

from neurodyn.core.registry import lazy

with lazy(__name__):
    from neurodyn.evaluate.checks.run import CHECKS, CheckResult, Finding, RobotCheck, check
    from neurodyn.evaluate.gpu import EmptyWindows, GpuFinding, LaunchCount, check_gpu, count_launches
    from neurodyn.evaluate.logged import beside_log
    from neurodyn.evaluate.metrics import METRICS, Metric
    from neurodyn.evaluate.named_scenarios import Scenario, scenario, scenarios
    from neurodyn.evaluate.records import Evaluation
    from neurodyn.evaluate.run import evaluate
    from neurodyn.evaluate.run_comparison import RunComparison, RunFigures, compare_figures
    from neurodyn.evaluate.run_figures import compare_runs, figures_of
    from neurodyn.evaluate.simulated import beside_simulator
    from neurodyn.evaluate.world_model import forecast_log

__all__ = [
    "CHECKS", "METRICS", "CheckResult", "EmptyWindows", "Evaluation", "Finding", "GpuFinding", "LaunchCount", "Metric",
    "RobotCheck", "RunComparison", "RunFigures", "Scenario", "beside_log", "beside_simulator", "check", "check_gpu",
    "compare_figures", "compare_runs", "count_launches", "evaluate", "figures_of", "forecast_log", "scenario",
    "scenarios",
]  # fmt: skip
