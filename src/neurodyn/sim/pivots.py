# SPDX-License-Identifier: Apache-2.0
"""Where the points are that a robot's pivots hold."""

from collections.abc import Mapping

import numpy as np

from neurodyn.core.description.actuation import Pivot
from neurodyn.data.held_points import Places
from neurodyn.robots import Robot
from neurodyn.sim.simulators import articulation


def pivot_places(robot: Robot) -> Places | None:
    """Return what gives the places of the points of a robot's pivots at its positions; None without pivots."""
    pivots = {name: one.pivot for name, one in robot.drives.items() if isinstance(one.pivot, Pivot)}
    if not pivots:
        return None
    built = articulation(robot)
    names = [joint.name for joint in built.joints]
    links, points = [names.index(one.link) for one in pivots.values()], np.array([one.point for one in pivots.values()])

    def places(q: np.ndarray) -> Mapping[str, np.ndarray]:
        at = built.kinematics(q).points(links, points)
        return {name: at[:, k] for k, name in enumerate(pivots)}

    return places
