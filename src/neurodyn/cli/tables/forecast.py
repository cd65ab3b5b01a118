# SPDX-License-Identifier: Apache-2.0
"""The evaluation of a world model on the terminal."""

from rich.console import Console
from rich.table import Table

from neurodyn.cli.tables.cells import percent, short
from neurodyn.evaluate.records import PERSISTENCE, Forecast

_MOST_GROUPS = 12


def print_forecast(console: Console, result: Forecast) -> None:
    """Print errors by horizon beside other models, calibration, and what else was measured."""
    about = result.about
    console.print(
        f"{about.robot}: world model, {about.network} x{result.members}, {about.parameters:,} weights, "
        f"on {result.episodes} recorded episodes ({result.split}), {about.rollouts} starts, "
        f"{result.context_frames} frames of history",
        soft_wrap=True,
    )
    console.print(_errors(result))
    if 1 < len(result.groups) <= _MOST_GROUPS:
        console.print(_groups(result))
    console.print(_calibration(result))
    if result.events:
        table = Table("event", "rate", "recall", "precision", "balanced accuracy")
        for name, entry in result.events.items():
            table.add_row(
                name, *map(percent, (entry.rate, entry.recall, entry.precision, entry.balanced_accuracy))
            )  # fmt: skip
        console.print(table)
    for line in _remarks(result):
        console.print(line, soft_wrap=True)


def _errors(result: Forecast) -> Table:
    names = list(next(iter(result.at_horizon.values())).by_model)
    named = ["persistence" if name == PERSISTENCE else name for name in names]
    table = Table("frames", "s", *(f"{what} {name}" for what in ("q", "qd", "all") for name in named))
    for mark, entry in result.at_horizon.items():
        found = [entry.by_model[name] for name in names]
        values = [*(f.q_mean for f in found), *(f.qd_mean for f in found), *(f.scaled for f in found)]
        table.add_row(mark, f"{entry.seconds:.2f}", *(short(value, 3) for value in values))
    table.caption = (
        "mean absolute errors at the end of open-loop forecasts, over starts and columns: q [rad or m], qd [rad/s or "
        "m/s], all columns [in their standard deviations]"
    )
    return table


def _groups(result: Forecast) -> Table:
    marks, dt = [str(m) for m in result.marks], result.about.dt
    picked = [m for m in marks if 0.2 <= float(m) * dt <= 1.01][-3:] or marks[-1:]
    table = Table("group", "starts", *(f"q {float(m) * dt:.2g} s (persistence)" for m in picked))
    for name, group in result.groups.items():
        both = [(group.marks[m]["model"].q_mean, group.marks[m][PERSISTENCE].q_mean) for m in picked]
        table.add_row(name, str(group.starts), *(f"{short(q, 3)} ({short(held, 3)})" for q, held in both))
    return table


def _calibration(result: Forecast) -> Table:
    table = Table("frames", "within 1 sigma", "within 2 sigma", "rank corr. epistemic, error", "total, error")
    for mark, entry in result.coverage.items():
        rank = result.epistemic[mark]
        table.add_row(
            mark,
            percent(entry.one_sigma),
            percent(entry.two_sigma),
            short(rank.epistemic_rank, 3),
            short(rank.total_rank, 3),
        )
    table.caption = "a normal distribution has 68.3 % and 95.4 % within one and two standard deviations"
    return table


def _remarks(result: Forecast) -> list[str]:
    drawn = [
        f"x{factor}: {entry.ratio:.1f} times ({entry.chance_above_usual:.0%})"
        for factor, entry in result.out_of_distribution.by_factor.items()
    ]
    last, finite = str(result.about.horizon), f"finite {result.finite_fraction:.1%}"
    noisy = [f"{size}: {short(entry.marks[last].scaled, 3)}" for size, entry in result.noise.items()]
    return [
        f"{finite}; {result.env_steps_per_second or 0.0:,.0f} frames per second",
        "out of distribution (states drawn out from their mean), epistemic standard deviation over the usual (chance "
        f"that it is above): {', '.join(drawn)}",
        f"noise on the history, error after {last} frames [both in standard deviations]: {', '.join(noisy)}",
    ]
