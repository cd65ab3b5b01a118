# SPDX-License-Identifier: Apache-2.0
"""Acting in any dynamics: where episodes start and how their frames end, planning through a model, and walking."""

from neurodyn.core.lazy import lazy

with lazy(__name__):
    from neurodyn.control.planning.planner import Planner
    from neurodyn.control.resolve import open_dynamics
    from neurodyn.control.starts import LoggedStarts, SampledStarts
    from neurodyn.walking.controller import QuadrupedController, walker
    from neurodyn.walking.convex_mpc import MpcSettings
    from neurodyn.walking.force_network import save_imitation
    from neurodyn.walking.gait import GAITS, Commands, Gait
    from neurodyn.walking.imitation import ImitationSettings, imitate
    from neurodyn.walking.plant import WalkingPlant, walking_plant
    from neurodyn.walking.report import walk_film
    from neurodyn.walking.walk import WalkResult, walk

__all__ = [
    "GAITS", "Commands", "Gait", "ImitationSettings", "LoggedStarts", "MpcSettings", "Planner", "QuadrupedController",
    "SampledStarts", "WalkResult", "WalkingPlant", "imitate", "open_dynamics", "save_imitation", "walk", "walk_film",
    "walker", "walking_plant",
]  # fmt: skip
