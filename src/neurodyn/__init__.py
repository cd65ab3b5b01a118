# SPDX-License-Identifier: Apache-2.0
"""Analytic, hybrid, neural and world-model robot dynamics behind one interface.

    import neurodyn

    robot = neurodyn.robots.load("cartpole")        # or the path of your own declaration
    model = neurodyn.sim.build(robot, worlds=512)   # a newton.Model
    dynamics = neurodyn.load("pretrained:cartpole")
    solver = neurodyn.solvers.SolverNeural(model, "pretrained:cartpole")

Subpackages are imported on first use, so that importing the package is fast and needs no simulator.
"""

from neurodyn.core.registry import lazy, when_imported

with lazy(__name__):
    from neurodyn import (
        cli,
        cluster,
        control,
        core,
        data,
        dynamics,
        evaluate,
        geometry,
        identify,
        interop,
        learn,
        multibody,
        nets,
        policy,
        report,
        robots,
        sim,
        solvers,
        tasks,
        walking,
    )  # fmt: skip
    from neurodyn.core.errors import InputError
    from neurodyn.core.provenance import __version__
    from neurodyn.dynamics.artifact import load
    from neurodyn.dynamics.batch import Control, Environment, State, Step, Trajectory, Window
    from neurodyn.dynamics.interface import Dynamics

__all__ = [
    "Control", "Dynamics", "Environment", "InputError", "State", "Step", "Trajectory", "Window", "__version__", "cli",
    "cluster", "control", "core", "data", "dynamics", "evaluate", "geometry", "identify", "interop", "learn", "load",
    "multibody", "nets", "policy", "report", "robots", "sim", "solvers", "tasks", "walking",
]  # fmt: skip

when_imported("gymnasium", "neurodyn.interop.gymnasium:register")
