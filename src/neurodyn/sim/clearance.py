# SPDX-License-Identifier: Apache-2.0
"""Clearance between a robot and the ground: height of the ground below a place, depth of a robot in it."""

import torch
from torch import Tensor

from neurodyn.core.description.contact_points import ChainJoint, ContactPoint, ContactPointLayout
from neurodyn.core.description.scene import IDENTITY
from neurodyn.geometry.ground import Ground
from neurodyn.geometry.proximity import ProximityQuery

_ABOVE = 20.0
_MARCHES = 64
_CLOSE = 1e-4
_POINT = ContactPointLayout(
    joints=(
        ChainJoint(
            name="point", kind="free", parent=-1, parent_frame=IDENTITY, child_frame=IDENTITY, axis=(0.0, 0.0, 0.0)
        ),
    ),
    contact_points=(ContactPoint(name="point", joint=0, point=(0.0, 0.0, 0.0), radius=0.0),),
)


def ground_height(ground: Ground, place: Tensor) -> Tensor:
    """Return the height of the ground at places of the horizontal plane [m], zero where there is none in reach.

    A point sinks by its distance from the ground until that is used up, which never takes it through a surface
    (sphere tracing: Hart, "Sphere tracing", The Visual Computer 12, 1996).

    Args:
        ground: The shapes around each world, of which those within 20 m above and below zero count.
        place: x and y in each world [m], shape [worlds, 2].
    """
    proximity = ProximityQuery(_POINT)
    q = torch.zeros(len(place), 7)
    q[:, :2], q[:, 2], q[:, 6] = place, _ABOVE, 1.0
    rates = torch.zeros(len(place), 6)
    for _ in range(_MARCHES):
        readings = proximity(ground, q, rates, base_frame=False)
        step = torch.where(readings.valid[:, 0], readings.distance[:, 0], torch.inf)
        q[:, 2] = (q[:, 2] - step).clamp_min(-2 * _ABOVE)
        if not (step.abs() > _CLOSE).logical_and(q[:, 2] > -_ABOVE).any():
            break
    return torch.where(q[:, 2] > -_ABOVE, q[:, 2], 0.0)


class Clearance:
    """Measures how deep robots lie in the ground."""

    def __init__(self, layout: ContactPointLayout) -> None:
        self._proximity = ProximityQuery(layout)
        self._radius = torch.tensor([contact_point.radius for contact_point in layout.contact_points])

    def depth(self, ground: Ground, q: Tensor) -> Tensor:
        """Return the depth of each robot's deepest contact point, radius included [m]; negative above the ground.

        `q` are positions, shape [worlds, nq].
        """
        readings = self._proximity(ground, q, torch.zeros(len(q), self._proximity.nv), base_frame=False)
        depth = torch.where(readings.valid, self._radius - readings.distance, -torch.inf)
        return depth.amax(-1)
