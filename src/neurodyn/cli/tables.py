# SPDX-License-Identifier: Apache-2.0
"""Evaluation results as tables on the terminal."""

from typing import Any

from rich.console import Console
from rich.table import Table

from neurodyn.cli.console import terminal
from neurodyn.cli.toss_tables import print_tosses

_WIDTH, _FEW = 120, 3
_UNITS = {
    "base_position_m": ("base", "m"),
    "base_orientation_rad": ("base", "rad"),
    "joint_rad": ("joints", "rad"),
    "joint_m": ("slides", "m"),
}
_FLOORS = {"twice_substeps": "half the step", "perturbed_1e-6": "starts 1e-6 off"}


def print_evaluation(result: dict[str, Any]) -> None:
    """Print a report of `fit.evaluation.evaluate_run`."""
    console = terminal(_WIDTH)
    if "releases" in result:
        print_tosses(console, result)
    elif "at_horizon" in result:
        _print_log(console, result)
    else:
        _print_simulated(console, result)


def _print_simulated(console: Console, result: dict[str, Any]) -> None:
    simulator = result["teacher"]
    title = (
        f"{result['robot']}: {result['network']}, {result['parameters']:,} weights, beside {simulator['solver']} "
        f"x{simulator['substeps']}; {result['rollouts']} passive roll-outs{_circumstances(result)}, "
        f"seed {result['seed']}"
    )
    console.print(title, soft_wrap=True)
    floors = {key: name for key, name in _FLOORS.items() if result["floors"]}
    table = Table("frames", *_headers(result), "hold last", "constant velocity", *floors.values())
    table.columns[0].no_wrap = True
    for horizon, entry in result["by_horizon"].items():
        beside = [_row(result["baselines"][name][horizon]) for name in ("hold_last", "constant_velocity")]
        beside += [_row(result["floors"][key][horizon]) for key in floors]
        table.add_row(horizon, *_figures(entry), *beside)
    console.print(table)
    if len(result.get("grounds", {})) > 1:
        console.print(_ground_table(result))
    console.print("; ".join(_remarks(result)), soft_wrap=True)
    if "stability" in result:
        console.print(_stability(result["stability"]), soft_wrap=True)
    console.print(
        f"{result['env_steps_per_cpu_second']:,.0f} env-steps per CPU-second at {result['worlds']} worlds "
        f"(simulator {result['teacher_env_steps_per_cpu_second']:,.0f})",
        soft_wrap=True,
    )


def _circumstances(result: dict[str, Any]) -> str:
    on = f" on ground {result['ground']}" if result["ground"] else ""
    return on if result["hold"] is None else f"{on}, held by kp {result['hold'][0]:g}, kd {result['hold'][1]:g}"


def _remarks(result: dict[str, Any]) -> list[str]:
    end = str(result["horizon"])
    found = [
        "means over all frames and roll-outs (medians of roll-outs in brackets; others in the same order)",
        f"finite {result['finite_fraction']:.1%}",
    ]
    touching = result["limits"][end]["touching_fraction"]
    if touching:
        found.append(f"{touching:.0%} touch a joint limit")
    if result["driven"] is not None:
        how = "random torques" if result["hold"] is None else "random targets"
        found.append(f"driven by {how}, {end} frames: {_cell(result['driven']['by_horizon'][end])}")
    if result["floors"]:
        found.append(
            f"half the step, starts 1e-6 off: the simulator beside itself, {result['floors']['rollouts']} roll-outs"
        )
    energy = result["energy"]
    if energy is not None:
        drift = " / ".join(f"{energy[k]['drift_J']:.3g}" if energy[k] else "not finite" for k in ("model", "teacher"))
        found.append(f"energy drift model / simulator {drift} J")
    return found


def _ground_table(result: dict[str, Any]) -> Table:
    """Return errors at the end, ground by ground, with those of single joints where they are few."""
    joints = list(result["joints"]) if len(result["joints"]) <= _FEW else []
    table = Table("ground", *_headers(result), *(f"{name} [rad]" for name in joints), "hold last", "half the step")
    end = str(result["horizon"])
    for name, entry in result["grounds"].items():
        floor = _row(entry["floors"]["twice_substeps"][end]) if entry["floors"] else "-"
        single = [_short(entry["joints"][joint]) for joint in joints]
        mean = [_short(entry[key]) for key in _UNITS if f"{key}_percentiles" in result]
        table.add_row(name, *mean, *single, _row(entry["baselines"]["hold_last"][end]), floor)
    return table


def _stability(found: dict[str, Any]) -> str:
    parts = []
    for mode in ("passive", "driven"):
        if mode in found:
            entry = found[mode]
            above = entry["above_ground_fraction"]
            ground = "" if above is None else f", above ground {above:.0%}"
            parts.append(f"{mode}: finite {entry['finite_fraction']:.0%}{ground}")
    return f"{found['frames']:,} frames of {found['worlds']} worlds: {'; '.join(parts)}"


def _headers(result: dict[str, Any]) -> list[str]:
    return [f"{label} [{unit}]" for key, (label, unit) in _UNITS.items() if f"{key}_percentiles" in result]


def _figures(entry: dict[str, Any]) -> list[str]:
    shown = []
    for key in _UNITS:
        if f"{key}_percentiles" in entry:
            median = entry[f"{key}_percentiles"]["50"]
            shown.append(f"{_short(entry[key])} ({_short(median)})")
    return shown


def _cell(entry: dict[str, Any]) -> str:
    return ", ".join(
        f"{_short(entry[key])} {unit}" for key, (_, unit) in _UNITS.items() if f"{key}_percentiles" in entry
    )


def _row(entry: dict[str, Any]) -> str:
    return " / ".join(_short(entry[key]) for key in _UNITS if f"{key}_percentiles" in entry)


def _short(value: float | None) -> str:
    return "-" if value is None else f"{value:.2g}"


def _gain(ratio: float) -> str:
    return f"{ratio:.0f}x" if ratio >= 10 else f"{ratio:.1f}x"


def _print_log(console: Console, result: dict[str, Any]) -> None:
    console.print(
        f"{result['robot']}: {result['network']}, {result['parameters']:,} weights, on {result['episodes']} recorded "
        f"episodes ({result['split']}), {result['rollouts']} starts, {result['context_frames']} frames of history",
        soft_wrap=True,
    )
    sections = {
        "all": result["at_horizon"]["all"],
        f"moving (|qd| > {result['moving_above']:g})": result["at_horizon"]["moving"],
        **(result["groups"] if len(result["groups"]) > 1 else {}),
    }
    table = Table("windows", "s", "starts", "q model", "hold", "const. vel.", "qd model", "hold", "gain: q, qd")
    table.columns[0].overflow = "fold"
    for name, section in sections.items():
        marks = [key for key in section if key != "starts"]
        for index, mark in enumerate(marks):
            entry = section[mark]
            better = entry["better_than_baselines"]
            table.add_row(
                name if index == 0 else "",
                f"{entry['seconds']:.2f}",
                str(section["starts"]) if index == 0 else "",
                _short(entry["model"]["q_mean"]),
                _short(entry["hold_last"]["q_mean"]),
                _short(entry["constant_velocity"]["q_mean"]),
                _short(entry["model"]["qd_mean"]),
                _short(entry["hold_last"]["qd_mean"]),
                f"{_gain(better['q_mean'])}, {_gain(better['qd_mean'])}",
                end_section=index == len(marks) - 1,
            )
    console.print(table)
    console.print(
        "mean absolute error at the end of open-loop roll-outs, over starts and joints [rad or m, rad/s or m/s]; gain: "
        "how many times smaller than the better baseline's (hold the last state, constant velocity); "
        f"finite {result['finite_fraction']:.1%}",
        soft_wrap=True,
    )
