# SPDX-License-Identifier: Apache-2.0
"""Which column map reads a log, and which robot the log is of."""

from pathlib import Path

from neurodyn.core.errors import InputError, choices
from neurodyn.core.spec import StateSpec
from neurodyn.data.readers.column_map import ColumnMap, read_column_map
from neurodyn.robots import load, names


def find_reader(reader: str, robot: str | None = None) -> tuple[ColumnMap, StateSpec]:
    """Return the column map that `reader` names, and the coordinates of the robot that the log is of.

    Args:
        reader: Robot that declares a column map, or path of a column map.
        robot: Robot by name or path; None for the one that the map names.

    Raises:
        InputError: There is no such reader or robot, or the map names no robot and none is given.
    """
    path = Path(reader)
    if reader in names() or path.is_dir():
        declared = load(reader)
        if declared.log_path is None:
            raise InputError(f"robot {reader!r} declares no column map for logs; valid: {_valid()}")
        return read_column_map(declared.log_path), load(robot).spec if robot else declared.spec
    if not path.is_file():
        raise InputError(f"unknown reader {reader!r}; valid: {_valid()}")
    columns = read_column_map(path)
    name = robot or columns.robot
    if name is None:
        raise InputError(f"{path}: names no robot; give --robot, or `robot:` in the column map")
    # A robot that a map names by path lies beside the map.
    beside = path.parent / name
    return columns, load(beside if robot is None and name not in names() and beside.exists() else name).spec


def _valid() -> str:
    return f"{choices(name for name in names() if load(name).log_path)}, or the path of a column map (YAML, TOML)"
