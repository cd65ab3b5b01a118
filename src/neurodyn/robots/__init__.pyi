# SPDX-License-Identifier: Apache-2.0
from .assets import asset_path as asset_path, is_installed as is_installed
from .data import open_robot_data as open_robot_data
from .declaration import Joint as Joint, Robot as Robot
from .listing import ROBOTS as ROBOTS, load as load, locate as locate, names as names, ships as ships
from .sections import (
    ContactPointSelection as ContactPointSelection,
    Fluid as Fluid,
    Ranges as Ranges,
    SimulatorConfig as SimulatorConfig,
)
