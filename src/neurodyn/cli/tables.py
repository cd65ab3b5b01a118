# SPDX-License-Identifier: Apache-2.0
"""Evaluation results as tables on the terminal."""

from typing import Any

from rich.console import Console
from rich.table import Table

_WIDTH = 120
_UNITS = {"base_position_m": ("base", "m"), "joint_rad": ("joints", "rad"), "joint_m": ("slides", "m")}


def print_evaluation(result: dict[str, Any]) -> None:
    """Print a report of `fit.evaluation.evaluate_run`."""
    console = Console(markup=False)  # units stand in brackets
    if not console.is_terminal:
        console.width = max(console.width, _WIDTH)  # a file has no edge at which to cut names
    if "at_horizon" in result:
        _print_log(console, result)
    else:
        _print_simulated(console, result)


def _print_simulated(console: Console, result: dict[str, Any]) -> None:
    title = (
        f"{result['robot']}: {result['network']}, {result['parameters']:,} weights, beside "
        f"{result['teacher']['solver']} x{result['teacher']['substeps']}; {result['rollouts']} passive roll-outs, "
        f"seed {result['seed']}"
    )
    console.print(title, soft_wrap=True)
    table = Table("frames", *_headers(result), "hold last", "constant velocity", "touch a limit")
    for horizon, entry in result["by_horizon"].items():
        baselines = [_cell(result["baselines"][name][horizon]) for name in ("hold_last", "constant_velocity")]
        touching = result["limits"][horizon]["touching_fraction"]
        table.add_row(horizon, *_figures(entry), *baselines, f"{touching:.0%}")
    console.print(table)
    driven = _cell(result["driven"]["by_horizon"][str(result["horizon"])])
    energy = result["energy"]
    drift = " / ".join(f"{energy[k]['drift_J']:.3g}" if energy[k] else "not finite" for k in ("model", "teacher"))
    console.print(
        "means over all frames and roll-outs (medians of roll-outs in brackets); finite "
        f"{result['finite_fraction']:.1%}; driven by random torques, {result['horizon']} frames: {driven}; "
        f"energy drift model / teacher {drift} J",
        soft_wrap=True,
    )
    console.print(
        f"{result['env_steps_per_cpu_second']:,.0f} env-steps per CPU-second at {result['worlds']} worlds "
        f"(teacher {result['teacher_env_steps_per_cpu_second']:,.0f})",
        soft_wrap=True,
    )


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
