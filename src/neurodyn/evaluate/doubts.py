# SPDX-License-Identifier: Apache-2.0
"""Doubts about an evaluated model: what is better at any of the horizons, failures, and departures from bounds."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import singledispatch

from msgspec import UNSET

from neurodyn.core.config import from_dict
from neurodyn.core.verdict import Finding, doubts, of_bounds, of_faults, of_horizons, of_persistence, of_refused
from neurodyn.data.header import FINDINGS
from neurodyn.dynamics.guard import Fault
from neurodyn.dynamics.measures import BASELINES, PERSISTENCE
from neurodyn.evaluate.metrics import METRICS
from neurodyn.evaluate.records import (
    ErrorSummary,
    Evaluation,
    ForecastEvaluation,
    LogEvaluation,
    Logged,
    RolloutComparison,
    Simulated,
    Tossed,
)

DECLARED = "the declared simulator"
_ADVICE = {DECLARED: "use it there, or train longer, give more data, or a known base (--base contact)"}
_MORE = "train longer, give more data, or ask for shorter horizons"

Errors = Mapping[str, Sequence[float | None]]
"""Mean errors by metric and horizon; None if no roll-out is finite."""


@dataclass(frozen=True)
class Rivals:
    """Errors of a model beside those of others from the same starts.

    Attributes:
        seconds: Horizons [s].
        mine: Errors of the model.
        others: Errors of the others by title.
        all_count: Whether another is better at a horizon if it is in any metric; otherwise it has to be in all.
    """

    seconds: Sequence[float]
    mine: Errors
    others: Mapping[str, Errors]
    all_count: bool = False

    def findings(self) -> Iterator[Finding]:
        """Judge the model beside each of the others; persistence makes it fail only if it is better in all metrics."""
        for title, theirs in self.others.items():
            if title == BASELINES[PERSISTENCE].title:
                metric = self._ranked(theirs, 0)[0]
                what = f"{metric} {self.seconds[0]:.3g} s ahead"
                yield (first := of_persistence(self.mine[metric][0], theirs[metric][0], what))
                if first.grade != "ok":
                    continue
            metrics = [self._ranked(theirs, k)[-1 if self.all_count else 0] for k in range(len(self.seconds))]
            mine, other = ([errors[metric][k] for k, metric in enumerate(metrics)] for errors in (self.mine, theirs))
            yield of_horizons(
                mine, other, self.seconds, rival=title, what=metrics, grade="warning",
                advice=_ADVICE.get(title, _MORE),
            )  # fmt: skip

    def _ranked(self, theirs: Errors, k: int) -> list[str]:
        """Return the metrics from the one in which the model does best at a horizon to that in which it does worst."""

        def ratio(metric: str) -> float:
            mine, other = self.mine[metric][k], theirs[metric][k]
            return math.inf if mine is None else 0.0 if other is None else mine / max(other, 1e-12)

        return sorted(self.mine, key=ratio)


def judge(result: Evaluation, faults: list[Fault]) -> list[Finding]:
    """Judge a model beside baselines and, on logs, the declared simulator at all horizons, failures and departures.

    Losing to persistence at the shortest horizon fails; over longer ones motion may be chaotic. `faults` are the
    failures in the roll-outs.
    """
    worst = max(faults, key=lambda fault: fault.worlds / fault.of, default=None)
    findings = [one for rivals in _rivals(result) for one in rivals.findings()]
    if isinstance(result, Logged):
        findings += from_dict(result.notes.get(FINDINGS, []), list[Finding], "findings of the log")
    if not isinstance(result, Simulated) and result.refusals is not UNSET:
        findings.append(of_refused(result.refusals.refused, "starts"))
    if worst is not None:
        findings.append(of_faults(worst.words, worst.worlds, worst.of))
    if isinstance(result, Simulated) and result.stability is not UNSET:
        for mode in ("passive", "driven"):
            run = getattr(result.stability, mode)
            if run is not UNSET:
                findings.append(of_bounds(mode, run.in_bounds_fraction, result.stability.frames, run.first_out))
    return doubts(findings)


@singledispatch
def _rivals(result: Evaluation) -> Iterator[Rivals]:
    raise TypeError(type(result))


@_rivals.register
def _(result: Simulated) -> Iterator[Rivals]:
    yield _baselines(result.comparison, result.about.dt)


@_rivals.register
def _(result: Tossed) -> Iterator[Rivals]:
    yield _baselines(result.comparison, result.about.dt, at=True)
    yield from _beside_others(result, result.comparison.by_horizon)


@_rivals.register
def _(result: Logged) -> Iterator[Rivals]:
    others = {BASELINES[name].title: table for name, table in result.baselines.items()}
    yield _beside(result.by_horizon, others, result.about.dt, at=True)
    yield from _beside_others(result, result.by_horizon)


@_rivals.register
def _(result: ForecastEvaluation) -> Iterator[Rivals]:
    marks = sorted(result.at_horizon.values(), key=lambda mark: mark.seconds)
    mine, still = ([mark.by_model[name].scaled for mark in marks] for name in ("model", PERSISTENCE))
    yield Rivals([mark.seconds for mark in marks], {_SCALED: mine}, {BASELINES[PERSISTENCE].title: {_SCALED: still}})


_SCALED = "error in standard deviations"


def _baselines(comparison: RolloutComparison, dt: float, *, at: bool = False) -> Rivals:
    others = {BASELINES[name].title: table for name, table in comparison.baselines.items()}
    return _beside(comparison.by_horizon, others, dt, at=at)


def _beside_others(result: LogEvaluation, summaries: Mapping[str, ErrorSummary]) -> Iterator[Rivals]:
    if result.declared is not UNSET:
        yield _beside(summaries, {DECLARED: result.declared}, result.about.dt, at=True)
    if result.beside is not UNSET:
        yield _beside(summaries, result.beside, result.about.dt, at=True)


def _beside(
    summaries: Mapping[str, ErrorSummary], others: Mapping[str, Mapping[str, ErrorSummary]], dt: float, *,
    at: bool = False,
) -> Rivals:  # fmt: skip
    """Return the errors up to, or with `at` (along logs) at the horizons that all have, in the robot's metrics.

    Along logs all metrics count: a base whose place is right may still turn too far.
    """
    horizons = sorted((h for h in summaries if all(h in table for table in others.values())), key=int)
    metrics = {METRICS[name].title.lower(): name for name in summaries[horizons[0]].percentiles}

    def errors(table: Mapping[str, ErrorSummary]) -> Errors:
        shown = [own if at and (own := table[h].at) is not UNSET else table[h].means for h in horizons]
        return {title: [one[name] for one in shown] for title, name in metrics.items()}

    return Rivals(
        [int(h) * dt for h in horizons], errors(summaries), {name: errors(one) for name, one in others.items()}, at
    )
