# SPDX-License-Identifier: Apache-2.0
"""Errors against a log by horizon, joint and group; residuals over whole runs; notes of the log's reader."""

from collections.abc import Sequence
from statistics import fmean
from typing import Any

from msgspec import UNSET

from neurodyn.evaluate.metrics import shown_metrics
from neurodyn.evaluate.records import Logged, LogMark, LogSection, StateErrors, Tossed
from neurodyn.identify.result import RunFit
from neurodyn.report.accuracy import by_condition, member_tables, refusal_tables
from neurodyn.report.numbers import (
    MISSING,
    baseline_titles,
    count,
    digits,
    interval,
    member_parts,
    quantity,
    span,
    times,
)
from neurodyn.report.page import Table, grid, heading, section
from neurodyn.report.plots import PREDICTED, THIRD, PlotCurve, Span, plot

DECLARED_SIMULATOR = "Declared simulator"
"""Heading of the errors of the robot's declaration."""
_POINTS = 2400  # points per curve, enough for zooming in
_MOST_COORDINATES = 8
_BEGINNINGS: dict[object, str] = {
    "past": "a state estimated from past positions", "filtered": "a state estimated from past positions and velocities",
}  # fmt: skip


def at_horizons(result: Logged) -> list[Table]:
    """Return errors of model and baselines over all and over moving windows, means over joints."""
    titles = {
        "all": "All windows",
        "moving": f"Windows that move (mean joint speed above {quantity(result.moving_above, result.units[1])})",
    }
    windows = {title: result.at_horizon[name] for name, title in titles.items()}
    return [_summary(title, section, result.q_units) for title, section in windows.items()]


def beside_others(result: Logged | Tossed) -> list[Table]:
    """Return errors of model, baselines, declared simulator and other models from the same starts.

    Each horizon has two rows, of the mean up to it and of the error at it, by metric: lengths apart from angles.
    """
    others = {} if result.declared is UNSET else {DECLARED_SIMULATOR: result.declared}
    others |= {} if result.beside is UNSET else result.beside
    if not others:
        return []
    mine, own = (
        (result.by_horizon, result.baselines)
        if isinstance(result, Logged)
        else (result.comparison.by_horizon, result.comparison.baselines)
    )
    others = {**dict(zip(baseline_titles(), own.values(), strict=True)), **others}
    rows = []
    for horizon in next(iter(others.values())):
        summaries = [table[horizon] for table in (mine, *others.values())]
        for name, metric in shown_metrics(mine[horizon]).items():
            label = f"{metric.title}, {{}} {int(horizon):,} frames ({span(int(horizon) * result.about.dt)})"
            means, at = [one.means[name] for one in summaries], [one.at[name] for one in summaries if one.at]
            rows += [_beside(label.format("up to"), means, metric.unit), _beside(label.format("at"), at, metric.unit)]
    head = ["Error", "Model", *others, "Better"]
    what = "other models" if result.beside is not UNSET else "the declared simulator"
    return [Table(f"Held-out log ({result.split}), beside {what}", head, rows, strong=1)]


def _beside(label: str, errors: Sequence[float | None], unit: str) -> list[str]:
    """Return a row of the errors of a model and others, and how many times better than the best of these it is."""
    model, *theirs = errors
    least = min((one for one in theirs if one is not None), default=None)
    better = MISSING if model is None or least is None else times(least / max(model, 1e-12))
    return [label, *(quantity(one, unit) for one in errors), better]


def by_joint(result: Logged) -> list[Table]:
    """Return errors of each joint over all windows."""
    rows = []
    for entry in result.at_horizon["all"].marks.values():
        for what, names in (("q", result.q_names), ("qd", result.qd_names)):
            for i, name in enumerate(names):
                # A joint of one degree of freedom has a velocity in its position's unit per second.
                unit = result.q_units[i] if len(result.q_units) == len(names) else ""
                unit = f"{unit}/s" if unit and what == "qd" else unit
                label = f"{name}, {'position' if what == 'q' else 'velocity'}, {_seconds(entry)}"
                rows.append([label, *(quantity(getattr(errors, what)[i], unit) for errors in _models(entry))])
    return [Table("All windows", ["Joint and horizon", "Model", *baseline_titles()], rows, strong=1)]


def by_group(result: Logged) -> list[Table]:
    """Return errors by group of recordings, if there are several."""
    rows = []
    for name, group in result.groups.items() if len(result.groups) > 1 else ():
        if group.marks:
            last = list(group.marks.values())[-1]
            for label, unit, errors in last.means("q", result.q_units):
                rows.append([name, f"{group.starts:,}", *_beside(f"{_seconds(last)}{label}", errors, unit)])
    head = ["Group", "Starts", "Horizon", "Model", *baseline_titles(), "Better"]
    return [Table("Mean joint position error at the longest horizon", head, rows, strong=3)] if rows else []


def logged_parts_of_page(result: Logged) -> dict[str, Any]:
    """Return the values of `templates/logged.html`, without trajectories and training."""
    return {
        "begin": _BEGINNINGS.get(result.start, "a recorded state"),
        "over_horizon": over_horizon(result),
        "errors": [*at_horizons(result), *beside_others(result)],
        "groups": by_group(result),
        "each": [_summary(name, group, result.q_units) for name, group in result.groups.items()],
        "joints": by_joint(result),
        "conditions": by_condition(result.conditions, result.about.dt),
        "calibration": [*member_tables(member_parts(result)), *refusal_tables(result.refusals)],
        "notes": recordings(result.notes),
    }


def over_horizon(result: Logged) -> str:
    """Return the errors of positions at the horizons, of the model and the baselines, if joints share a unit."""
    marks = list(result.at_horizon["all"].marks.values())
    unit = result.units[0]
    if len(marks) < 2 or not unit:
        return ""
    seconds = [entry.seconds for entry in marks]
    rows = zip(("model", *baseline_titles()), zip(*map(_models, marks), strict=True), strict=True)
    looks = [(PREDICTED, "-"), (THIRD, ":"), (THIRD, "-.")]
    curves = [
        PlotCurve(name, seconds, [float("nan") if e.q_mean is None else e.q_mean for e in errors], *look)
        for (name, errors), look in zip(rows, looks, strict=False)
    ]
    caption = "Mean error of joint positions, a horizon ahead"
    return grid([plot("over-horizon", curves, x_label="horizon [s]", unit=unit, log=True, bars=True, caption=caption)])


def recordings(notes: dict[str, Any]) -> dict[str, Any]:
    """Return the notes of the log's reader as facts, with a plot of the delay between control and motion."""
    if not notes:
        return {}
    alignment, rates = notes.get("alignment", {}), notes.get("rates_hz", {})
    facts = [
        ("Files", ", ".join(notes.get("files", []))),
        ("Rows", f"{notes['rows']:,}" if "rows" in notes else ""),
        ("Velocities", str(notes.get("velocity", ""))),
        ("Rates", ", ".join(f"{name} {rate['median']:.0f} Hz" for name, rate in rates.items())),
        ("Interpolated", ", ".join(notes.get("interpolated_groups", []))),
        ("Gaps", str(notes.get("gaps", {}).get("count", ""))),
        ("Delay applied", f"{1e3 * alignment['chosen']:.3g} ms ({alignment['reason']})" if alignment else ""),
    ]
    return {"facts": facts, "alignment": grid([_alignment(alignment)])}


def _alignment(alignment: dict[str, Any]) -> str:
    delays = [1e3 * delay for delay in alignment.get("delays", ())]
    if not delays:
        return ""
    groups = alignment.get("groups", {})
    curves = [PlotCurve("all groups", delays, list(alignment["r2"]), PREDICTED, "-", 2.0)]
    if len(groups) > 1:
        curves += [PlotCurve(None, delays, list(v), THIRD, "-", 0.8, name=name) for name, v in groups.items()]
    chosen = 1e3 * alignment["chosen"]
    step = abs(delays[1] - delays[0]) if len(delays) > 1 else 1.0
    spans = [Span(delays[0], delays[0], ""), Span(chosen - step / 4, chosen + step / 4, "applied")]
    caption = "How well each delay from logged control to motion explains the motion (held-out R²; thin: single groups)"
    return plot("alignment", curves, x_label="delay [ms]", spans=spans, bars=True, caption=caption)


def _summary(title: str, windows: LogSection, units: Sequence[str]) -> Table:
    rows = []
    for what, words in (("q", "position"), ("qd", "velocity")):
        for entry in windows.marks.values():
            percentiles = getattr(entry.model, f"{what}_percentiles")
            for label, unit, errors in entry.means(what, units):
                middle = [quantity(percentiles["50"], unit), interval(percentiles["10"], percentiles["90"], unit)]
                if label:  # percentiles are of the mean over all joints
                    middle = [MISSING, MISSING]
                name, model, *others = _beside(f"{_seconds(entry)}, {words}{label}", errors, unit)
                rows.append([name, model, *middle, *others])
    head = ["Horizon", "Mean", "Median", "p10 – p90", *baseline_titles(), "Better"]
    return Table(f"{title}: {count(windows.starts, 'start')}", head, rows, strong=1)


def _models(entry: LogMark) -> list[StateErrors]:
    return [entry.model, *entry.baselines.values()]


def _seconds(entry: LogMark) -> str:
    return f"{entry.seconds:.3g} s"


def whole_runs(runs: Sequence[RunFit]) -> str:
    """Return the section with a model's residuals over time, by run and coordinate."""
    parts = []
    for number, run in enumerate(runs):
        seconds = [run.begin + run.dt * (k + 1) for k in range(len(run.logged[0]))]
        plots = []
        for i, name in enumerate(run.tangent_names[:_MOST_COORDINATES]):
            rows = run.residuals["model"][i]
            caption = f"{name}: root mean square {digits(fmean(x * x for x in rows) ** 0.5)}"
            curve = PlotCurve("predicted less recorded", seconds, rows, PREDICTED, "-", 1.0)
            words = f"Residual of {name} in {run.run}"
            plots.append(
                plot(f"whole-{number}-{i}", [curve], caption=caption, legend=False, description=words, points=_POINTS)
            )
        parts += [heading(run.run), grid(plots)]
    longest = span(runs[0].horizon * runs[0].dt) if runs else ""
    lead = (
        f"Predicted minus recorded positions (rad or m) of the longest runs, rolled out {longest} at a time, each time "
        "from the recorded state. What repeats with the motion is the model's error; what does not is noise."
    )
    return section("Whole runs", *parts, lead=lead)
