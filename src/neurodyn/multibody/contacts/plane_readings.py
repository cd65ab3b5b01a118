# SPDX-License-Identifier: Apache-2.0
"""Contact state, height and speed of declared bodies above one plane; compiled and differentiable."""

import math
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from neurodyn.core.description.contacts import ContactPoint
from neurodyn.core.description.mechanism import Mechanism
from neurodyn.core.description.spec import StateSpec
from neurodyn.multibody.articulated import Tree
from neurodyn.multibody.points import Kinematics
from neurodyn.multibody.trace import Graph, Scalar, minimum, safe_sqrt, select_less
from neurodyn.multibody.trace.expression import Expression
from neurodyn.multibody.trace.function import CompiledFunction
from neurodyn.multibody.vectors import array, dot, normalise

CONTACT, HEIGHT, SPEED = range(3)
"""Rows of the readings: 1 for bodies that touch the plane, height of the lowest point [m], horizontal speed [m/s]."""


class PlaneReadings:
    """Readings of bodies of which each has some contact points.

    Args:
        mechanism: The mechanism, without hidden joints.
        spec: Names and order of its state.
        bodies: Contact points of each body; links are those of the mechanism.
        plane: A point on the plane and its normal, in the world.
        still: Added to squared speeds, whose root has no gradient at zero [m^2/s^2].
    """

    def __init__(
        self, mechanism: Mechanism, spec: StateSpec, bodies: Sequence[Sequence[ContactPoint]],
        plane: tuple[float, ...], still: float,
    ) -> None:  # fmt: skip
        self._mechanism, self._spec, self._bodies = mechanism, spec, bodies
        self._origin, self._normal, self._still = array(plane[:3]), array(plane[3:]), still
        widths = mechanism.nq, mechanism.nv
        self._function = CompiledFunction(widths, 3 * len(bodies), self._trace)

    def __call__(self, q: Tensor, qd: Tensor) -> Tensor:
        """Return the readings, shape [worlds, 3, bodies]; no gradient passes through the contact state."""
        return self._function(q, qd).unflatten(1, (3, len(self._bodies)))

    def _trace(self, _: Graph, parts: list[list[Expression]]) -> list[Scalar]:
        q, qd = list[Any](parts[0]), parts[1]
        for place in self._spec.places:
            if q[place.quaternion]:
                q[place.quaternion] = normalise(q[place.quaternion])
        tree = Tree(self._mechanism, self._mechanism.quantities().__getitem__)
        links = Kinematics(tree, tree.motions(q, list(qd)))
        read = [self._read(links, points) for points in self._bodies]
        return [row[kind] for kind in (CONTACT, HEIGHT, SPEED) for row in read]

    def _read(self, links: Kinematics, points: Sequence[ContactPoint]) -> tuple[Scalar, Scalar, Scalar]:
        lowest, moving = None, array((0.0, 0.0, 0.0))
        for point in points:
            arm = links.arm(point.joint, array(point.point))
            above = dot(self._normal, links.poses[point.joint].origin + arm - self._origin) - point.radius
            lowest = above if lowest is None else minimum(lowest, above)
            moving = moving + links.velocity(point.joint, arm)
        x, y, _ = moving * (1.0 / len(points))
        speed = safe_sqrt(x * x + y * y + self._still) - math.sqrt(self._still)
        assert lowest is not None
        return select_less(lowest, 0.0, 1.0, 0.0), lowest, speed
