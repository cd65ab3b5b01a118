# SPDX-License-Identifier: Apache-2.0
"""Data of a robot: stores, logs in the layout that it declares, and the ranges that data are meant to cover."""

import dataclasses
from pathlib import Path
from typing import Literal

import msgspec

from neurodyn.core.description.spec import StateSpec
from neurodyn.core.errors import InputError
from neurodyn.data.readers.formats import is_log
from neurodyn.data.readers.logs import open_data
from neurodyn.data.store import Store
from neurodyn.data.stored_rows import IN_MEMORY
from neurodyn.robots import Robot, load
from neurodyn.robots.bundle import has_files, moved_scene

_Field = Literal["q", "qd", "control"]


def open_robot_data(robot: Robot, data: str | Path, *, memory: int = IN_MEMORY, targets: bool = False) -> Store:
    """Open `--data`: an HDF5 store, or an npz or CSV log in the layout that the robot declares.

    Args:
        robot: The robot.
        data: Path of the data.
        memory: Bytes of rows up to which a store is read into memory; those of a larger one stay in its file.
        targets: Whether controls may be targets of a controller where the robot's are torques.

    Raises:
        InputError: The file is missing, damaged or of another robot, or the robot declares no log layout.
    """
    path = Path(data)
    if is_log(path) and robot.log_path is None:
        raise InputError(
            f"{path}: robot {robot.name!r} declares no column map for logs; make a store of it with "
            "`neurodyn import --reader MAP.yaml`, or declare `log: MAP.yaml` beside the robot"
        )
    return _with_ground(open_data(path, robot.spec, robot.log_path, memory=memory, targets=targets), robot)


def _with_ground(store: Store, robot: Robot) -> Store:
    """Return a store whose ground has its files beside the robot, where they are not where they were any more."""
    scene = store.header.scene
    if scene is None or has_files(scene):
        return store
    header = msgspec.structs.replace(store.header, scene=moved_scene(scene, Path(robot.folder)))
    return dataclasses.replace(store, header=header)


def open_measured_data(robot: Robot, data: str | Path, *, memory: int = IN_MEMORY) -> Store:
    """Open `--data` for a world model: a store of whatever was measured, or a log that the robot declares.

    Arguments are those of `open_robot_data`.

    Raises:
        InputError: The file is missing or damaged, or the robot declares no log layout.
    """
    if is_log(Path(data)):
        return open_robot_data(robot, data)
    return Store.open(data, memory=memory)


def declared_ranges(spec: StateSpec) -> dict[str, dict[str, tuple[float, float]]]:
    """Return the sampling range of each coordinate of "q", "qd" and "control" that the robot of `spec` declares.

    Empty where the robot is not one that ships with the package; without the coordinates that have no range.
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
