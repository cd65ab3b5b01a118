# SPDX-License-Identifier: Apache-2.0
"""`neurodyn robots`: the robots that ship with the package, and what is pretrained for each."""

from pathlib import Path


def robots(json: Path | None = None) -> None:
    """List the robots, and what is pretrained for each.

    Args:
        json: File to write the list to, as JSON.
    """
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    from neurodyn.core.artifacts import write_json
    from neurodyn.core.config import to_dict
    from neurodyn.robots.listing import list_robots

    found = list_robots()
    table = Table("robot", "joints", "controls", "dt [s]", "teacher", "pretrained", box=SIMPLE_HEAD, pad_edge=False)
    for column in table.columns:
        column.no_wrap = True
    for robot in found:
        table.add_row(
            robot.name,
            _shorten(robot.joints),
            "all" if robot.controls == robot.joints else _shorten(robot.controls) or "-",
            f"{robot.dt:.3g}",
            f"{robot.teacher} x{robot.substeps}",
            ", ".join(robot.pretrained) or "-",
        )
    Console(width=max(Console().width, 128)).print(table)
    for robot in found:
        for model, measured in robot.measured.items():
            errors = ", ".join(f"{value:.2g} {_UNITS[key]}" for key, value in measured.errors.items())
            print(f"{model}: {errors}; {measured.what}, {measured.rollouts:,} roll-outs of {measured.horizon} frames")
    missing = [robot.name for robot in found if not robot.installed]
    if missing:
        print(f"Not installed: {', '.join(missing)}; install with: pip install 'neurodyn[robots]'")
    if json is not None:
        write_json(json, {"robots": [to_dict(robot) for robot in found]})


_UNITS = {
    "base_position_m": "m (base)",
    "base_orientation_rad": "rad (base)",
    "joint_rad": "rad (joints)",
    "joint_m": "m (joints)",
}


def _shorten(names: tuple[str, ...]) -> str:
    return ", ".join(names) if len(names) <= 3 else f"{names[0]} ... ({len(names)})"
