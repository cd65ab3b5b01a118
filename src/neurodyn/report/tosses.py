# SPDX-License-Identifier: Apache-2.0
"""Errors beside recorded trajectories of a floating robot: headline, tables by horizon, and curves over time."""

from typing import Any

from neurodyn.report.errors import error_table
from neurodyn.report.gather import Material
from neurodyn.report.numbers import quantity, share, span, times
from neurodyn.report.page import figure, grid, heading, section
from neurodyn.report.plots import THIRD, TRUTH, Curve, plot
from neurodyn.report.words import best_baseline, count, kinds_of_error


def headline(report: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Return the few figures that matter most, as cards."""
    entries = []
    horizon, seconds = str(report["horizon"]), span(report["horizon"] * report["dt"])
    for key, unit, name in kinds_of_error(report):
        released = quantity(report["releases"][key], unit)
        better = times(best_baseline(report, horizon, key))
        remark = f"from the first states {released}; {better} smaller than the better baseline"
        entries.append((quantity(report[key], unit), f"{name}: mean error over {seconds}", remark))
    if report["finite_fraction"] < 1:
        entries.append((share(report["finite_fraction"]), "of roll-outs stay finite", "the others are left out"))
    return entries


def by_horizon(material: Material) -> str:
    """Return tables of errors beside the baselines, from all starts and from the first states."""
    report, parts = material.report, []
    for part, words in _parts(report):
        for key, unit, name in kinds_of_error(part):
            parts += [heading(f"{name}, {words}"), error_table(part, key, unit, report["dt"])]
    lead = (
        "Open loop: the model gets one recorded state, nothing before it and nothing after it. A sub-trajectory begins "
        f"at every recorded state ({_stride(report)}) that has enough frames behind it. Mean absolute error over all "
        "frames up to a horizon, then over the sub-trajectories; median and tenth to ninetieth percentile are over "
        "sub-trajectories. Better: error of the better baseline, over the model's."
    )
    return section("Errors on recorded trajectories", *parts, lead=lead)


def over_time(material: Material) -> str:
    """Return curves of the error at single frames."""
    report, plots = material.report, []
    for number, (part, words) in enumerate(_parts(report)):
        for key, unit, name in kinds_of_error(part):
            curve = part["curve"][key]
            seconds = [frame * report["dt"] for frame in part["curve"]["frame"]]
            curves = [
                Curve("mean", seconds, curve["mean"]),
                Curve("median", seconds, curve["median"], TRUTH),
                Curve("90th percentile", seconds, curve["p90"], THIRD, "--", 1.1),
            ]
            caption = f"{name}, {words}"
            svg = plot(f"curve-{number}-{key}", curves, x_label="time [s]", unit=unit, log=True, description=caption)
            plots.append(figure(svg, caption))
    return section("Errors over time", grid(plots), lead="Absolute error at a point of time; logarithmic.")


def _parts(report: dict[str, Any]) -> list[tuple[dict[str, Any], str]]:
    released = report["releases"]
    return [
        (report, f"all starts ({report['rollouts']:,})"),
        (released, f"first states ({count(released['rollouts'], 'episode')})"),
    ]


def _stride(report: dict[str, Any]) -> str:
    return "each one" if report["stride"] == 1 else f"one in {report['stride']}"
