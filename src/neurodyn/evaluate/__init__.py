# SPDX-License-Identifier: Apache-2.0
"""Errors of any model beside its simulator, its log and trivial baselines; calibration, long-run stability, timing."""

from neurodyn.evaluate.metrics import METRICS, Metric
from neurodyn.evaluate.records import Evaluation
from neurodyn.evaluate.run import evaluate

__all__ = ["METRICS", "Evaluation", "Metric", "evaluate"]
