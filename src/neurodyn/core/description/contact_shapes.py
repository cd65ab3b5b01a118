# SPDX-License-Identifier: Apache-2.0
"""The shapes of a robot that touch a ground, where contacts are not those of points."""

import math

from neurodyn.core.config import Config
from neurodyn.core.description.scene import Pose, Vector3
from neurodyn.core.errors import require


class RoundedBox(Config, frozen=True):
    """A box and all within a radius of it: a sphere has no half edges, a capsule the third one, a box no radius.

    Attributes:
        name: Label of the shape.
        joint: Index of the joint whose child body carries it.
        place: Its pose in that body's frame.
        half: Half edges [m].
        radius: Radius [m].
    """

    name: str
    joint: int
    place: Pose
    half: Vector3
    radius: float

    def __post_init__(self) -> None:
        numbers = (*self.half, self.radius)
        valid = "three half edges and a radius, finite numbers of at least 0 [m]"
        require(all(0 <= x < math.inf for x in numbers), f"shape {self.name!r}", list(numbers), valid)
