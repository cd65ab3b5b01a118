# SPDX-License-Identifier: Apache-2.0
"""The evaluation of a world model as tables on the terminal."""

from typing import Any

from rich.table import Table

from neurodyn.cli.console import terminal

_WIDTH = 120
_MOST_GROUPS = 12


def print_world_model(result: dict[str, Any]) -> None:
    """Print a report of `fit.evaluate_world_model.evaluate_world_model`."""
    console = terminal(_WIDTH)
    console.print(
        f"{result['robot']}: world model, {result['network']} x{result['members']}, {result['parameters']:,} weights, "
        f"on {result['episodes']} recorded episodes ({result['split']}), {result['rollouts']} starts, "
        f"{result['context_frames']} frames of history",
        soft_wrap=True,
    )
    console.print(_errors(result))
    if 1 < len(result["groups"]) <= _MOST_GROUPS:
        console.print(_groups(result))
    console.print(_honesty(result))
    if result["events"]:
        console.print(_events(result))
    for line in _remarks(result):
        console.print(line, soft_wrap=True)


def _errors(result: dict[str, Any]) -> Table:
    names = [name for name in next(iter(result["at_horizon"].values())) if name not in ("seconds", "starts")]
    table = Table("frames", "s", *(f"{what} {name}" for what in ("q", "qd", "all") for name in names))
    for mark, entry in result["at_horizon"].items():
        cells = [_short(entry[name][key]) for key in ("q_mean", "qd_mean", "spreads") for name in names]
        table.add_row(mark, f"{entry['seconds']:.2f}", *cells)
    table.caption = (
        "mean absolute errors at the end of open-loop forecasts, over starts and columns: q [rad or m], qd [rad/s or "
        "m/s], all columns [in their spreads]"
    )
    return table


def _groups(result: dict[str, Any]) -> Table:
    marks = [str(m) for m in result["marks"]]
    picked = [m for m in marks if 0.2 <= float(m) * result["dt"] <= 1.01][-3:] or marks[-1:]
    table = Table("group", "starts", *(f"q {float(m) * result['dt']:.2g} s (hold)" for m in picked))
    for name, group in result["groups"].items():
        cells = [f"{_short(group[m]['model']['q_mean'])} ({_short(group[m]['hold_last']['q_mean'])})" for m in picked]
        table.add_row(name, str(group["starts"]), *cells)
    return table


def _honesty(result: dict[str, Any]) -> Table:
    table = Table("frames", "within 1 sigma", "within 2 sigma", "rank corr. epistemic, error", "of the spread")
    for mark, entry in result["coverage"].items():
        rank = result["epistemic"][mark]
        table.add_row(
            mark,
            _percent(entry["1"]),
            _percent(entry["2"]),
            _short(rank["rank_correlation"]),
            _short(rank["spread_rank_correlation"]),
        )
    table.caption = "a normal distribution has 68.3 % and 95.4 % within one and two standard deviations"
    return table


def _events(result: dict[str, Any]) -> Table:
    table = Table("event", "rate", "recall", "precision", "balanced accuracy")
    for name, entry in result["events"].items():
        keys = ("rate", "recall", "precision", "balanced_accuracy")
        table.add_row(name, *(_percent(entry[key]) for key in keys))
    return table


def _remarks(result: dict[str, Any]) -> list[str]:
    unlike = result["unlike"]
    drawn = [
        f"x{f}: {e['ratio']:.1f} times ({e['chance_above_usual']:.0%})" for f, e in unlike.items() if f[0].isdigit()
    ]
    last = str(result["horizon"])
    noisy = [f"{size}: {_short(entry[last]['spreads'])}" for size, entry in result["noise"].items()]
    return [
        f"finite {result['finite_fraction']:.1%}; {result['env_steps_per_second']:,.0f} frames per second",
        f"states drawn out from their mean: disagreement over the usual (chance that it is above): {', '.join(drawn)}",
        f"noise on the history [spreads], error after {last} frames [spreads]: {', '.join(noisy)}",
    ]


def _short(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"
