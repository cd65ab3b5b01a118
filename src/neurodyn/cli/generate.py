# SPDX-License-Identifier: Apache-2.0
"""`neurodyn generate`: a dataset from a simulator."""

from pathlib import Path
from typing import Annotated

import tyro


def generate(
    robot: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="ROBOT")],
    transitions: int,
    out: Path,
    worlds: int = 512,
    seed: int = 0,
    passive_fraction: float | None = None,
    resume: tyro.conf.FlagCreatePairsOff[bool] = False,
) -> None:
    """Write a dataset from a robot's analytic solver: random states, random grounds, random torques or controllers.

    Args:
        robot: Name of a robot, or the path of a declaration.
        transitions: Number of transitions.
        out: File to write (.h5).
        worlds: Worlds that are simulated at once.
        seed: Seed of states, grounds and torques.
        passive_fraction: Fraction of trajectories without torque, or held at the nominal pose where the robot has a
            controller; by default the robot's own.
        resume: Go on from an interrupted run with the same settings.
    """
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from neurodyn import robots
    from neurodyn.cli.console import terminal
    from neurodyn.sim.generate import generate as run

    columns = (TextColumn("transitions"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = terminal(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=transitions)
        summary = run(
            robots.load(robot),
            transitions=transitions,
            out=out,
            worlds=worlds,
            seed=seed,
            passive_fraction=passive_fraction,
            resume=resume,
            progress=lambda done, _: bar.update(task, completed=done),
        )
    ends = ", ".join(f"{count} {reason}" for reason, count in summary.early_ends.items())
    print(
        f"{summary.transitions:,} transitions in {summary.episodes:,} trajectories (ended early: {ends}; empty: "
        f"{summary.empty}), {summary.seconds:.1f} s, {summary.rate:,.0f} transitions per CPU-second, "
        f"{summary.bytes / 1e6:.1f} MB: {summary.path}"
    )
