# SPDX-License-Identifier: Apache-2.0
"""Walking robots: convex model-predictive control, gaits, and its imitation by a network."""

from neurodyn.core.registry import lazy

with lazy(__name__):
    from neurodyn.walking.closed_loop import WalkResult, walk, walk_film
    from neurodyn.walking.controller import QuadrupedController, walker
    from neurodyn.walking.convex_mpc import MpcSettings
    from neurodyn.walking.force_network import save_imitation
    from neurodyn.walking.gait import GAITS, Commands, Gait
    from neurodyn.walking.imitation import ImitationSettings, imitate
    from neurodyn.walking.plant import WalkingPlant, walking_plant

__all__ = [
    "GAITS", "Commands", "Gait", "ImitationSettings", "MpcSettings", "QuadrupedController", "WalkResult",
    "WalkingPlant", "imitate", "save_imitation", "walk", "walk_film", "walker", "walking_plant",
]  # fmt: skip
