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
from neurodyn.core.description.sensors import Sensor, Stream, places_of
from neurodyn.core.description.spec import Channel, StateSpec
from neurodyn.core.errors import InputError, choices, notice, unknown, unreadable
from neurodyn.data.commands import DeclaredCommands
from neurodyn.data.header import StoreHeader
from neurodyn.data.readers.column_map import READERS, ColumnMap, LogFormat, is_log, read_column_map, require_format
from neurodyn.data.readers.draft import infer_map
from neurodyn.data.readers.floating import rotate
from neurodyn.data.readers.logs import open_data
from neurodyn.data.row_layout import RowLayout
from neurodyn.data.store import IN_MEMORY, Store
from neurodyn.robots.assets import has_files, moved_scene
from neurodyn.robots.declaration import Robot
from neurodyn.robots.listing import load, names

_Field = Literal["q", "qd", "control"]
_XYZ = ("x", "y", "z")
_SPINS = ("imu", "gyroscope")


def open_robot_data(
    robot: Robot, data: str | Path, *, memory: int = IN_MEMORY, targets: bool = False, base: bool = True
) -> Store:
    """Open `--data`: an HDF5 store, or an npz or CSV log in the layout that the robot declares.

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
    return _with_ground(store, robot)


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


def open_measured_data(robot: Robot, data: str | Path, *, memory: int = IN_MEMORY) -> Store:
    """Open `--data` for a world model: a store of any measurements, or a log; see `open_robot_data`.

    What is not tracked of a base gives way to what its sensors say (`with_sensed_channels`).
    """
    store = open_robot_data(robot, data, base=False) if is_log(Path(data)) else Store.open(data, memory=memory)
    return with_sensed_channels(robot, store, str(data)) if store.header.base == "unmeasured" else store


def with_sensed_channels(robot: Robot, store: Store, where: str) -> Store:
    """Return a log of an unmeasured base as world models learn it: joints, and what sensors say of the base.

    In place of the pose stand channels in axes of the base: its angular velocity, the direction of gravity and, with
    odometry, its linear velocity. Nothing is estimated.

    Raises:
        InputError: It has no gyroscope or no attitude, or rows without their readings.
    """
    header = store.header
    declared = dict(robot.sensors) | header.sensors
    sensors = {one.stream or name: one for name, one in declared.items()}
    spin = next((one for one in header.streams if one.kind in _SPINS), None)
    attitude = next((one for one in header.streams if one.kind == "orientation"), None)
    if spin is None or attitude is None or store.measured is None:
        kinds = ", ".join(f"{one.name} ({one.kind})" for one in header.streams) or "none"
        raise InputError(
            f"{where}: its base is unmeasured, and a world model needs its angular velocity and the direction of "
            f"gravity; its streams are {kinds}; valid: a gyroscope or imu, and an orientation"
        )
    imu = sensors.get(spin.name, Sensor(kind=spin.kind))

    def read(stream: Stream) -> np.ndarray:
        assert store.measured is not None
        return np.asarray(store.measured, float)[:, places_of(stream, header.streams)]

    angular = _in_base(imu, read(spin)[:, :3])
    own = sensors.get(attitude.name, Sensor(kind="orientation", quaternion=imu.quaternion))
    to_sensor = read(attitude) * [-1.0, -1.0, -1.0, 1.0]  # from the world
    down = rotate(to_sensor, np.broadcast_to([0.0, 0.0, -1.0], (len(to_sensor), 3)))
    parts = {("base_angular_velocity", "rad/s"): angular, ("projected_gravity", "1"): _in_base(own, down)}
    if (way := next((one for one in header.streams if one.kind == "odometry"), None)) is not None:
        sensor = sensors.get(way.name, Sensor(kind="odometry"))
        velocity = _in_base(sensor, read(way)[:, :3]) - np.cross(angular, np.array(sensor.position))
        parts = {("base_linear_velocity", "m/s"): velocity, **parts}
    channels = np.concatenate(list(parts.values()), 1)
    for column, name in zip(channels.T, (f"{name}.{x}" for name, _ in parts for x in _XYZ), strict=True):
        if not np.isfinite(column).all():
            raise InputError(
                f"{where}: {name} has no reading in {int((~np.isfinite(column)).sum())} of {len(column)} rows; valid: "
                "sensors that read in every frame"
            )
    joints = tuple(joint for joint in header.spec.joints if joint.kind != "free")
    described = tuple(Channel(f"{name}.{x}", unit, "base") for name, unit in parts for x in _XYZ)
    spec = msgspec.structs.replace(header.spec, joints=joints, channels=described, contacts=())
    rows = [store.q[:, 7:], store.qd[:, 6:], store.control, channels]
    frames = np.concatenate([np.asarray(part, np.float32) for part in rows], 1)
    plain = msgspec.structs.replace(header, spec=spec, streams=(), sensors={}, base="measured", mechanism=None)
    return dataclasses.replace(store, header=plain, frames=frames, measured=None, spread=None)


def _in_base(sensor: Sensor, vectors: np.ndarray) -> np.ndarray:
    """Return vectors [N, 3] in axes of the base that are in those of a sensor."""
    return rotate(np.broadcast_to(np.array(sensor.quaternion), (len(vectors), 4)), vectors)


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
