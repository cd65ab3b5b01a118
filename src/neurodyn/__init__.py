# SPDX-License-Identifier: Apache-2.0
"""Analytic, hybrid, neural and world-model robot dynamics behind one interface.

    import neurodyn

    robot = neurodyn.robots.load("cartpole")        # or the path of your own declaration
    model = neurodyn.sim.build(robot, worlds=512)   # a newton.Model
    dynamics = neurodyn.load("pretrained:cartpole")
    solver = neurodyn.solvers.SolverNeural(model, "pretrained:cartpole")

Rooms are imported when they are first used, so that importing the package is fast and needs no simulator.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from neurodyn import (
        core,
        data,
        dynamics,
        evaluate,
        geometry,
        identify,
        learn,
        multibody,
        nets,
        policy,
        report,
        robots,
        sim,
        solvers,
        tasks,
    )
    from neurodyn.dynamics.artifact import load

__all__ = [
    "core",
    "data",
    "dynamics",
    "evaluate",
    "geometry",
    "identify",
    "learn",
    "load",
    "multibody",
    "nets",
    "policy",
    "report",
    "robots",
    "sim",
    "solvers",
    "tasks",
]


def __getattr__(name: str) -> Any:
    if name == "load":
        return importlib.import_module("neurodyn.dynamics.artifact").load
    if name in __all__:
        return importlib.import_module(f"neurodyn.{name}")
    raise AttributeError(f"module 'neurodyn' has no attribute {name!r}; it has {', '.join(__all__)}")


def __dir__() -> list[str]:
    return __all__
