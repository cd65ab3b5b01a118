# SPDX-License-Identifier: Apache-2.0
"""The frame of a sensor on a link: its place, its axes, and how its origin moves."""

from dataclasses import dataclass
from functools import cached_property

from neurodyn.core.description.sensors import Sensor
from neurodyn.geometry.rotation import quaternion_matrix
from neurodyn.multibody.instant import Instant
from neurodyn.multibody.mass_matrix import is_zero
from neurodyn.multibody.vectors import Matrix, Vector, array, cross, turned

_NO_TURN = (0.0, 0.0, 0.0, 1.0)


@dataclass
class SensorFrame:
    """A sensor in a step.

    Its place and axes are quantities: NAME.position.x, y, z in the link's body frame [m], and NAME.turn.x, y, z, a
    rotation vector about its own declared axes [rad].

    Attributes:
        name: Name of the sensor.
        sensor: Its declaration.
        joints: Joints whose torques it reads; empty for other kinds.
        link: Index of its link.
        instant: The step.
    """

    name: str
    sensor: Sensor
    joints: tuple[str, ...]
    link: int
    instant: Instant

    @cached_property
    def arm(self) -> Vector:
        """Place of the sensor in its link's frame [m]."""
        tree = self.instant.tree
        return tree.in_link_frame(self.link, tree.vector(f"{self.name}.position"))

    @cached_property
    def turn(self) -> Matrix:
        """Rotation from the sensor's axes to those of its link's frame."""
        tree = self.instant.tree
        turn = tree.turned_to_link(self.link, array(quaternion_matrix(self.sensor.quaternion)))
        more = tree.vector(f"{self.name}.turn")
        return turn if all(map(is_zero, more)) else turn @ array(quaternion_matrix(turned(_NO_TURN, more)))

    @cached_property
    def velocity(self) -> Vector:
        """Velocity of the sensor's origin, axes of the link's frame [m/s]."""
        motion = self.instant.motions[self.link]
        return motion.velocity + cross(motion.spin, self.arm)

    def along_axes(self, vector: Vector) -> list:
        """Return a vector in the link's frame along the axes that the sensor is declared to have."""
        if self.sensor.axes == "world":
            return [*(self.instant.poses[self.link].turn @ vector)]
        return [*(self.turn.T @ vector)]
