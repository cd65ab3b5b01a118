# SPDX-License-Identifier: Apache-2.0
"""Data of a robot: opening stores and logs in its layout, its sampling ranges, and readers of logs."""

import dataclasses
import math
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np
from msgspec import UNSET

from neurodyn.core.config import read_config, read_plain
from neurodyn.core.description.drive import Drive
from neurodyn.core.description.scene import IDENTITY
from neurodyn.core.description.spec import StateSpec
from neurodyn.core.errors import InputError, choices, notice, unknown, unreadable
from neurodyn.data.commands import DeclaredCommands
from neurodyn.data.header import StoreHeader
from neurodyn.data.readers.column_map import READERS, ColumnMap, LogFormat, is_log, read_column_map, require_format
from neurodyn.data.readers.draft import infer_map
from neurodyn.data.readers.logs import open_data
from neurodyn.data.row_layout import RowLayout
from neurodyn.data.store import IN_MEMORY, Store
from neurodyn.robots.assets import has_files, moved_scene
from neurodyn.robots.declaration import Robot
from neurodyn.robots.listing import load, names

_Field = Literal["q", "qd", "control"]


def open_robot_data(
    robot: Robot, data: str | Path, *, memory: int = IN_MEMORY, targets: bool = False, base: bool = True
) -> Store:
    """Open `--data`: an HDF5 store, or an npz or CSV log in the layout that the robot declares.

    A log of a floating robot that names no ground was recorded on the declared one.

    Args:
        robot: The robot.
        data: Path of the data.
        memory: Stores up to this size are read into memory [bytes]; larger ones are read from their file.
        targets: Whether controls may be targets of a controller if the robot's are torques.
        base: Whether pose and velocity of a floating base must be known.

    Raises:
        InputError: The file is missing, damaged or of another robot, the robot declares no log layout, or the base is
            unmeasured.
    """
    path = Path(data)
    if is_log(path) and robot.log_path is None:
        raise InputError(
            f"{path}: robot {robot.name!r} declares no column map for logs; make a store of it with "
            "`neurodyn import --reader MAP.yaml`, or declare `log: MAP.yaml` beside the robot"
        )
    store = open_data(path, robot.spec, robot.log_path, memory=memory, targets=targets)
    if base:
        store.require_base(str(path))
    return on_declared_ground(robot, _with_ground(store, robot))


def drives_of_log(robot: Robot, header: StoreHeader) -> dict[str, Drive]:
    """Return the drives that follow the targets of a log; none for a log of the robot's own commands.

    If the log does not have them, PD drives with `gains: hold` of the declaration are taken, with a notice.

    Raises:
        InputError: The log holds targets, and nothing tells how they are followed.
    """
    if header.spec.control_kind != "target" or robot.command != "torque":
        return {}
    if header.drives:
        return header.drives
    held = robot.hold_gains()
    if held is None:
        raise InputError(
            f"the data of {robot.name!r} hold position targets, and nothing says which gains follow them; valid: "
            '`drives: {"*": {kind: pd, kp: ..., kd: ...}}` in the column map, `gains` in the declaration, or torques'
        )
    notice(f"robot {robot.name!r}: the log holds targets without drives; taken for them: gains.hold")
    return {
        name: Drive(kind="pd", kp=kp, kd=kd, effort_limit=effort)
        for (name, effort), kp, kd in zip(robot.actuated.items(), *held, strict=True)
    }


def as_logged(robot: Robot, header: StoreHeader) -> Robot:
    """Return a robot whose controls are those of its data: for a log of targets, behind the log's drives.

    Raises:
        InputError: The drives are not known, or do not fit the robot.
    """
    drives = drives_of_log(robot, header)
    return robot.behind(drives) if drives else robot


def on_declared_ground(robot: Robot, store: Store) -> Store:
    """Return a log of a floating robot on its declared ground, unless the log names another."""
    scene = robot.named_ground() if robot.spec.floating else None
    if store.header.source != "log" or store.header.scene is not None or scene is None or not scene.shapes:
        return store
    pose = np.tile(np.array(IDENTITY, np.float32), (len(store.table), 1))
    return dataclasses.replace(store, header=msgspec.structs.replace(store.header, scene=scene), ground=pose)


def _with_ground(store: Store, robot: Robot) -> Store:
    """Return a store that refers to the ground files in the folder of the robot, if the original ones are missing."""
    scene = store.header.scene
    if scene is None or has_files(scene):
        return store
    header = msgspec.structs.replace(store.header, scene=moved_scene(scene, Path(robot.folder)))
    return dataclasses.replace(store, header=header)


def declared_ranges(spec: StateSpec) -> dict[str, dict[str, tuple[float, float]]]:
    """Return the sampling range of each coordinate of "q", "qd" and "control" of a shipped robot.

    Coordinates without a range are left out; empty for a robot that is not known by name.
    """
    try:
        robot = load(spec.robot)
    except InputError:
        return {}
    fields: dict[_Field, tuple[str, ...]] = {"q": spec.q_names, "qd": spec.qd_names, "control": spec.controls}
    ranges: dict[str, dict[str, tuple[float, float]]] = {}
    for field, coordinates in fields.items():
        ranges[field] = {}
        for name in coordinates:
            try:
                lower, upper = robot.sampling_interval(field, name)
            except (InputError, KeyError):
                continue  # nothing declared, or a position of a ball or free joint
            if lower < upper:
                ranges[field][name] = (lower, upper)
    return ranges


ROWS = "rwm-csv"
"""Reader of headerless rows (Robotic World Model) in the layout that a robot declares."""


def find_rows(reader: str, robot: str | None = None) -> RowLayout | None:
    """Return the layout of headerless rows that `reader` names; None for another kind of reader.

    It is `ROWS`, for the layout that the robot (name or path) declares, or the path of a layout (format: rows).
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


def declared_commands(robot: Robot) -> DeclaredCommands:
    """Return what a robot's declaration says about its commands."""
    limits: dict[str, tuple[float, float]] = {}
    for name, effort in robot.actuated.items():
        drive = robot.drives.get(name)
        if drive is not None and drive.command_range is not UNSET:
            limits[name] = drive.command_range
        elif robot.command == "torque" and effort is not None and 0.0 < effort < math.inf:
            limits[name] = -effort, effort
    return DeclaredCommands(robot.drives, limits)


def find_map(log: Path, robot: str) -> tuple[ColumnMap, Robot]:
    """Return a column map for a log of a recognised format, and its robot (name or path).

    The map that the robot declares is used if it is for the log's format; otherwise columns are matched by joint names.
    """
    declared, name = load(robot), require_format(log)
    if declared.log_path is not None:
        columns = read_column_map(declared.log_path)
        if columns.format == name:
            return columns, declared
    reader = READERS[name]
    if not isinstance(reader, LogFormat):
        raise InputError(f"{log}: the format {name!r} needs a column map; give --reader MAP.yaml")
    return infer_map(reader.source(log), name, declared.spec), declared


def find_reader(reader: str, robot: str | None = None) -> tuple[ColumnMap, Robot]:
    """Return the column map that `reader` names, and the log's robot.

    Args:
        reader: Robot that declares a column map, or path of a column map.
        robot: Robot by name or path; None for the one that the map names.
    """
    path = Path(reader)
    if reader in names() or path.is_dir():
        declared = load(reader)
        if declared.log_path is None:
            raise InputError(f"robot {reader!r} declares no column map for logs; valid: {choices(_readers())}")
        return read_column_map(declared.log_path), load(robot) if robot else declared
    if not path.is_file():
        raise unknown("reader", reader, _readers(), "the path of a column map or a layout of rows (YAML, TOML)")
    columns = read_column_map(path)
    name = robot or columns.robot
    if name is None:
        raise InputError(f"{path}: names no robot; give --robot, or `robot:` in the column map")
    # A robot path in a map is relative to the map; made absolute, because "./go2" is not the name of a shipped robot.
    beside = (path.parent / name).resolve()
    known = robot is not None or name in names()
    if not known and not beside.exists() and Path(name).suffix and not Path(name).exists():
        raise unreadable(beside, FileNotFoundError(), "the declaration of a robot, which the column map names")
    return columns, load(name if known or not beside.exists() else beside)


def _readers() -> list[str]:
    return [*(name for name in names() if load(name).log_path), ROWS]
