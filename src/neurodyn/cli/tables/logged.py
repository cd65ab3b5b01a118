# SPDX-License-Identifier: Apache-2.0
"""Evaluations beside logs on the terminal."""

from rich.console import Console
from rich.table import Table

from neurodyn.cli.tables.cells import headers, means, short
from neurodyn.evaluate.records import Logged, OfLog, Tossed


def print_tossed(console: Console, result: Tossed) -> None:
    """Print errors from all starts, and from the first states of episodes."""
    tail = f"{result.about.rollouts:,} sub-trajectories of {result.about.horizon} frames, one starting state each"
    _print_title(console, result, f": {tail}")
    table = Table(
        "starts", "frames", *(f"model, {name}" for name in headers(result.comparison.summary)), "persistence",
        "constant velocity",
    )  # fmt: skip
    parts = {
        f"all ({result.about.rollouts:,})": result.comparison,
        f"first state ({result.releases.rollouts:,})": result.releases.comparison,
    }
    for name, part in parts.items():
        for index, (horizon, entry) in enumerate(part.by_horizon.items()):
            baselines = part.baselines.persistence[horizon], part.baselines.constant_velocity[horizon]
            beside = [", ".join(means(baseline, 3)) for baseline in baselines]
            table.add_row("" if index else name, horizon, *means(entry, 3), *beside)
        table.add_section()
    console.print(table)
    finite = f"finite {result.comparison.finite_fraction:.1%}"
    console.print(f"means over all frames up to a horizon, then over starts; {finite}", soft_wrap=True)


def print_logged(console: Console, result: Logged) -> None:
    """Print errors at horizons: over all starts, over those that move, and by group of recordings."""
    tail = f"{result.about.rollouts} starts, {result.context_frames} frames of history"
    _print_title(console, result, f", {tail}")
    sections = {
        "all": result.at_horizon["all"],
        f"moving (|qd| > {result.moving_above:g})": result.at_horizon["moving"],
        **(result.groups if len(result.groups) > 1 else {}),
    }
    table = Table("windows", "s", "starts", "q model", "persist.", "const. vel.", "qd model", "persist.", "gain: q, qd")
    table.columns[0].overflow = "fold"
    for name, section in sections.items():
        for index, entry in enumerate(section.marks.values()):
            model, held, moving = entry.model, entry.persistence, entry.constant_velocity
            errors = (model.q_mean, held.q_mean, moving.q_mean, model.qd_mean, held.qd_mean)
            table.add_row(
                "" if index else name, f"{entry.seconds:.2f}", "" if index else str(section.starts),
                *(short(value) for value in errors), ", ".join(map(_gain, entry.better_than_baselines.values())),
                end_section=index == len(section.marks) - 1,
            )  # fmt: skip
    console.print(table)
    console.print(
        "mean absolute error at the end of open-loop roll-outs, over starts and joints [rad or m, rad/s or m/s]; gain: "
        "how many times smaller than the better baseline's (persistence, constant velocity); "
        f"finite {result.finite_fraction:.1%}",
        soft_wrap=True,
    )


def _print_title(console: Console, result: OfLog, tail: str) -> None:
    about = result.about
    network = f"{about.network}, {about.parameters:,} weights" if about.network else about.kind
    episodes = f"{result.episodes} recorded episodes ({result.split})"
    console.print(f"{about.robot}: {network}, on {episodes}{tail}", soft_wrap=True)


def _gain(ratio: float) -> str:
    return f"{ratio:.0f}x" if ratio >= 10 else f"{ratio:.1f}x"
