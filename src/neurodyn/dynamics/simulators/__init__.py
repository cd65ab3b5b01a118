# SPDX-License-Identifier: Apache-2.0
"""Identified robots written for other simulators: one target a file."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from neurodyn.core.registry import Registry

if TYPE_CHECKING:
    from neurodyn.dynamics.simulators.identified import Identified

SIMULATORS: "Registry[Callable[[Identified, Path], set[str]]]" = Registry(
    "simulator to export to",
    newton="neurodyn.dynamics.simulators.newton:write_newton",
    isaaclab="neurodyn.dynamics.simulators.isaaclab:write_isaaclab",
    mjcf="neurodyn.dynamics.simulators.mjcf:write_mjcf",
    urdf="neurodyn.dynamics.simulators.urdf:write_urdf",
    mjlab="neurodyn.dynamics.simulators.mjlab:write_mjlab",
)
"""Writers by target: (identified robot, empty folder) to the names of the quantities that found a place there."""
