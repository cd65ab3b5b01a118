# SPDX-License-Identifier: Apache-2.0
"""Acting in any dynamics: where episodes start and how their frames end, planning through a model, and walking."""

from neurodyn.core.lazy import lazy

with lazy(__name__):
    from neurodyn.control.mpc.commands import Commands
    from neurodyn.control.mpc.controller import QuadrupedController
    from neurodyn.control.mpc.gait import GAITS, Gait
    from neurodyn.control.mpc.imitate import ImitationSettings, imitate
    from neurodyn.control.mpc.imitation import save_imitation
    from neurodyn.control.mpc.plant import WalkingPlant, walking_plant
    from neurodyn.control.mpc.report import walk_film
    from neurodyn.control.mpc.settings import MpcSettings
    from neurodyn.control.mpc.walk import WalkResult, walk
    from neurodyn.control.mpc.walker import walker
    from neurodyn.control.planning.planner import Planner
    from neurodyn.control.resolve import open_dynamics
    from neurodyn.control.starts import LoggedStarts, SampledStarts

__all__ = [
    "GAITS",
    "Commands",
    "Gait",
    "ImitationSettings",
    "LoggedStarts",
    "MpcSettings",
    "Planner",
    "QuadrupedController",
    "SampledStarts",
    "WalkResult",
    "WalkingPlant",
    "imitate",
    "open_dynamics",
    "save_imitation",
    "walk",
    "walk_film",
    "walker",
    "walking_plant",
]
