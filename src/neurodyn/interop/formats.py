# SPDX-License-Identifier: Apache-2.0
"""Names of other projects' formats; this module imports no numerical code."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from neurodyn.core.registry import Registry

if TYPE_CHECKING:
    from neurodyn.data.store import Store
    from neurodyn.dynamics.base import LearnedDynamics
    from neurodyn.interop.c_code.source import CUnit
    from neurodyn.interop.identified import IdentifiedRobot
    from neurodyn.robots import Robot


SIMULATORS: "Registry[Callable[[IdentifiedRobot, Path], set[str]]]" = Registry(
    "simulator to export to",
    newton="neurodyn.interop.newton:write_newton",
    isaaclab="neurodyn.interop.trainers:write_isaaclab",
    mjcf="neurodyn.interop.mjcf:write_mjcf",
    urdf="neurodyn.interop.urdf:write_urdf",
    mjlab="neurodyn.interop.trainers:write_mjlab",
)
"""Writers by target: (identified robot, empty folder) -> names of the quantities that the target can represent.

They raise an InputError if the target cannot represent the robot or its actuator network.
"""

WITH_NETWORKS = {"mjcf"}
"""Targets that support a blueprint's networks; others refuse runs with such networks."""


MODEL_LAYOUTS: "Registry[Callable[[Path, Robot, Path | None], LearnedDynamics]]" = Registry(
    "layout of a model",
    rwm="neurodyn.interop.rwm:read_rwm",
    nerd="neurodyn.interop.nerd:read_nerd",
)
"""Readers by layout: (checkpoint, robot, statistics) -> model."""


POLICY_FORMATS: Registry[Callable[[str | Path, Path], Path]] = Registry(
    "format of a policy", **{"rsl-rl": "neurodyn.interop.policies:export_rsl_rl"}
)
"""Writers by format: (policy, output folder) -> file that the other trainer loads."""


CODE: "Registry[Callable[[CUnit, str], dict[str, str]]]" = Registry(
    "code to export to",
    c="neurodyn.interop.c_code.source:written_c",
    **{"cpp-header": "neurodyn.interop.c_code.source:written_cpp"},
)
"""Writers by language: (C unit, its name in the code) -> file contents by name."""


WRITERS: "Registry[Callable[[Store, Path], None]]" = Registry(
    "format of trajectories",
    lerobot="neurodyn.interop.trajectories:write_lerobot",
    mcap="neurodyn.interop.trajectories:write_mcap",
)
"""Writers by format: (store, path); the path must not exist."""
