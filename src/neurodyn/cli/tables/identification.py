# SPDX-License-Identifier: Apache-2.0
"""The result of an identification as tables on the terminal."""

from msgspec import UNSET
from rich.table import Table

from neurodyn.cli.console import terminal
from neurodyn.cli.tables.cells import WIDTH, short
from neurodyn.identify.held_out import HorizonErrors
from neurodyn.identify.result import Identified


def print_identification(result: Identified) -> None:
    """Print parameters with intervals, and errors on held-out windows."""
    console = terminal(WIDTH)
    networks = f", {result.weights:,} weights" if result.weights else ""
    console.print(
        f"{result.robot}: {len(result.parameters)} parameters{networks}, from {result.windows} windows of "
        f"{result.horizon_s:g} s out of {result.logs} logs, in {result.seconds:.0f} s",
        soft_wrap=True,
    )
    console.print(_parameters(result))
    console.print(_errors(result))
    held = result.held_out
    console.print(
        f"mean absolute error at the horizon over {held.starts:,} windows of the {held.split} split, positions / "
        f"velocities; in brackets over the {held.moving_starts:,} that move (mean joint speed above "
        f"{held.moving_above:g}); starting states: {held.start}",
        soft_wrap=True,
    )
    for text in result.warnings:
        console.print(f"warning: {text}", soft_wrap=True)


def _parameters(result: Identified) -> Table:
    networks = any(entry.with_networks is not UNSET for entry in result.parameters)
    table = Table("parameter", "value", "95 % interval", "nominal", *(["with networks"] if networks else []))
    for entry in result.parameters:
        interval = entry.interval
        shown = "not identified" if interval is None else f"{interval[0]:.4g} to {interval[1]:.4g}"
        last = [f"{entry.with_networks:.4g}"] if networks else []
        table.add_row(entry.name, f"{entry.value:.4g}", shown, f"{entry.nominal:.4g}", *last)
    return table


def _errors(result: Identified) -> Table:
    marks = [f"{seconds:g}" for seconds in result.held_out.seconds]
    table = Table("model", *(f"{mark} s" for mark in marks))
    for name, by_horizon in result.errors.items():
        table.add_row(name, *(_cell(by_horizon[mark]) for mark in marks))
    table.add_row("sensors' noise alone", *(_cell(result.noise_floor[mark]) for mark in marks))
    return table


def _cell(entry: HorizonErrors) -> str:
    both = [f"{short(found.q_mean)} / {short(found.qd_mean)}" for found in (entry.errors, entry.moving)]
    return f"{both[0]} ({both[1]})"
