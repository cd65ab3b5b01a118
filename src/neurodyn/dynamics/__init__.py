# SPDX-License-Identifier: Apache-2.0
"""Dynamics of every kind behind one interface."""

from typing import Any

import lazy_loader

from neurodyn.dynamics.kinds import KINDS, Kind

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def _analytic(robot: Any, *, device: str) -> Any:
    from neurodyn.dynamics.analytic import AnalyticDynamics

    return AnalyticDynamics(robot, device=device)


def _declared_hybrid(robot: Any, *, device: str) -> Any:
    from neurodyn.dynamics.hybrid.declared import declared_hybrid

    return declared_hybrid(robot, device=device)


def _neural_artifact() -> Any:
    from neurodyn.dynamics.neural.model import NEURAL

    return NEURAL


def _hybrid_artifact() -> Any:
    from neurodyn.dynamics.hybrid.artifact import HYBRID

    return HYBRID


def _world_model_artifact() -> Any:
    from neurodyn.dynamics.world_model.model import WORLD_MODEL

    return WORLD_MODEL


for _kind in (
    Kind("analytic", "simulator", simulate=_analytic),
    Kind("neural", "neural model", _neural_artifact),
    Kind("hybrid", "hybrid model", _hybrid_artifact, _declared_hybrid),
    Kind("world-model", "world model", _world_model_artifact),
):
    KINDS.add(_kind.name, _kind)
