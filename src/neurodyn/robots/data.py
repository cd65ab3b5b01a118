# SPDX-License-Identifier: Apache-2.0
"""Trajectories for training and evaluation: a store, or a log that the robot declares a column map for."""

from pathlib import Path

from neurodyn.core.errors import InputError
from neurodyn.data.readers.column_map import is_log
from neurodyn.data.readers.logs import open_data
from neurodyn.data.store import Store
from neurodyn.robots import Robot


def open_robot_data(robot: Robot, data: str | Path) -> Store:
    """Open `--data`: an HDF5 store, or an npz or CSV log in the layout that the robot declares.

    Raises:
        InputError: The file is missing, damaged or of another robot, or the robot declares no log layout.
    """
    path = Path(data)
    if is_log(path) and robot.log_path is None:
        raise InputError(
            f"{path}: robot {robot.name!r} declares no column map for logs; make a store of it with "
            "`neurodyn import --reader MAP.yaml`, or declare `log: MAP.yaml` beside the robot"
        )
    return open_data(path, robot.spec, robot.log_path)


def open_measured_data(robot: Robot, data: str | Path) -> Store:
    """Open `--data` for a world model: a store of whatever was measured, or a log that the robot declares.

    Raises:
        InputError: The file is missing or damaged, or the robot declares no log layout.
    """
    if is_log(Path(data)):
        return open_robot_data(robot, data)
    return Store.open(data)
