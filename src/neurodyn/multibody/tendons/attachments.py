# SPDX-License-Identifier: Apache-2.0
"""Points of tendons and equality constraints in a traced step: positions, velocities, Jacobians, accelerations."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any

from neurodyn.multibody.mass_matrix import TreeColumns
from neurodyn.multibody.points import Kinematics
from neurodyn.multibody.vectors import ZERO, Matrix, Vector, array, cross


@dataclass
class AttachedPoint:
    """A point of a link, or of the world, in world axes."""

    link: int  # -1 for the world
    position: Vector  # [m]
    arm: Vector  # relative to the origin of the link's frame [m]


class AttachedMotion:
    """Motion of points and frames that are attached to the links of a mechanism, in world axes.

    Accelerations are dJ/dt qd, plus the effect of given accelerations of the velocity coordinates.
    """

    def __init__(self, links: Kinematics, qd: Sequence[Any], qdd: Mapping[int, Any] = MappingProxyType({})) -> None:
        """Prepare the motion at velocities qd, and accelerations by velocity coordinate."""
        self.links, self._qd, self._qdd = links, qd, qdd

    def point(self, link: str, position: Vector) -> AttachedPoint:
        """Return a point by the name of its link, empty for the world, and its position in the link's body frame."""
        if not link:
            return AttachedPoint(-1, position, ZERO)
        index = self.links.tree.index_of[link]
        arm = self.links.arm(index, position)
        return AttachedPoint(index, self.links.poses[index].origin + arm, arm)

    def rotation_of(self, link: int, rotation: Matrix) -> Matrix:
        """Return the rotation to the world of a frame given by its rotation in a link's body frame, or in the world."""
        if link < 0:
            return rotation
        tree = self.links.tree
        own = [tree.rotate_to_link(link, axis) for axis in rotation.T]
        return self.links.poses[link].rotation @ array(own).T

    def direction(self, at: AttachedPoint, own: Vector) -> Vector:
        """Return a direction in the body frame of a point's link, or in the world, in world axes."""
        return own if at.link < 0 else self.links.to_world(at.link, own)

    def carriers(self, at: AttachedPoint) -> set[int]:
        """Return the velocity coordinates that move the link of a point."""
        columns = enumerate(self._tree.columns if at.link >= 0 else ())
        return {dof for dof, column in columns if self._tree.carries(column.link, at.link)}

    def row(self, at: AttachedPoint, direction: Vector) -> list[Any]:
        """Return the Jacobian of a point's velocity along a direction."""
        return self.zero_row if at.link < 0 else self._tree.row(at.link, at.arm, direction)

    def angular_row(self, at: AttachedPoint, direction: Vector) -> list[Any]:
        """Return the Jacobian of the angular velocity of a point's link along a direction."""
        return self.zero_row if at.link < 0 else self._tree.angular_row(at.link, direction)

    def velocity(self, at: AttachedPoint) -> Vector:
        """Return the velocity of a point [m/s]."""
        return ZERO if at.link < 0 else self.links.velocity(at.link, at.arm)

    def spin(self, at: AttachedPoint) -> Vector:
        """Return the angular velocity of a point's link [rad/s]."""
        return ZERO if at.link < 0 else self.links.poses[at.link].rotation @ self.links.motions[at.link].spin

    def spin_acceleration(self, at: AttachedPoint) -> Vector:
        """Return the angular acceleration of a point's link [rad/s^2]."""
        return ZERO if at.link < 0 else self.links.poses[at.link].rotation @ self._carried[at.link][0]

    def acceleration(self, at: AttachedPoint) -> Vector:
        """Return the acceleration of a point [m/s^2]."""
        if at.link < 0:
            return ZERO
        rotation, motion, spin = self.links.poses[at.link].rotation, self.links.motions[at.link], self.spin(at)
        origin = rotation @ self._carried[at.link][1] + self.links.tree.vector("gravity")
        origin = origin + cross(spin, rotation @ motion.velocity)
        return origin + cross(self.spin_acceleration(at), at.arm) + cross(spin, cross(spin, at.arm))

    @property
    def zero_row(self) -> list[Any]:
        """A row of zeros."""
        return [0.0] * len(self._qd)

    @cached_property
    def _tree(self) -> TreeColumns:
        return TreeColumns(self.links.tree, self.links.poses)

    @cached_property
    def _carried(self) -> list[tuple[Vector, Vector]]:
        rates = [self._qdd.get(dof, 0.0) for dof in range(len(self._qd))]
        return self.links.tree.spatial_accelerations(self.links.motions, rates)
