# SPDX-License-Identifier: Apache-2.0
"""Open-loop errors beside a reference simulator, logs and baselines; calibration; long-run stability."""

from typing import TYPE_CHECKING

from neurodyn.core.lazy import lazy

if TYPE_CHECKING:
    from neurodyn.evaluate.run import evaluate_run as evaluate
    from neurodyn.evaluate.scenario import Scenario, scenario, scenarios

__all__ = ["Scenario", "evaluate", "scenario", "scenarios"]

lazy(__name__)
