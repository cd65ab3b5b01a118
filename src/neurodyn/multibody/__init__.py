# SPDX-License-Identifier: Apache-2.0
"""Articulated bodies, from a mechanism to a compiled, differentiable step."""

from typing import TYPE_CHECKING

from neurodyn.core.lazy import lazy

if TYPE_CHECKING:
    from neurodyn.multibody.articulated import Tree
    from neurodyn.multibody.engine import Engine, EngineConfig, nominal
    from neurodyn.multibody.free_motion import FreeMotion
    from neurodyn.multibody.pd import pd_torque

__all__ = ["Engine", "EngineConfig", "FreeMotion", "Tree", "nominal", "pd_torque"]

lazy(__name__)
