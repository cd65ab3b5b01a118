# SPDX-License-Identifier: Apache-2.0
"""`neurodyn robots`: the robots that ship with the package, and what is pretrained for each."""

from pathlib import Path


def robots(json: Path | None = None) -> None:
    """List the robots, and what is pretrained for each.

    Args:
        json: File to write the list to, as JSON.
    """
    from rich.console import Console
    from rich.table import Table

    from neurodyn.core.artifacts import write_json
    from neurodyn.core.config import to_dict
    from neurodyn.robots.listing import list_robots

    found = list_robots()
    table = Table("robot", "joints", "controls", "dt [s]", "teacher", "pretrained", "installed")
    for robot in found:
        table.add_row(
            robot.name,
            _shorten(robot.joints),
            _shorten(robot.controls),
            f"{robot.dt:.4g}",
            f"{robot.teacher} x{robot.substeps}",
            ", ".join(robot.pretrained) or "-",
            "yes" if robot.installed else "no: pip install 'neurodyn[robots]'",
        )
    Console().print(table)
    if json is not None:
        write_json(json, {"robots": [to_dict(robot) for robot in found]})


def _shorten(names: tuple[str, ...]) -> str:
    return ", ".join(names) if len(names) <= 3 else f"{names[0]} ... {names[-1]} ({len(names)})"
