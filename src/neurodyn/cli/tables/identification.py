# SPDX-License-Identifier: Apache-2.0
"""The result of an identification as tables on the terminal."""

from typing import Any

from rich.table import Table

from neurodyn.cli.console import terminal

_WIDTH = 120


def print_identification(result: dict[str, Any]) -> None:
    """Print what `fit.identify.identify` returns."""
    console = terminal(_WIDTH)
    networks = f", {result['weights']:,} weights" if result["weights"] else ""
    console.print(
        f"{result['robot']}: {len(result['parameters'])} parameters{networks}, from {result['windows']} windows of "
        f"{result['horizon_s']:g} s out of {result['logs']} logs, in {result['seconds']:.0f} s",
        soft_wrap=True,
    )
    console.print(_parameters(result))
    console.print(_errors(result))
    held = result["held_out"]
    console.print(
        f"mean absolute error at the horizon over {held['starts']:,} windows of the {held['split']} split, positions / "
        f"velocities; in brackets over the {held['moving_starts']:,} that move (mean joint speed above "
        f"{held['moving_above']:g}); starting states: {held['start']}",
        soft_wrap=True,
    )
    for text in result["warnings"]:
        console.print(f"warning: {text}", soft_wrap=True)


def _parameters(result: dict[str, Any]) -> Table:
    networks = any("with_networks" in entry for entry in result["parameters"])
    table = Table("parameter", "value", "95 % interval", "nominal", *(["with networks"] if networks else []))
    for entry in result["parameters"]:
        interval = entry["interval"]
        shown = "not identified" if interval is None else f"{interval[0]:.4g} to {interval[1]:.4g}"
        last = [f"{entry['with_networks']:.4g}"] if networks else []
        table.add_row(entry["name"], f"{entry['value']:.4g}", shown, f"{entry['nominal']:.4g}", *last)
    return table


def _errors(result: dict[str, Any]) -> Table:
    marks = [f"{seconds:g}" for seconds in result["held_out"]["seconds"]]
    table = Table("model", *(f"{mark} s" for mark in marks))
    for name, by_horizon in result["errors"].items():
        table.add_row(name, *(_cell(by_horizon[mark]) for mark in marks))
    table.add_row("sensors' noise alone", *(_cell(result["noise_floor"][mark]) for mark in marks))
    return table


def _cell(entry: dict[str, Any]) -> str:
    q, qd = _short(entry["q_mean"]), _short(entry["qd_mean"])
    return f"{q} / {qd} ({_short(entry['moving']['q_mean'])} / {_short(entry['moving']['qd_mean'])})"


def _short(value: float | None) -> str:
    return "-" if value is None else f"{value:.2g}"
