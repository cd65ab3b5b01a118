# SPDX-License-Identifier: Apache-2.0
"""Errors of roll-outs: tables by horizon, curves over time, reference errors, limits, energy."""

from msgspec import UNSET

from neurodyn.evaluate.metrics import shown
from neurodyn.evaluate.records import Comparison, Drift, Simulated, Summary
from neurodyn.report.numbers import digits, interval, quantity, share, span, times
from neurodyn.report.page import figure, grid, heading, section, table
from neurodyn.report.plots import THIRD, TRUTH, Curve, plot
from neurodyn.report.words import BASELINES, REFERENCES, capital, count, simulated_parts

Parts = dict[str, tuple[int, Comparison]]
"""Number of roll-outs, and their errors, by what they are in words."""


def by_horizon(parts: Parts, dt: float, title: str, lead: str) -> str:
    """Return tables of errors beside the baselines."""
    shows = []
    for words, (rollouts, found) in parts.items():
        for name, metric in shown(found.summary).items():
            shows += [heading(f"{metric.title}, {words} ({count(rollouts, 'roll-out')})")]
            shows += [_table(found, name, metric.unit, dt)]
    lead += (
        " Mean absolute error over all frames up to a horizon and over all roll-outs; median and tenth to ninetieth "
        "percentile are over roll-outs. Persistence: nothing moves. Constant velocity: velocities stay as they are. "
        "Better: error of the better of the two, over the model's."
    )
    return section(title, *shows, lead=lead)


def over_time(parts: Parts, dt: float) -> str:
    """Return curves of the error at single frames."""
    plots = []
    for number, (words, (_, found)) in enumerate(parts.items()):
        for name, metric in shown(found.summary).items():
            curve, seconds = found.curve.by_metric[name], [frame * dt for frame in found.curve.frame]
            curves = [
                Curve("mean", seconds, curve.mean),
                Curve("median", seconds, curve.median, TRUTH),
                Curve("90th percentile", seconds, curve.p90, THIRD, "--", 1.1),
            ]
            caption, key = f"{metric.title}, {words}", f"curve-{number}-{name}"
            svg = plot(key, curves, x_label="time [s]", unit=metric.unit, log=True, description=caption)
            plots.append(figure(svg, caption))
    lead = "Absolute error at a point of time, over the roll-outs; logarithmic."
    return section("Errors over time", grid(plots), lead=lead)


def reference_errors(result: Simulated) -> str:
    """Return how far the simulator is from itself: at half the step, and from starts a millionth off."""
    found = result.reference_errors
    if found is None:
        return ""
    parts = []
    for name, metric in shown(result.comparison.summary).items():
        rows = [
            [_horizon(h, result.about.dt)]
            + [quantity(e.means[name], metric.unit) for e in (entry, found.half_step[h], found.perturbed[h])]
            for h, entry in result.comparison.by_horizon.items()
        ]
        head = ["Horizon", capital(result.about.kind), *REFERENCES.values()]
        parts += [heading(metric.title), table(head, rows, strong=1)]
    lead = (
        f"The simulator beside itself, over {count(found.rollouts, 'roll-out')}: with twice the substeps, which is "
        "its own discretisation error, and from starts that are a millionth off in every coordinate, which is the "
        "limit of predictability."
    )
    return section("Reference errors", *parts, lead=lead)


def grounds(result: Simulated) -> str:
    """Return errors ground by ground."""
    if result.grounds is UNSET or len(result.grounds) < 2:
        return ""
    metrics, end = shown(result.comparison.summary), str(result.about.horizon)
    rows = []
    for ground, entry in result.grounds.items():
        both = entry.means, entry.baselines.persistence[end].means
        rows.append([ground, *(quantity(means[name], m.unit) for means in both for name, m in metrics.items())])
    names = [metric.title for metric in metrics.values()]
    head = ["Ground", *names, *(f"Persistence: {name.lower()}" for name in names)]
    seconds = span(result.about.horizon * result.about.dt)
    lead = f"Mean errors over {seconds}, from {result.about.rollouts:,} starts on each ground."
    return section("By ground", table(head, rows), lead=lead)


def stability(result: Simulated) -> str:
    """Return what becomes of very long roll-outs."""
    found = result.stability
    if found is UNSET:
        return ""
    rows = []
    for words, run in zip(simulated_parts(result), (found.passive, found.driven), strict=False):
        if run is not UNSET:
            above, deepest = share(run.above_ground_fraction), quantity(run.deepest_m, "m")
            rows.append([capital(words), share(run.finite_fraction), above, deepest])
    head = ["", "Stay finite", "Stay above ground", "Deepest contact point"]
    lead = (
        f"{count(found.worlds, 'roll-out')} of {found.frames:,} frames ({span(found.frames * result.about.dt)}). Above "
        f"ground: no contact point is ever deeper than {found.deepest_allowed_m:g} m."
    )
    return section("Long roll-outs", table(head, rows), lead=lead)


def limits(result: Simulated) -> str:
    """Return errors split into roll-outs that reach a joint limit and those that do not."""
    splits = [
        (f"{capital(words)}, {span(int(horizon) * result.about.dt)}", split)
        for words, (_, found) in simulated_parts(result).items()
        for horizon, split in (found.limits or {}).items()
    ]
    if all(split.touching_fraction == 0 for _, split in splits):
        return ""
    parts = []
    for name, metric in shown(result.comparison.summary).items():
        rows = [
            [
                title,
                *_mean_and_median(split.not_touching, name, metric.unit),
                share(split.touching_fraction),
                *_mean_and_median(split.touching, name, metric.unit),
            ]
            for title, split in splits
        ]
        head = ["Horizon", "Free: mean", "median", "Touching", "Touching: mean", "median"]
        parts += [heading(metric.title), table(head, rows)]
    lead = (
        "An impact magnifies whatever error precedes it, so that a few roll-outs with impacts can make up most of a "
        "mean. Free: the simulator stays clear of all joint limits up to the horizon; touching: the others, with their "
        "share."
    )
    return section("Roll-outs that touch a limit", *parts, lead=lead)


def energy(result: Simulated) -> str:
    """Return how far the energy of passive roll-outs drifts."""
    drift = result.energy
    if drift is None or drift.model is None:
        return ""
    seconds, kind = [frame * result.about.dt for frame in drift.frames], result.about.kind
    curves = [Curve(kind, seconds, drift.model.drift_curve)]
    rows = [_energy_row(capital(kind), drift.model)]
    if drift.simulator is not None:
        curves.append(Curve("analytic", seconds, drift.simulator.drift_curve, TRUTH))
        rows.append(_energy_row("Analytic", drift.simulator))
    caption = "Mean distance of the total energy from its start"
    svg = plot("energy", curves, x_label="time [s]", unit="J", log=True, description=caption)
    head = ["", "Mean drift", "Median at the end", "p10 – p90 at the end", "Range over all roll-outs"]
    lead = (
        "How far the total energy moves from its start without torque. Joint limits and friction take energy away, and "
        "the simulator's own integrator drifts, so that the two are to be compared with each other."
    )
    return section("Energy", grid([figure(svg, caption)]), table(head, rows), lead=lead)


def speed(result: Simulated) -> str:
    """Return throughput of model and simulator."""
    model, simulator = result.env_steps_per_cpu_second, result.simulator_steps_per_cpu_second
    wall = f"{result.env_steps_per_second:,.0f}"
    rows = [
        [capital(result.about.kind), f"{model:,.0f}", times(model / simulator), wall],
        ["Analytic", f"{simulator:,.0f}", times(1.0), ""],
    ]
    head = ["", "Frames per CPU-second", "Relative", "Frames per second of wall time"]
    frames = f"Frames of {digits(1e3 * result.about.dt)} ms of one robot"
    return section("Throughput", table(head, rows), lead=f"{frames}, {result.worlds} worlds at once, kernels warm.")


def _table(found: Comparison, name: str, unit: str, dt: float) -> str:
    rows = []
    for horizon, entry in found.by_horizon.items():
        percentiles = entry.percentiles[name]
        baselines = found.baselines.persistence[horizon], found.baselines.constant_velocity[horizon]
        rows.append(
            [
                _horizon(horizon, dt),
                quantity(entry.means[name], unit),
                quantity(percentiles["50"], unit),
                interval(percentiles["10"], percentiles["90"], unit),
                *(quantity(baseline.means[name], unit) for baseline in baselines),
                times(found.better(horizon, name)),
            ]
        )
    head = ["Horizon", "Mean", "Median", "p10 – p90", *BASELINES.values(), "Better"]
    return table(head, rows, strong=1)


def _horizon(frames: str, dt: float) -> str:
    return f"{int(frames):,} frames ({span(int(frames) * dt)})"


def _mean_and_median(summary: Summary, name: str, unit: str) -> list[str]:
    return [quantity(summary.means[name], unit), quantity(summary.median(name), unit)]


def _energy_row(name: str, drift: Drift) -> list[str]:
    percentiles = drift.final_drift
    return [
        name,
        quantity(drift.mean_drift, "J"),
        quantity(percentiles["50"], "J"),
        interval(percentiles["10"], percentiles["90"], "J"),
        quantity(drift.energy_range, "J"),
    ]
