# SPDX-License-Identifier: Apache-2.0
"""Checks of a declaration: agreement with its asset and with a log of the robot, contact points, simulator speed."""

from pathlib import Path

from neurodyn.dynamics.analytic import AnalyticDynamics
from neurodyn.dynamics.measures import PERSISTENCE
from neurodyn.dynamics.rollout_errors import RolloutErrors
from neurodyn.dynamics.rollouts import truth_of
from neurodyn.evaluate.checks.findings import CheckFinding, CheckResult, Figures, no_fault, rate
from neurodyn.evaluate.checks.subject import Subject
from neurodyn.evaluate.metrics import METRICS, compare
from neurodyn.evaluate.records import ErrorSummary
from neurodyn.evaluate.rollouts import chosen_split, log_starts, roll_along_log, split_name
from neurodyn.evaluate.run import open_robot_log
from neurodyn.learn.neural.settings import MANY_CONTACT_POINTS, contact_point_advice, network_inputs
from neurodyn.robots.data import on_declared_ground

SLOW = 300.0
"""Steps per CPU-second below which a million transitions take about an hour."""


def check_asset(subject: Subject) -> CheckResult:
    """Compare the declaration with the asset."""
    from neurodyn.sim.simulators import contradictions

    contradicted = contradictions(subject.robot)
    if not contradicted:
        return no_fault("declaration agrees with the asset")
    findings = []
    for what in dict.fromkeys(one.what for one in contradicted):
        first, *others = (one for one in contradicted if one.what == what)
        more = f" and {len(others)} more" if others else ""
        findings.append(
            CheckFinding(
                what=what,
                verdict="fails" if first.fatal else "warning",
                value=first.value,
                unit=first.unit,
                bound=first.bound,
                note=first.joint + more,
                advice=first.advice + (f"; likewise {len(others)} more" if more else ""),
            )
        )
    return CheckResult(findings=findings)


def check_size(subject: Subject) -> CheckResult:
    """Count contact points and network inputs."""
    layout, inputs = subject.layout, network_inputs(subject.robot, subject.layout)
    points = 0 if layout is None else len(layout.contact_points)
    advice, verdict = contact_point_advice(layout) or "", "ok"
    if advice:
        verdict = "warning"
    elif layout is None and subject.scenario.grounded:
        verdict, advice = "warning", "declare contact_points: {} so that models see the ground"
    return CheckResult(
        findings=[
            CheckFinding(
                what="contact points", verdict=verdict, value=points, bound=MANY_CONTACT_POINTS, advice=advice
            ),
            CheckFinding(what="network inputs", verdict="ok", value=inputs),
        ]
    )


def check_speed(subject: Subject) -> CheckResult:
    """Measure the throughput of the simulator under random control."""
    rate = subject.worlds * subject.frames / max(subject.driven.cpu_seconds, 1e-9)
    what, verdict, advice = f"steps per CPU-second in {subject.worlds} worlds", "ok", ""
    if rate < SLOW:
        verdict, advice = "warning", "give more worlds, fewer simulator.substeps, or fewer colliders"
    return CheckResult(
        findings=[CheckFinding(what=what, verdict=verdict, value=rate, unit="1/s", bound=SLOW, advice=advice)]
    )


BOUNDS = (0.3, 1.0)
"""Fractions of the persistence baseline's error above which the simulator is poor, and useless."""

_SECONDS, _STARTS = 0.5, 256


class LogErrors(Figures, frozen=True):
    """Simulator and baseline errors on a log by horizon; `split` and number of starts."""

    split: str
    rollouts: int
    by_horizon: dict[str, ErrorSummary]
    baselines: dict[str, dict[str, ErrorSummary]]


def check_log(subject: Subject) -> CheckResult:
    """Compare open-loop motion of the declared simulator with held-out episodes of the subject's log, if any."""
    if subject.data is None:
        return CheckResult(findings=[])
    robot, store = open_robot_log(subject.robot, subject.data)
    store, dynamics = on_declared_ground(robot, store), AnalyticDynamics(robot, device=subject.device)
    split, frames, context = chosen_split(store, None), max(1, round(_SECONDS / robot.dt)), dynamics.spec.context
    starts, _ = log_starts(store, split, context, frames, _STARTS)
    path = roll_along_log(dynamics, store, starts)
    comparison = compare(RolloutErrors.of(robot, path, truth_of(starts)), simulated=False)
    horizon, words = min(comparison.by_horizon, key=int), split_name(split)
    findings = []
    for name in comparison.summary.percentiles:
        mine, still = (
            table[horizon].means[name] for table in (comparison.by_horizon, comparison.baselines[PERSISTENCE])
        )
        share = None if mine is None or still is None else mine / max(still, 1e-12)
        findings.append(
            rate(
                f"held-out log ({words}): {METRICS[name].title.lower()}, {horizon} frames", share, BOUNDS, unit="%",
                scale=100.0, note="error as a share of persistence's",
                advice=f"the robot is another one than declared: fit it to the log ({Path(subject.data).name})",
            )
        )  # fmt: skip
    figures = LogErrors(
        split=words, rollouts=starts.count, by_horizon=comparison.by_horizon, baselines=comparison.baselines
    )
    return CheckResult(findings=findings, figures=figures)
