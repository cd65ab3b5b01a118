# SPDX-License-Identifier: Apache-2.0
"""Which column map or layout of rows reads a log, and which robot the log is of."""

from pathlib import Path

from neurodyn.core.config import read_config, read_plain
from neurodyn.core.description.spec import StateSpec
from neurodyn.core.errors import InputError, choices, unknown
from neurodyn.data.readers.column_map import ColumnMap, read_column_map
from neurodyn.data.readers.draft import drafted
from neurodyn.data.readers.formats import READERS, LogFormat, require_format
from neurodyn.data.rows import RowLayout
from neurodyn.robots import load, names

ROWS = "rwm-csv"
"""Reader of headerless rows in the layout that a robot declares, that of Robotic World Model."""


def find_rows(reader: str, robot: str | None = None) -> RowLayout | None:
    """Return the layout of headerless rows that `reader` names; None where it names another kind of reader.

    Args:
        reader: "rwm-csv" for the layout that the robot declares, or path of a layout (format: rows).
        robot: Robot by name or path.

    Raises:
        InputError: The robot declares none or is not given, or the file does not describe a layout.
    """
    if reader == ROWS:
        declared = None if robot is None else load(robot)
        if declared is None or declared.rows_path is None:
            trouble = "reads the rows of a robot" if robot is None else f"robot {robot!r} declares no rows"
            valid = choices(name for name in names() if load(name).rows_path)
            raise InputError(f"reader {ROWS!r}: {trouble}; give --robot; valid: {valid}, or a layout's path as reader")
        return read_config(declared.rows_path, RowLayout)
    path = Path(reader)
    if not path.is_file() or path.suffix.lower() not in {".yaml", ".yml", ".toml", ".json"}:
        return None
    tree = read_plain(path)
    return read_config(path, RowLayout) if isinstance(tree, dict) and tree.get("format") == "rows" else None


def find_map(log: Path, robot: str) -> tuple[ColumnMap, StateSpec]:
    """Return a column map for a log whose format is recognised, and the coordinates of the robot that it is of.

    Args:
        log: File or folder.
        robot: Robot by name or path. The map that it declares counts where that is for the log's format; otherwise
            columns are found by the names of its joints.

    Raises:
        InputError: The log is of no known format, or has no column that is named as a joint is.
    """
    declared, name = load(robot), require_format(log)
    if declared.log_path is not None:
        columns = read_column_map(declared.log_path)
        if columns.format == name:
            return columns, declared.spec
    reader = READERS[name]
    if not isinstance(reader, LogFormat):
        raise InputError(f"{log}: the format {name!r} needs a column map; give --reader MAP.yaml")
    return drafted(reader.source(log), name, declared.spec), declared.spec


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
            raise InputError(f"robot {reader!r} declares no column map for logs; valid: {choices(_readers())}")
        return read_column_map(declared.log_path), load(robot).spec if robot else declared.spec
    if not path.is_file():
        raise unknown("reader", reader, _readers(), "the path of a column map or a layout of rows (YAML, TOML)")
    columns = read_column_map(path)
    name = robot or columns.robot
    if name is None:
        raise InputError(f"{path}: names no robot; give --robot, or `robot:` in the column map")
    # A robot that a map names by path lies beside the map.
    beside = path.parent / name
    return columns, load(beside if robot is None and name not in names() and beside.exists() else name).spec


def _readers() -> list[str]:
    return [*(name for name in names() if load(name).log_path), ROWS]
