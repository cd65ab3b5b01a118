# SPDX-License-Identifier: Apache-2.0
"""Errors beside recorded trajectories: tables by horizon, joint and group, and the measured delay."""

from typing import Any

from neurodyn.report.gather import Material
from neurodyn.report.numbers import interval, quantity, times
from neurodyn.report.page import facts, figure, folded, grid, heading, section, table
from neurodyn.report.plots import PREDICTED, THIRD, Curve, Span, plot
from neurodyn.report.words import BASELINES, common_units, count

_MODELS = {"model": "Model", **{name: words.lower() for name, words in BASELINES.items()}}


def at_horizons(material: Material) -> str:
    """Return errors of all and of moving windows, means over joints, beside the baselines."""
    report, units = material.report, common_units(material.robot)
    titles = {
        "all": "All windows",
        "moving": f"Windows that move (mean joint speed above {quantity(report['moving_above'], units[1])})",
    }
    parts = []
    for name, title in titles.items():
        result = report["at_horizon"][name]
        parts += [heading(f"{title}: {count(result['starts'], 'start')}"), _summary(result, units)]
    begin = "the state that past positions make likely" if report.get("start") == "past" else "a recorded state"
    lead = (
        f"Open loop: from {begin}, under recorded torques, without any later look at the recording. Absolute "
        "errors of joints at the horizon itself, mean over joints and starts; percentiles over starts. Better: error "
        "of the better baseline over the model's."
    )
    return section("Errors on recorded trajectories", *parts, lead=lead)


def by_joint(material: Material) -> str:
    """Return errors of single joints over all windows."""
    report, result = material.report, material.report["at_horizon"]["all"]
    spec = material.robot.spec if material.robot else None
    rows = []
    for entry in _marks(result):
        for what, names in (("q", report["q_names"]), ("qd", report["qd_names"])):
            for i, name in enumerate(names):
                # A joint of one degree of freedom has a velocity in its position's unit per second.
                unit = spec.q_units[i] if spec and len(spec.q_units) == len(names) else ""
                unit = f"{unit}/s" if unit and what == "qd" else unit
                label = f"{name}, {'position' if what == 'q' else 'velocity'}, {_seconds(entry)}"
                rows.append([label, *(quantity(entry[model][what][i], unit) for model in _MODELS)])
    return section("By joint", table(["Joint and horizon", *_MODELS.values()], rows, strong=1)) if rows else ""


def by_group(material: Material) -> str:
    """Return errors of the groups of recordings."""
    groups = material.report["groups"]
    if len(groups) < 2:
        return ""
    units = common_units(material.robot)
    parts = [
        folded(f"{name}: {count(result['starts'], 'start')}", _summary(result, units))
        for name, result in groups.items()
    ]
    rows = []
    for name, result in groups.items():
        marks = _marks(result)
        if marks:
            last = marks[-1]
            rows.append([name, f"{result['starts']:,}", _seconds(last), *_cells(last, "q", units[0])])
    head = ["Group", "Starts", "Horizon", *_MODELS.values(), "Better"]
    lead = "Mean joint position error at the longest horizon; every group in full below."
    return section("By group", table(head, rows, strong=3), *parts, lead=lead)


def data(material: Material) -> str:
    """Return what the reader of the log found, with the measured delay between control and motion."""
    notes = material.report.get("notes") or {}
    if not notes:
        return ""
    rates = notes.get("rates_hz", {})
    entries = [
        ("Files", ", ".join(notes.get("files", []))),
        ("Rows", f"{notes['rows']:,}" if "rows" in notes else ""),
        ("Velocities", str(notes.get("velocity", ""))),
        ("Rates", ", ".join(f"{name} {rate['median']:.0f} Hz" for name, rate in rates.items())),
        ("Interpolated", ", ".join(notes.get("interpolated_groups", []))),
        ("Gaps", str(notes.get("gaps", {}).get("count", ""))),
        ("Delay applied", _delay(notes.get("alignment", {}))),
    ]
    return section("The recordings", facts(entries), grid([_alignment(notes.get("alignment", {}))]))


def _alignment(alignment: dict[str, Any]) -> str:
    delays = [1e3 * delay for delay in alignment.get("delays", ())]
    if not delays:
        return ""
    groups = alignment.get("groups", {})
    curves = [Curve("all groups", delays, list(alignment["r2"]), PREDICTED, "-", 2.0)]
    if len(groups) > 1:
        curves += [Curve(None, delays, list(values), THIRD, "-", 0.8) for values in groups.values()]
    chosen = 1e3 * alignment["chosen"]
    step = abs(delays[1] - delays[0]) if len(delays) > 1 else 1.0
    spans = [Span(delays[0], delays[0], ""), Span(chosen - step / 4, chosen + step / 4, "applied")]
    caption = "How well each delay from logged control to motion explains the motion (held-out R²; thin: single groups)"
    svg = plot("alignment", curves, x_label="delay [ms]", unit="", spans=spans, bars=True, description=caption)
    return figure(svg, caption)


def _delay(alignment: dict[str, Any]) -> str:
    return f"{1e3 * alignment['chosen']:.3g} ms ({alignment['reason']})" if alignment else ""


def _summary(result: dict[str, Any], units: tuple[str, str]) -> str:
    rows = []
    for what, unit, words in (("q", units[0], "position"), ("qd", units[1], "velocity")):
        for entry in _marks(result):
            spread = entry["model"][f"{what}_percentiles"]
            model, *others = _cells(entry, what, unit)
            rows.append(
                [
                    f"{_seconds(entry)}, {words}",
                    model,
                    quantity(spread["50"], unit),
                    interval(spread["10"], spread["90"], unit),
                    *others,
                ]
            )
    head = ["Horizon", "Mean", "Median", "p10 – p90", *BASELINES.values(), "Better"]
    return table(head, rows, strong=1) if rows else ""


def _cells(entry: dict[str, Any], what: str, unit: str) -> list[str]:
    means = [quantity(entry[model][f"{what}_mean"], unit) for model in _MODELS]
    return [*means, times(entry["better_than_baselines"][f"{what}_mean"])]


def _marks(result: dict[str, Any]) -> list[dict[str, Any]]:
    return [entry for name, entry in result.items() if name != "starts"]


def _seconds(entry: dict[str, Any]) -> str:
    return f"{entry['seconds']:.3g} s"
