# SPDX-License-Identifier: Apache-2.0
"""Errors of any model beside its simulator, its log and trivial baselines; calibration, long-run stability, timing."""

from typing import TYPE_CHECKING

from neurodyn.core.lazy import lazy

if TYPE_CHECKING:
    from neurodyn.evaluate.logged import beside_log
    from neurodyn.evaluate.metrics import METRICS, Metric
    from neurodyn.evaluate.records import Evaluation
    from neurodyn.evaluate.run import evaluate
    from neurodyn.evaluate.scenario import Scenario, scenario, scenarios
    from neurodyn.evaluate.simulated import beside_simulator
    from neurodyn.evaluate.world_model import forecast_log

__all__ = [
    "METRICS", "Evaluation", "Metric", "Scenario", "beside_log", "beside_simulator", "evaluate", "forecast_log",
    "scenario", "scenarios",
]  # fmt: skip

lazy(__name__)
