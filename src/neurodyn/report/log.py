# SPDX-License-Identifier: Apache-2.0
"""Errors beside the log of a bolted robot by horizon, joint and group; and what its reader found."""

from typing import Any

from neurodyn.evaluate.records import Logged, LogMark, LogSection, StateErrors
from neurodyn.report.calibration import member_section
from neurodyn.report.numbers import interval, quantity, times
from neurodyn.report.page import Table, facts, figure, folded, grid, section, tables
from neurodyn.report.plots import PREDICTED, THIRD, Curve, Span, plot
from neurodyn.report.words import BASELINES, count, member_parts

_MODELS = ["Model", *(name.lower() for name in BASELINES.values())]


def units(result: Logged) -> tuple[str, str]:
    """Return the units of positions and velocities where all joints share them, else none."""
    found = set(result.q_units)
    unit = found.pop() if len(found) == 1 else ""
    return unit, f"{unit}/s" if unit else ""


def at_horizons(result: Logged) -> list[Table]:
    """Return errors of all and of moving windows, means over joints, beside the baselines."""
    titles = {
        "all": "All windows",
        "moving": f"Windows that move (mean joint speed above {quantity(result.moving_above, units(result)[1])})",
    }
    found = {title: result.at_horizon[name] for name, title in titles.items()}
    return [_summary(title, section, units(result)) for title, section in found.items()]


def by_joint(result: Logged) -> list[Table]:
    """Return errors of single joints over all windows."""
    rows = []
    for entry in result.at_horizon["all"].marks.values():
        for what, names in (("q", result.q_names), ("qd", result.qd_names)):
            for i, name in enumerate(names):
                # A joint of one degree of freedom has a velocity in its position's unit per second.
                unit = result.q_units[i] if len(result.q_units) == len(names) else ""
                unit = f"{unit}/s" if unit and what == "qd" else unit
                label = f"{name}, {'position' if what == 'q' else 'velocity'}, {_seconds(entry)}"
                rows.append([label, *(quantity(getattr(found, what)[i], unit) for found in _models(entry))])
    return [Table("All windows", ["Joint and horizon", *_MODELS], rows, strong=1)]


def by_group(result: Logged) -> list[Table]:
    """Return errors of the groups of recordings, where there are several."""
    rows = []
    for name, found in result.groups.items() if len(result.groups) > 1 else ():
        if found.marks:
            last = list(found.marks.values())[-1]
            rows.append([name, f"{found.starts:,}", _seconds(last), *_cells(last, "q", units(result)[0])])
    head = ["Group", "Starts", "Horizon", *_MODELS, "Better"]
    return [Table("Mean joint position error at the longest horizon", head, rows, strong=3)] if rows else []


def logged_sections(result: Logged, samples: str, training: str) -> list[str]:
    """Return all sections of an evaluation beside the log of a bolted robot."""
    begin = "a state estimated from past positions" if result.start == "past" else "a recorded state"
    lead = (
        f"Open loop: from {begin}, under recorded torques, without any later look at the recording. Absolute "
        "errors of joints at the horizon itself, mean over joints and starts; percentiles over starts. Better: error "
        "of the better baseline over the model's."
    )
    each = [folded(name, _summary(name, found, units(result)).html()) for name, found in result.groups.items()]
    groups = tables(by_group(result))
    return [
        section("Errors on recorded trajectories", *tables(at_horizons(result)), lead=lead),
        samples,
        section("By group", *groups, *(each if groups else [])),
        section("By joint", *tables(by_joint(result))),
        member_section(member_parts(result)),
        recordings(result.notes),
        training,
    ]


def recordings(notes: dict[str, Any]) -> str:
    """Return what the reader of the log found, with the measured delay between control and motion."""
    if not notes:
        return ""
    alignment = notes.get("alignment", {})
    rates = notes.get("rates_hz", {})
    entries = [
        ("Files", ", ".join(notes.get("files", []))),
        ("Rows", f"{notes['rows']:,}" if "rows" in notes else ""),
        ("Velocities", str(notes.get("velocity", ""))),
        ("Rates", ", ".join(f"{name} {rate['median']:.0f} Hz" for name, rate in rates.items())),
        ("Interpolated", ", ".join(notes.get("interpolated_groups", []))),
        ("Gaps", str(notes.get("gaps", {}).get("count", ""))),
        ("Delay applied", f"{1e3 * alignment['chosen']:.3g} ms ({alignment['reason']})" if alignment else ""),
    ]
    return section("The recordings", facts(entries), grid([_alignment(alignment)]))


def _alignment(alignment: dict[str, Any]) -> str:
    delays = [1e3 * delay for delay in alignment.get("delays", ())]
    if not delays:
        return ""
    groups = alignment.get("groups", {})
    curves = [Curve("all groups", delays, list(alignment["r2"]), PREDICTED, "-", 2.0)]
    if len(groups) > 1:
        curves += [Curve(None, delays, list(v), THIRD, "-", 0.8, name=name) for name, v in groups.items()]
    chosen = 1e3 * alignment["chosen"]
    step = abs(delays[1] - delays[0]) if len(delays) > 1 else 1.0
    spans = [Span(delays[0], delays[0], ""), Span(chosen - step / 4, chosen + step / 4, "applied")]
    caption = "How well each delay from logged control to motion explains the motion (held-out R²; thin: single groups)"
    svg = plot("alignment", curves, x_label="delay [ms]", unit="", spans=spans, bars=True, description=caption)
    return figure(svg, caption)


def _summary(title: str, found: LogSection, unit: tuple[str, str]) -> Table:
    rows = []
    for what, one, words in (("q", unit[0], "position"), ("qd", unit[1], "velocity")):
        for entry in found.marks.values():
            percentiles = getattr(entry.model, f"{what}_percentiles")
            model, *others = _cells(entry, what, one)
            middle = quantity(percentiles["50"], one), interval(percentiles["10"], percentiles["90"], one)
            rows.append([f"{_seconds(entry)}, {words}", model, *middle, *others])
    head = ["Horizon", "Mean", "Median", "p10 – p90", *BASELINES.values(), "Better"]
    return Table(f"{title}: {count(found.starts, 'start')}", head, rows, strong=1)


def _models(entry: LogMark) -> tuple[StateErrors, StateErrors, StateErrors]:
    return entry.model, entry.persistence, entry.constant_velocity


def _cells(entry: LogMark, what: str, unit: str) -> list[str]:
    means = [quantity(getattr(found, f"{what}_mean"), unit) for found in _models(entry)]
    return [*means, times(entry.better_than_baselines[f"{what}_mean"])]


def _seconds(entry: LogMark) -> str:
    return f"{entry.seconds:.3g} s"
