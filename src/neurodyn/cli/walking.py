# SPDX-License-Identifier: Apache-2.0
"""`neurodyn control ROBOT --planner mpc|imitation`: quadrupeds that walk as commanded."""

from pathlib import Path


def walk_robot(
    name: str,
    *,
    planner: str,
    model: str | None,
    plant: str,
    episodes: int,
    seconds: float,
    seed: int,
    settings: Path | None,
    gait: str | None,
    command: tuple[float, float, float] | None,
    ground: str | None,
    out: Path | None,
    json: Path | None,
) -> None:
    """Let a quadruped walk; arguments as of `neurodyn control`."""
    from neurodyn.cli.tables.results import print_tables
    from neurodyn.cli.terminal.console import claimed, keep_result
    from neurodyn.cli.terminal.progress import ProgressBar
    from neurodyn.control.mpc.commands import Commands
    from neurodyn.control.mpc.plant import walking_plant
    from neurodyn.control.mpc.report import walk_headline, walk_tables, write_walk_report
    from neurodyn.control.mpc.walk import walk
    from neurodyn.control.mpc.walker import IMITATION, walker
    from neurodyn.core.errors import InputError
    from neurodyn.core.verdict import require_usable
    from neurodyn.robots import load

    if (planner == IMITATION) != (model is not None):
        raise InputError(
            "--planner imitation needs --model FOLDER, made by `neurodyn imitate`"
            if model is None
            else "--planner mpc takes no --model: its model is a single rigid body with the robot's mass"
        )
    if not 0 < seconds < float("inf"):
        raise InputError(f"--seconds is {seconds:g}; valid: above 0")
    with claimed(json, out):
        where = walking_plant(load(name), plant, ground)
        controller, law, chosen = walker(where, gait=gait, settings=settings, imitation=model)
        commands = Commands.drawn(episodes, seconds, seed) if command is None else Commands.steady(command, episodes)
        with ProgressBar(f"{name} walks in {plant}"):
            result, path = walk(where, controller, commands, seconds=seconds, seed=seed, names=(law, chosen))
        print_tables(walk_headline(result), walk_tables(result))
        keep_result(result, json, out, lambda page: write_walk_report(page, where, result, path))
    require_usable(str(result.verdict))
    print(f"verdict: {result.verdict}")
