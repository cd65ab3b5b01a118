# SPDX-License-Identifier: Apache-2.0
"""Layouts of other people's models; imports nothing that computes."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from neurodyn.core.registry import Registry

if TYPE_CHECKING:
    from neurodyn.dynamics.base import LearnedDynamics
    from neurodyn.robots import Robot

MODEL_LAYOUTS: "Registry[Callable[[Path, Robot, Path | None], LearnedDynamics]]" = Registry(
    "layout of a model",
    rwm="neurodyn.dynamics.world_model.rwm:read_rwm",
    nerd="neurodyn.dynamics.nerd.checkpoint:read_nerd",
)
"""Readers by the name of their layout: (checkpoint, robot, statistics) to a model."""
