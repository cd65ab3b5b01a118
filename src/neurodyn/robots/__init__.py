# SPDX-License-Identifier: Apache-2.0
"""Declared robots: shipped ones by name, and user-defined ones by path."""

from neurodyn.core.registry import lazy

with lazy(__name__):
    from neurodyn.robots.assets import asset_path, is_installed
    from neurodyn.robots.data import open_robot_data
    from neurodyn.robots.declaration import Joint, Robot
    from neurodyn.robots.listing import ROBOTS, load, locate, names, ships
    from neurodyn.robots.sections import ContactPointSelection, Fluid, Ranges, SimulatorConfig

__all__ = [
    "ROBOTS", "ContactPointSelection", "Fluid", "Joint", "Ranges", "Robot", "SimulatorConfig", "asset_path",
    "is_installed", "load", "locate", "names", "open_robot_data", "ships",
]  # fmt: skip
