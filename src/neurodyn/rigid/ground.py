# SPDX-License-Identifier: Apache-2.0
"""The shapes around a batch of worlds, ready to be measured against."""

from dataclasses import dataclass

from torch import Tensor

from neurodyn.core.scene import Scene


@dataclass(frozen=True)
class Ground:
    """Shapes around a batch of worlds.

    Attributes:
        scene: The shapes.
        pose: Pose of the scene in each world [x y z, qx qy qz qw], shape [worlds, 7]; None for the identity.
    """

    scene: Scene
    pose: Tensor | None = None
