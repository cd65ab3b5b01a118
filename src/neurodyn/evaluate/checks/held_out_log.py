# SPDX-License-Identifier: Apache-2.0
"""Check of the reference simulator beside a held-out log of the robot, which is the truth about it."""

from pathlib import Path

from neurodyn.dynamics.analytic import AnalyticDynamics
from neurodyn.evaluate.checks.run import CheckResult, Figures, judged
from neurodyn.evaluate.checks.subject import Subject
from neurodyn.evaluate.metrics import METRICS, compare
from neurodyn.evaluate.recorded import Recorded, chosen_split, split_name
from neurodyn.evaluate.records import Baselines, ErrorSummary
from neurodyn.evaluate.rollouts import roll_out
from neurodyn.evaluate.run import open_robot_log
from neurodyn.robots.data import grounded

BOUNDS = (0.3, 1.0)
"""Shares of the persistence baseline's error above which the simulator is a poor one, and worse than none."""

_SECONDS, _STARTS = 0.5, 256


class LogErrors(Figures, frozen=True):
    """Errors of the simulator on a log by horizon, beside the baselines; `split` and number of starts."""

    split: str
    rollouts: int
    by_horizon: dict[str, ErrorSummary]
    baselines: Baselines


def check_log(subject: Subject) -> CheckResult:
    """Compare open-loop motion of the declared simulator with held-out episodes of the subject's log, if it has one."""
    if subject.data is None:
        return CheckResult(findings=[])
    robot, store = open_robot_log(subject.robot, subject.data)
    store, dynamics = grounded(robot, store), AnalyticDynamics(robot, device=subject.device)
    split, frames, context = chosen_split(store, None), max(1, round(_SECONDS / robot.dt)), dynamics.spec.context
    starts = Recorded.along(store, split, context, frames, _STARTS)
    truth = starts.truth
    found = compare(robot, roll_out(dynamics, starts.batches(context)).path, truth, simulated=False)
    horizon, words = min(found.by_horizon, key=int), split_name(split)
    findings = []
    for name in found.summary.percentiles:
        mine, still = (table[horizon].means[name] for table in (found.by_horizon, found.baselines.persistence))
        share = None if mine is None or still is None else mine / max(still, 1e-12)
        findings.append(
            judged(
                f"held-out log ({words}): {METRICS[name].title.lower()}, {horizon} frames", share, BOUNDS, unit="%",
                scale=100.0, note="error beside that of nothing moving",
                advice=f"the robot is another one than declared: fit it to the log ({Path(subject.data).name})",
            )
        )  # fmt: skip
    figures = LogErrors(
        split=words, rollouts=truth.worlds, by_horizon=found.by_horizon, baselines=found.baselines
    )  # fmt: skip
    return CheckResult(findings=findings, figures=figures)
