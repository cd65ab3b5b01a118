# SPDX-License-Identifier: Apache-2.0
"""Errors beside the simulator: tables by horizon, curves over time, limits, energy."""

from typing import Any

from neurodyn.report.gather import Material
from neurodyn.report.numbers import digits, interval, quantity, share, span, times
from neurodyn.report.page import figure, grid, heading, section, table
from neurodyn.report.plots import THIRD, TRUTH, Curve, plot
from neurodyn.report.words import BASELINES, FLOORS, best_baseline, count, kinds_of_error, modes


def by_horizon(material: Material) -> str:
    """Return tables of errors beside the baselines."""
    parts = []
    for mode, title in modes(material.report):
        result = _result(material.report, mode)
        for key, unit, name in kinds_of_error(result):
            parts += [heading(f"{name}, {title} ({count(result['rollouts'], 'roll-out')})")]
            parts += [error_table(result, key, unit, material.report["dt"])]
    lead = (
        "Mean absolute error over all frames up to a horizon and over all roll-outs from the same starts; median and "
        "tenth to ninetieth percentile are over roll-outs. Hold last: nothing moves. Constant velocity: velocities "
        "stay as they are. Better: error of the better of the two, over the model's."
    )
    return section("Errors by horizon", *parts, lead=lead)


def floors(material: Material) -> str:
    """Return how far the simulator is from itself: with half the step, and from starts a millionth off."""
    report = material.report
    found, dt = report.get("floors"), report["dt"]
    if not found:
        return ""
    parts = []
    for key, unit, name in kinds_of_error(report):
        rows = [
            [
                f"{int(horizon):,} frames ({span(int(horizon) * dt)})",
                quantity(entry[key], unit),
                *(quantity(found[floor][horizon][key], unit) for floor in FLOORS),
            ]
            for horizon, entry in report["by_horizon"].items()
        ]
        parts += [heading(name), table(["Horizon", "Neural", *FLOORS.values()], rows, strong=1)]
    lead = (
        f"The simulator beside itself, over {count(found['rollouts'], 'roll-out')}: with twice the substeps, which is "
        "its own discretisation error, and from starts that are a millionth off in every coordinate, which is the "
        "limit of predictability."
    )
    return section("What the simulator is sure of", *parts, lead=lead)


def grounds(material: Material) -> str:
    """Return errors ground by ground."""
    report = material.report
    if len(report.get("grounds", {})) < 2:
        return ""
    kinds = kinds_of_error(report)
    rows = []
    for name, entry in report["grounds"].items():
        cells = [name, *(quantity(entry[key], unit) for key, unit, _ in kinds)]
        held = entry["baselines"]["hold_last"][str(report["horizon"])]
        rows.append([*cells, *(quantity(held[key], unit) for key, unit, _ in kinds)])
    head = ["Ground", *(name for *_, name in kinds), *(f"Hold last: {name.lower()}" for *_, name in kinds)]
    lead = (
        f"Mean errors over {span(report['horizon'] * report['dt'])}, from {report['rollouts']:,} starts on each ground."
    )
    return section("By ground", table(head, rows), lead=lead)


def stability(material: Material) -> str:
    """Return what becomes of very long roll-outs."""
    found = material.report.get("stability")
    if not found:
        return ""
    rows = []
    for mode, title in modes(material.report):
        if mode not in found:
            continue
        entry = found[mode]
        above, deepest = entry["above_ground_fraction"], entry["deepest_m"]
        rows.append(
            [
                _capital(title),
                share(entry["finite_fraction"]),
                "–" if above is None else share(above),
                "–" if deepest is None else quantity(deepest, "m"),
            ]
        )
    head = ["", "Stay finite", "Stay above ground", "Deepest contact point"]
    seconds = span(found["frames"] * material.report["dt"])
    lead = (
        f"{count(found['worlds'], 'roll-out')} of {found['frames']:,} frames ({seconds}). Above ground: "
        f"no contact point is ever deeper than {found['deepest_allowed_m']:g} m."
    )
    return section("Long roll-outs", table(head, rows), lead=lead)


def over_time(material: Material) -> str:
    """Return curves of the error at single frames."""
    dt = material.report["dt"]
    plots = []
    for mode, title in modes(material.report):
        result = _result(material.report, mode)
        for key, unit, name in kinds_of_error(result):
            curve = result["curve"].get(key)
            if curve is None:
                continue
            seconds = [frame * dt for frame in result["curve"]["frame"]]
            curves = [
                Curve("mean", seconds, curve["mean"]),
                Curve("median", seconds, curve["median"], TRUTH),
                Curve("90th percentile", seconds, curve["p90"], THIRD, "--", 1.1),
            ]
            caption = f"{name}, {title}"
            svg = plot(f"curve-{mode}-{key}", curves, x_label="time [s]", unit=unit, log=True, description=caption)
            plots.append(figure(svg, caption))
    lead = "Absolute error at a point of time, over the roll-outs; logarithmic."
    return section("Errors over time", grid(plots), lead=lead)


def limits(material: Material) -> str:
    """Return errors split into roll-outs that reach a joint limit and those that do not."""
    report = material.report
    splits = [
        (f"{_capital(title)}, {span(int(horizon) * report['dt'])}", split)
        for mode, title in modes(report)
        for horizon, split in _result(report, mode)["limits"].items()
    ]
    if all(split["touching_fraction"] == 0 for _, split in splits):
        return ""
    parts = []
    for key, unit, name in kinds_of_error(report):
        rows = [
            [
                title,
                *_mean_and_median(split["not_touching"], key, unit),
                share(split["touching_fraction"]),
                *_mean_and_median(split["touching"], key, unit),
            ]
            for title, split in splits
        ]
        head = ["Horizon", "Free: mean", "median", "Touching", "Touching: mean", "median"]
        parts += [heading(name), table(head, rows)]
    lead = (
        "An impact magnifies whatever error precedes it, so that a few roll-outs with impacts can make up most of a "
        "mean. Free: the simulator stays clear of all joint limits up to the horizon; touching: the others, with their "
        "share."
    )
    return section("Roll-outs that touch a limit", *parts, lead=lead)


def energy(material: Material) -> str:
    """Return how far the energy of passive roll-outs drifts."""
    drift, dt = material.report.get("energy"), material.report["dt"]
    if not drift or drift["model"] is None:
        return ""
    seconds = [frame * dt for frame in drift["frames"]]
    curves = [Curve("neural", seconds, drift["model"]["curve_J"])]
    rows = [_energy_row("Neural", drift["model"])]
    if drift["teacher"] is not None:
        curves.append(Curve("analytic", seconds, drift["teacher"]["curve_J"], TRUTH))
        rows.append(_energy_row("Analytic", drift["teacher"]))
    caption = "Mean distance of the total energy from its start"
    svg = plot("energy", curves, x_label="time [s]", unit="J", log=True, description=caption)
    head = ["", "Mean drift", "Median at the end", "p10 – p90 at the end", "Range over all roll-outs"]
    lead = (
        "How far the total energy moves from its start without torque. Joint limits and friction take energy away, and "
        "the simulator's own integrator drifts, so that the two are to be compared with each other."
    )
    return section("Energy", grid([figure(svg, caption)]), table(head, rows), lead=lead)


def speed(material: Material) -> str:
    """Return throughput of model and simulator."""
    report = material.report
    model, simulator = report["env_steps_per_cpu_second"], report["teacher_env_steps_per_cpu_second"]
    rows = [
        ["Neural", f"{model:,.0f}", times(model / simulator), f"{report['env_steps_per_second']:,.0f}"],
        ["Analytic", f"{simulator:,.0f}", times(1.0), ""],
    ]
    head = ["", "Frames per CPU-second", "Relative", "Frames per second of wall time"]
    lead = f"Frames of {digits(1e3 * report['dt'])} ms of one robot, {report['worlds']} worlds at once, kernels warm."
    return section("Throughput", table(head, rows), lead=lead)


def _result(report: dict[str, Any], mode: str) -> dict[str, Any]:
    return report if mode == "passive" else report["driven"]


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def error_table(result: dict[str, Any], key: str, unit: str, dt: float) -> str:
    """Return the table of one error by horizon, beside the baselines."""
    rows = []
    for horizon, entry in result["by_horizon"].items():
        spread = entry[f"{key}_percentiles"]
        rows.append(
            [
                f"{int(horizon):,} frames ({span(int(horizon) * dt)})",
                quantity(entry[key], unit),
                quantity(spread["50"], unit),
                interval(spread["10"], spread["90"], unit),
                *(quantity(result["baselines"][name][horizon][key], unit) for name in BASELINES),
                times(best_baseline(result, horizon, key)),
            ]
        )
    head = ["Horizon", "Mean", "Median", "p10 – p90", *BASELINES.values(), "Better"]
    return table(head, rows, strong=1)


def _mean_and_median(summary: dict[str, Any], key: str, unit: str) -> list[str]:
    return [quantity(summary[key], unit), quantity(summary[f"{key}_percentiles"]["50"], unit)]


def _energy_row(name: str, drift: dict[str, Any]) -> list[str]:
    spread = drift["final_percentiles_J"]
    return [
        name,
        quantity(drift["drift_J"], "J"),
        quantity(spread["50"], "J"),
        interval(spread["10"], spread["90"], "J"),
        quantity(drift["scale_J"], "J"),
    ]
