# SPDX-License-Identifier: Apache-2.0
"""Comparison of runs as tables and as a page."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from neurodyn.core.artifacts import write_text
from neurodyn.core.verdict import grade_of
from neurodyn.evaluate.run_comparison import LEVEL, Family, Mean, RunComparison, RunGroup
from neurodyn.report.numbers import MISSING, count, digits, plus_minus, quantity, span
from neurodyn.report.page import Table, figure, grid, render_page
from neurodyn.report.plots import PlotCurve, curve_style, plot

TITLE = "Runs compared"
LEAD = (
    f"Runs that differ in their seed alone are one row: the mean over them, and its {LEVEL:.0%} interval (Student's t "
    "over the seeds). The best row is first."
)
_MOST_CURVES = 60
_MOST_LETTERS = 40  # maximum length of a setting in a table


def write_comparison(path: Path, result: RunComparison) -> Path:
    """Write the page of a `compare_runs` or `compare_figures` result, atomically, and return its path."""
    write_text(Path(path), render_comparison(result))
    return Path(path)


def render_comparison(result: RunComparison) -> str:
    """Return the page as HTML."""
    runs = sum(len(group.runs) for family in result.families for group in family.groups)
    families = [_family(family, number) for number, family in enumerate(result.families)]
    return render_page(
        TITLE, "comparison.html", title=TITLE, lead=f"{count(runs, 'run')}. {LEAD}", broken=broken_lines(result),
        families=families,
    )  # fmt: skip


def comparison_tables(result: RunComparison) -> list[Table]:
    """Return figures, differing settings and costs of each family of runs."""
    tables = [table for family in result.families for table in (figures(family), settings(family), costs(family))]
    return [table for table in tables if table.rows]


def broken_lines(result: RunComparison) -> list[str]:
    """Return a line for each run that cannot be compared, and one more if there are several families."""
    lines = [f"{entry.run}: left out: {entry.why}" for entry in result.broken]
    if len(result.families) > 1:
        what = "; ".join(family.of for family in result.families)
        lines.append(f"runs were measured differently, and are shown apart: {what}")
    return lines


def figures(family: Family) -> Table:
    """Return the figures of each group of runs, followed by the baselines."""
    names = _figure_names(family)
    rows = [
        [group.name, group.kind, str(len(group.runs)), *(_cell(group.figures.get(name)) for name in names),
         grade_of(group.verdict)]
        for group in family.groups
    ]  # fmt: skip
    for label, known in family.baselines.items():
        cells = [MISSING if name not in known else quantity(known[name].value, known[name].unit) for name in names]
        rows.append([label, "", "", *cells, ""])
    return Table(family.of, ["Run", "Kind", "Seeds", *names, "Verdict"], rows, strong=3)


def settings(family: Family) -> Table:
    """Return the settings that differ between groups; empty if none differ."""
    names = list(family.groups[0].settings)
    rows = [[group.name, *(_setting(group.settings[name]) for name in names)] for group in family.groups]
    return Table("Settings that differ", ["Run", *names], rows if names else [])


def costs(family: Family) -> Table:
    """Return training costs and model sizes, without columns that no run records."""
    columns = {
        "Training": _costs(family, "seconds", span),
        "CPU time": _costs(family, "cpu_seconds", span),
        "Steps": _costs(family, "steps", "{:,.0f}".format),
        "Weights": _costs(family, "parameters", "{:,.0f}".format),
        "Model": _costs(family, "bytes", lambda size: f"{digits(size / 1000)} kB"),
    }
    known = {name: cells for name, cells in columns.items() if any(cell != MISSING for cell in cells)}
    rows = [list(row) for row in zip((group.name for group in family.groups), *known.values(), strict=True)]
    return Table("Training and size", ["Run", *known], rows if known else [])


def single_runs(family: Family) -> Table:
    """Return the figures of each run."""
    names = _figure_names(family)
    rows = []
    for group in family.groups:
        for k, run in enumerate(group.runs):
            cells = [_value(group.figures.get(name), k) for name in names]
            rows.append([run, MISSING if group.seeds[k] is None else str(group.seeds[k]), *cells])
    return Table("Each run", ["Run", "Seed", *names], rows)


def _family(family: Family, number: int) -> dict[str, Any]:
    single = [single_runs(family)] if any(len(group.runs) > 1 for group in family.groups) else []
    return {
        "of": family.of,
        "figures": figures(family),
        "verdicts": [f"{group.name}: {group.verdict}" for group in family.groups if group.verdict != "ok"],
        "plots": grid(_plots(family, number)),
        "tables": [*single, settings(family), costs(family)],
        "shared": [(name, _setting(value)) for name, value in family.common.items()],
    }


def _plots(family: Family, number: int) -> list[str]:
    names = dict.fromkeys(name for group in family.groups for name in group.series)
    return [_plot(name, family.groups, f"compare-{number}-{k}") for k, name in enumerate(names)]


def _plot(name: str, groups: Sequence[RunGroup], key: str) -> str:
    """Return a plot of all runs: one colour per group, one line per run."""
    curves = []
    for number, group in enumerate(groups):
        colour, style = curve_style(number)
        for k, series in enumerate(group.series.get(name, ())):
            values = [float("nan") if value is None else value for value in series.y]
            label = group.name if k == 0 else None
            curves.append(PlotCurve(label, series.x, values, colour, style, 1.3, name=group.name))
    shown = [series for group in groups for series in group.series.get(name, ())]
    first, log = shown[0], all(series.log for series in shown)
    svg = plot(
        key, curves[:_MOST_CURVES], x_label=first.x_label, unit=first.unit, log=log, description=name,
        bars=max(len(series.x) for series in shown) < 8,
    )  # fmt: skip
    left_out = f" (the first {_MOST_CURVES} of {len(curves)} runs)" if len(curves) > _MOST_CURVES else ""
    return figure(svg, name + left_out)


def _figure_names(family: Family) -> list[str]:
    return list(dict.fromkeys(name for group in family.groups for name in group.figures))


def _cell(mean: Mean | None) -> str:
    if mean is None:
        return MISSING
    if mean.mean is None and mean.values:
        return f"not finite in {mean.missing} of {len(mean.values)}"
    return plus_minus(mean.mean, mean.half, mean.unit)


def _value(mean: Mean | None, k: int) -> str:
    return MISSING if mean is None else quantity(mean.values[k], mean.unit)


def _setting(value: Any) -> str:
    if value is None:
        return MISSING
    text = ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
    return text if len(text) <= _MOST_LETTERS else f"{text[: _MOST_LETTERS - 1]}…"


def _costs(family: Family, field: str, text: Callable[[float], str]) -> list[str]:
    means = [group.cost[field].mean for group in family.groups]
    return [MISSING if mean is None else text(mean) for mean in means]
