# SPDX-License-Identifier: Apache-2.0
"""Roll-out errors and calibration of predicted standard deviations.

Tables by horizon, ground and joint limit, error curves, energy drift, stability and throughput.
"""

from collections.abc import Mapping
from typing import Any

from msgspec import UNSET, UnsetType

from neurodyn.dynamics.measures import PERSISTENCE
from neurodyn.evaluate.metrics import METRICS, shown_metrics
from neurodyn.evaluate.records import (
    ConditionErrors,
    Coverage,
    Drift,
    ErrorSummary,
    MemberCalibration,
    OutOfDistribution,
    RankCorrelation,
    ReferenceErrors,
    Refusals,
    RolloutComparison,
    Simulated,
)
from neurodyn.report.numbers import (
    MISSING,
    baseline_titles,
    capital,
    count,
    digits,
    digits_or_dash,
    interval,
    member_parts,
    quantity,
    share,
    simulated_parts,
    span,
    times,
)
from neurodyn.report.page import Table, grid
from neurodyn.report.plots import PREDICTED, THIRD, TRUTH, PlotCurve, plot

_CHAOS = 0.1
"""Fraction of the model's error above which a perturbation of the starts by 1e-6 explains it."""


def coverage(title: str, by_mark: Mapping[str, Coverage], ranks: Mapping[str, RankCorrelation]) -> Table:
    """Return coverage and rank correlations by horizon."""
    rows = []
    for mark, entry in by_mark.items():
        both = (digits_or_dash(rank) for rank in (ranks[mark].epistemic_rank, ranks[mark].total_rank))
        rows.append([f"{mark} frames", share(entry.one_sigma), share(entry.two_sigma), *both])
    rank = "Rank correlation of error and epistemic standard deviation"
    return Table(title, ["Horizon", "Within one sigma", "Within two", rank, "of error and total"], rows, strong=2)


def out_of_distribution_table(title: str, outside: OutOfDistribution) -> Table:
    """Return the epistemic standard deviation out of distribution."""
    rows = [
        [f"{factor} times as far from the mean", f"{digits(entry.ratio)}x", share(entry.chance_above_usual)]
        for factor, entry in outside.by_factor.items()
    ]
    return Table(title, ["States", "Epistemic standard deviation beside the usual", "Chance that it is above"], rows)


def refusal_tables(refused: Refusals | UnsetType) -> list[Table]:
    """Return the shares of starts that a model refuses, with its errors there; none if it does not know its data."""
    if refused is UNSET:
        return []
    against = MISSING if refused.contradicted is None else share(refused.contradicted)
    after = f"after {span(refused.seconds)} [{refused.unit}]"
    table = Table(
        "Refused starts",
        ["Refused", "Inputs far from the training data", "History contradicts the model", f"Error {after}",
         "Error of the other starts"],
        [[share(refused.refused), share(refused.outside), against, digits_or_dash(refused.error),
          digits_or_dash(refused.error_of_others)]],
    )  # fmt: skip
    return [table]


def member_tables(parts: Mapping[str, MemberCalibration | UnsetType]) -> list[Table]:
    """Return the calibration tables of a neural-dynamics ensemble, by description of the roll-outs."""
    tables = []
    for words, part in parts.items():
        if part is not UNSET:
            title = f"{part.members} members beside their errors, {words}"
            tables.append(coverage(title, part.coverage, part.epistemic))
            tables.append(out_of_distribution_table(f"States beyond the data, {words}", part.out_of_distribution))
    return tables


def by_condition(conditions: list[ConditionErrors] | UnsetType, dt: float) -> list[Table]:
    """Return errors by a network's conditions, one table per metric: in thirds of their ranges, and beyond."""
    if conditions is UNSET or not conditions:
        return []
    columns = list(dict.fromkeys(name for one in conditions for name in one.bins))
    names = list(dict.fromkeys(name for one in conditions for entry in one.bins.values() for name in entry.errors))
    tables = []
    for name in names:
        unit = METRICS[name].unit
        rows = [
            [
                f"{one.name}, {digits(one.lower)} to {digits(one.upper)}",
                *(quantity(one.bins[c].errors[name], unit) if c in one.bins else MISSING for c in columns),
            ]
            for one in conditions
        ]
        title = f"{METRICS[name].title} over {span(conditions[0].frames * dt)}, by the robot's quantities"
        tables.append(Table(title, ["Quantity and trained range", *map(capital, columns)], rows))
    return tables


Parts = dict[str, tuple[int, RolloutComparison]]
"""Number of roll-outs and their errors, by description of the motion."""


def by_horizon(parts: Parts, dt: float, references: ReferenceErrors | None = None) -> list[Table]:
    """Return errors of model and baselines; the first motion also has the simulator's reference errors."""
    tables = []
    for number, (words, (rollouts, comparison)) in enumerate(parts.items()):
        beside = references if number == 0 else None
        for name, metric in shown_metrics(comparison.summary).items():
            rows = [_row(comparison, beside, horizon, name, metric.unit, dt) for horizon in comparison.by_horizon]
            more = [] if beside is None else ["Half the step", "Starts 1e-6 off"]
            head = ["Horizon", "Mean", "Median", "p10 – p90", *baseline_titles(), "Better", *more]
            tables.append(Table(f"{metric.title}, {words} ({count(rollouts, 'roll-out')})", head, rows, strong=1))
    return tables


def horizon_sentences(result: Simulated) -> list[str]:
    """Return sentences on the horizons within which the model beats the baselines, by metric and motion."""
    sentences = []
    for number, (words, (_, comparison)) in enumerate(simulated_parts(result).items()):
        for name, metric in shown_metrics(comparison.summary).items():
            beaten = {h: value for h in comparison.by_horizon if (value := comparison.better(h, name)) is not None}
            lost = next((h for h, value in beaten.items() if value < 1), None)
            before = [h for h, value in beaten.items() if value >= 1 and (lost is None or int(h) < int(lost))]
            if lost is None or not before:  # always or never better; the verdict says which
                continue
            useful, end = (span(int(h) * result.about.dt) for h in (before[-1], lost))
            lead = f"{metric.title}, {words}: better than the baselines for {useful}, not for {end}"
            sentences.append(lead + ("" if number else _predictable(result, lost, name, metric.unit)))
    return sentences


def _predictable(result: Simulated, horizon: str, name: str, unit: str) -> str:
    """Return whether the simulator is predictable at a horizon where the model does not beat a baseline."""
    if result.reference_errors is None:
        return ""
    off = result.reference_errors.perturbed[horizon].means[name]
    model = result.comparison.by_horizon[horizon].means[name]
    if off is None or model is None:
        return ""
    said = f"starts 1e-6 off part by {quantity(off, unit)}"
    if off > _CHAOS * model:
        return f"; nor can any model be: in the simulator {said}"
    return (
        f", though the motion can be predicted (in the simulator {said}): train longer, on more data, or with a known "
        "`base` (docs/which-dynamics.md)"
    )


def over_time(parts: Parts, dt: float) -> str:
    """Return plots of errors at single frames."""
    plots = []
    for number, (words, (_, comparison)) in enumerate(parts.items()):
        for name, metric in shown_metrics(comparison.summary).items():
            curve, seconds = comparison.curve.by_metric[name], [frame * dt for frame in comparison.curve.frame]
            curves = [
                PlotCurve("mean", seconds, curve.mean),
                PlotCurve("median", seconds, curve.median, TRUTH),
                PlotCurve("90th percentile", seconds, curve.p90, THIRD, "--", 1.1),
            ]
            caption, key = f"{metric.title}, {words}", f"curve-{number}-{name}"
            plots.append(plot(key, curves, unit=metric.unit, log=True, caption=caption))
    return grid(plots)


def grounds(result: Simulated) -> list[Table]:
    """Return errors by ground, if there are several."""
    if result.grounds is UNSET or len(result.grounds) < 2:
        return []
    metrics, end = shown_metrics(result.comparison.summary), str(result.about.horizon)
    rows = []
    for ground, entry in result.grounds.items():
        both = entry.comparison.summary.means, entry.comparison.baselines[PERSISTENCE][end].means
        rows.append([ground, *(quantity(means[name], m.unit) for means in both for name, m in metrics.items())])
    names = [metric.title for metric in metrics.values()]
    head = ["Ground", *names, *(f"Persistence: {name.lower()}" for name in names)]
    return [Table(f"By ground, over {span(result.about.horizon * result.about.dt)}", head, rows)]


def stability(result: Simulated) -> list[Table]:
    """Return the table of very long roll-outs."""
    runs, rows = result.stability, []
    if runs is UNSET:
        return []
    for words, run in zip(simulated_parts(result), (runs.passive, runs.driven), strict=False):
        if run is not UNSET:
            above, deepest = share(run.above_ground_fraction), quantity(run.deepest_m, "m")
            rows.append([capital(words), share(run.finite_fraction), above, deepest])
    head = ["Long roll-outs", "Stay finite", "Stay above ground", "Deepest contact point"]
    return [Table(f"{count(runs.worlds, 'roll-out')} of {runs.frames:,} frames", head, rows)]


def limits(result: Simulated) -> list[Table]:
    """Return errors of roll-outs that reach a joint limit and of those that do not."""
    splits = [
        (f"{capital(words)}, {span(int(horizon) * result.about.dt)}", split)
        for words, (_, comparison) in simulated_parts(result).items()
        for horizon, split in (comparison.limits or {}).items()
    ]
    if all(split.touching_fraction == 0 for _, split in splits):
        return []
    head, tables = ["Horizon", "Free: mean", "median", "Touching", "Touching: mean", "median"], []
    for name, metric in shown_metrics(result.comparison.summary).items():
        rows = [
            [title, *_both(split.not_touching, name), share(split.touching_fraction), *_both(split.touching, name)]
            for title, split in splits
        ]
        tables.append(Table(f"{metric.title}, by contact with joint limits", head, rows))
    return tables


def energy(result: Simulated) -> list[Table]:
    """Return the energy drift of passive roll-outs, if energy should be conserved."""
    head = ["Energy", "Mean drift", "Median at the end", "p10 – p90 at the end", "Range over all roll-outs"]
    rows = [[capital(name), *_drift(drift)] for name, drift, _ in _energies(result)]
    return [Table("Distance of the total energy from its start", head, rows)] if rows else []


def energy_plot(result: Simulated) -> str:
    """Return a plot of the energy drift over time; empty if energy need not be conserved."""
    seconds = [frame * result.about.dt for frame in (result.energy.frames if result.energy else ())]
    curves = [PlotCurve(name, seconds, drift.drift_curve, colour) for name, drift, colour in _energies(result)]
    return grid(
        [plot("energy", curves, unit="J", log=True, caption="Mean distance of the total energy from its start")]
    )


def _energies(result: Simulated) -> list[tuple[str, Drift, str]]:
    """Return name, energy drift and colour of model and simulator; empty if the model's is not finite."""
    energy = result.energy
    if energy is None or energy.model is None:
        return []
    simulator = [] if energy.simulator is None else [("analytic", energy.simulator, TRUTH)]
    return [(result.about.kind, energy.model, PREDICTED), *simulator]


def speed(result: Simulated) -> Table:
    """Return the throughput of model and simulator."""
    model, simulator = result.env_steps_per_cpu_second, result.simulator_steps_per_cpu_second
    wall = f"{result.env_steps_per_second:,.0f}"
    rows = [
        [capital(result.about.kind), f"{model:,.0f}", times(model / simulator), wall],
        ["Analytic", f"{simulator:,.0f}", times(1.0), ""],
    ]
    head = ["Throughput", "Frames per CPU-second", "Relative", "Frames per second of wall time"]
    title = f"Frames of {digits(1e3 * result.about.dt)} ms of one robot, {result.worlds} worlds at once"
    return Table(title, head, rows)


def simulated_parts_of_page(result: Simulated) -> dict[str, Any]:
    """Return the values of `templates/simulated.html`, without trajectories and training."""
    parts, dt, references = simulated_parts(result), result.about.dt, result.reference_errors
    return {
        "errors": by_horizon(parts, dt, references),
        "references": references and count(references.rollouts, "roll-out"),
        "grounds": grounds(result),
        "over_time": over_time(parts, dt),
        "conditions": by_condition(result.conditions, dt),
        "calibration": member_tables(member_parts(result)),
        "limits": limits(result),
        "energy": energy(result),
        "energy_plot": energy_plot(result),
        "stability": stability(result),
        "deepest": "" if result.stability is UNSET else f"{result.stability.deepest_allowed_m:g} m.",
        "speed": [speed(result)],
    }


def _row(
    comparison: RolloutComparison, references: ReferenceErrors | None, horizon: str, name: str, unit: str, dt: float
) -> list[str]:
    entry = comparison.by_horizon[horizon]
    percentiles = entry.percentiles[name]
    more = [] if references is None else [references.half_step[horizon], references.perturbed[horizon]]
    return [
        f"{int(horizon):,} frames ({span(int(horizon) * dt)})",
        quantity(entry.means[name], unit),
        quantity(percentiles["50"], unit),
        interval(percentiles["10"], percentiles["90"], unit),
        *(quantity(table[horizon].means[name], unit) for table in comparison.baselines.values()),
        times(comparison.better(horizon, name)),
        *(quantity(reference.means[name], unit) for reference in more),
    ]


def _both(summary: ErrorSummary, name: str) -> list[str]:
    unit = shown_metrics(summary)[name].unit
    return [quantity(summary.means[name], unit), quantity(summary.median(name), unit)]


def _drift(drift: Drift) -> list[str]:
    end = drift.final_drift
    spread = interval(end["10"], end["90"], "J")
    return [quantity(drift.mean_drift, "J"), quantity(end["50"], "J"), spread, quantity(drift.energy_range, "J")]
