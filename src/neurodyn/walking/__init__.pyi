# SPDX-License-Identifier: Apache-2.0
from .closed_loop import WalkResult as WalkResult, walk as walk, walk_film as walk_film
from .controller import QuadrupedController as QuadrupedController, walker as walker
from .convex_mpc import MpcSettings as MpcSettings
from .force_network import save_imitation as save_imitation
from .gait import GAITS as GAITS, Commands as Commands, Gait as Gait
from .imitation import ImitationSettings as ImitationSettings, imitate as imitate
from .plant import WalkingPlant as WalkingPlant, walking_plant as walking_plant
