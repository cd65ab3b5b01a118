# SPDX-License-Identifier: Apache-2.0
"""Sensor readings as traced functions of a step: one function per kind of sensor."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from neurodyn.core.description.sensors import SENSOR_KINDS, Sensor
from neurodyn.core.errors import InputError, among
from neurodyn.geometry.rotation import quaternion_matrix
from neurodyn.multibody.articulated import Wrench, Wrenches
from neurodyn.multibody.contacts.contact_model import Contacts
from neurodyn.multibody.mass_matrix import is_zero
from neurodyn.multibody.points import Kinematics
from neurodyn.multibody.scope import Scope, StepMemory
from neurodyn.multibody.trace import safe_sqrt
from neurodyn.multibody.vectors import ZERO, Matrix, Vector, array, cross, dot, turn


@dataclass
class Instant(Kinematics):
    """State of a mechanism in a step, before integration."""

    scope: Scope
    memory: StepMemory
    external: Wrenches  # without contacts
    touching: Wrenches  # of force-based contact models
    acceleration: list[Any]  # time derivative of the velocities over the step, with contacts
    contacts: Contacts  # with the forces that are not in `touching`

    @cached_property
    def accelerations(self) -> list[tuple[Vector, Vector]]:
        """Spatial acceleration of each link minus gravity, in its frame: angular, then linear at the frame's origin."""
        return self.tree.spatial_accelerations(self.motions, self.acceleration)

    @cached_property
    def pushes(self) -> Wrenches:
        """Moment (about the frame's origin) and force of all contacts on each touching link, in its frame."""
        pushes = dict(self.touching)
        for push in self.contacts.pushes or ():
            rotation = self.poses[push.link].rotation
            moment, force = pushes.get(push.link, (ZERO, ZERO))
            pushes[push.link] = (moment + rotation.T @ cross(push.arm, push.force), force + rotation.T @ push.force)
        return pushes

    @cached_property
    def transmitted(self) -> list[Wrench]:
        """Moment (about the frame's origin) and force that each link receives through its joint, in its frame.

        The backward pass of the recursive Newton-Euler algorithm (Featherstone 2008, table 5.1).

        Raises:
            InputError: Equality constraints or spatial tendons act on links.
        """
        tree, totals = self.tree, []
        tied = [one.name for one in tree.mechanism.equalities or () if one.kind in ("connect", "weld")]
        tied += [one.name for one in tree.mechanism.tendons or () if one.strands]
        if tied:
            raise InputError(
                f"sensors of forces in joints do not know the forces of {', '.join(tied)} on links; valid: other "
                "sensors, or a mechanism without connect, weld and spatial tendons"
            )
        for index, motion in enumerate(self.motions):
            moment, force = tree.inertial_wrench(index, motion, self.accelerations[index])
            for wrenches in (self.external, self.pushes):
                if index in wrenches:
                    moment, force = moment - wrenches[index][0], force - wrenches[index][1]
            totals.append((moment, force))
        for index in range(len(totals) - 1, -1, -1):
            parent, motion = tree.links[index].joint.parent, self.motions[index]
            if parent >= 0:
                force = motion.rotation @ totals[index][1]
                moment = motion.rotation @ totals[index][0] + cross(motion.offset, force)
                totals[parent] = (totals[parent][0] + moment, totals[parent][1] + force)
        return totals


_LEAST_FORCE = 1e-6
"""Below this, a force has a derivative of 0 instead of none [N]."""
_NO_TURN = (0.0, 0.0, 0.0, 1.0)


@dataclass
class SensorFrame:
    """The mounting of a sensor in a step.

    The pose is a quantity: NAME.position.x, y, z in the link's body frame [m], and NAME.turn.x, y, z, a rotation vector
    relative to the declared axes [rad].

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
        """Position of the sensor in its link's frame [m]."""
        tree = self.instant.tree
        return tree.in_link_frame(self.link, tree.vector(f"{self.name}.position"))

    @cached_property
    def turn(self) -> Matrix:
        """Rotation from the sensor's axes to the link's frame."""
        tree = self.instant.tree
        rotation = tree.rotate_to_link(self.link, array(quaternion_matrix(self.sensor.quaternion)))
        more = tree.vector(f"{self.name}.turn")
        return rotation if all(map(is_zero, more)) else rotation @ array(quaternion_matrix(turn(_NO_TURN, more)))

    @cached_property
    def velocity(self) -> Vector:
        """Velocity of the sensor's origin in the link's frame [m/s]."""
        motion = self.instant.motions[self.link]
        return motion.velocity + cross(motion.spin, self.arm)

    def along_axes(self, vector: Vector) -> list:
        """Transform a vector from the link's frame to the declared axes of the sensor."""
        if self.sensor.axes == "world":
            return [*(self.instant.poses[self.link].rotation @ vector)]
        return [*(self.turn.T @ vector)]


def read_position(instant: Instant, at: SensorFrame) -> list[Any]:
    """Return the position of the sensor's origin in the world."""
    pose = instant.poses[at.link]
    return [*(pose.origin + pose.rotation @ at.arm)]


def read_orientation(instant: Instant, at: SensorFrame) -> list[Any]:
    """Return the rotation matrix from sensor axes to the world, row by row."""
    return [*(instant.poses[at.link].rotation @ at.turn).flatten()]


def read_gyroscope(instant: Instant, at: SensorFrame) -> list[Any]:
    """Return the angular velocity of the link."""
    return at.along_axes(instant.motions[at.link].spin)


def read_accelerometer(instant: Instant, at: SensorFrame) -> list[Any]:
    """Return the acceleration of the sensor's origin minus gravity."""
    motion, (spin, linear) = instant.motions[at.link], instant.accelerations[at.link]
    carried = cross(motion.spin, motion.velocity + cross(motion.spin, at.arm))
    return at.along_axes(linear + carried + cross(spin, at.arm))


def read_odometry(instant: Instant, at: SensorFrame) -> list[Any]:
    """Return linear and angular velocity."""
    return [*at.along_axes(at.velocity), *at.along_axes(instant.motions[at.link].spin)]


def read_contact_force(instant: Instant, at: SensorFrame) -> list[Any]:
    """Return the contact force on the link."""
    return at.along_axes(instant.pushes.get(at.link, (ZERO, ZERO))[1])


def read_foot_force(instant: Instant, at: SensorFrame) -> list[Any]:
    """Return the size of the contact force on each of the sensor's feet, named by the joints that move them."""
    tree, sizes = instant.tree, []
    for name in at.joints:
        if name not in tree.index_of:
            raise InputError(f"sensor {at.name!r}: there is no foot {name!r}{among(name, tree.index_of)}")
        force = instant.pushes.get(tree.index_of[name], (ZERO, ZERO))[1]
        sizes.append(safe_sqrt(dot(force, force) + _LEAST_FORCE**2) - _LEAST_FORCE)
    return sizes


def read_wrench(instant: Instant, at: SensorFrame) -> list[Any]:
    """Return force and torque that the link receives through its joint."""
    moment, force = instant.transmitted[at.link]
    return [*at.along_axes(force), *at.along_axes(moment - cross(at.arm, force))]


def read_joint_torque(instant: Instant, at: SensorFrame) -> list[Any]:
    """Return the torque of each of the sensor's joints."""
    read = _motor if at.sensor.side == "motor" else _link
    return [read(instant, at, name) for name in at.joints]


def _motor(instant: Instant, at: SensorFrame, name: str) -> Any:
    """Return the torque of the joint's own drive, or what drives of other names do to it through a transmission."""
    scope, drives = instant.scope, instant.tree.mechanism.drives
    if f"actuator.{name}" in scope.computed:
        return scope(f"actuator.{name}")
    through = {other: one.transmission[name] for other, one in drives.items() if name in one.joints}  # pyright: ignore[reportIndexIssue]
    if not through:
        driven = [known.removeprefix("actuator.") for known in scope.computed if known.count(".") == 1]
        raise InputError(f"sensor {at.name!r}: joint {name!r} has no motor{among(name, driven)}, or side: link")
    return sum(factor * scope(f"actuator.{other}") for other, factor in through.items())


def _link(instant: Instant, at: SensorFrame, name: str) -> Any:
    tree = instant.tree
    if name not in tree.dofs:
        raise InputError(f"sensor {at.name!r}: there is no joint {name!r} with one axis{among(name, tree.dofs)}")
    index = tree.index_of[name]
    moment, force = instant.transmitted[index]
    angular, linear = tree.subspace(index)
    return dot(angular, moment) + dot(linear, force)


def read_pose(instant: Instant, at: SensorFrame) -> list[Any]:
    """Return position and rotation matrix in the world."""
    return [*read_position(instant, at), *read_orientation(instant, at)]


def read_imu(instant: Instant, at: SensorFrame) -> list[Any]:
    """Return angular velocity [rad/s] and specific force [m/s^2]."""
    return [*read_gyroscope(instant, at), *read_accelerometer(instant, at)]


def read_motion(instant: Instant, at: SensorFrame) -> list[Any]:
    """Return the quantities of an IMU or accelerometer, with what a mean of specific force is made of in its place.

    It is the velocity of the sensor's origin in the world, and its rotation matrix (`dynamics.hybrid.readings`).
    """
    spin = read_gyroscope(instant, at) if at.sensor.kind == "imu" else []
    return [*spin, *(instant.poses[at.link].rotation @ at.velocity), *read_orientation(instant, at)]


SensorFunction = Callable[[Instant, SensorFrame], list[Any]]
"""Maps a step and a sensor's mounting to its reading; a rotation is the nine entries of its matrix, row by row."""

for _name, _function in {
    "position": read_position, "orientation": read_orientation, "pose": read_pose, "gyroscope": read_gyroscope,
    "accelerometer": read_accelerometer, "imu": read_imu, "odometry": read_odometry,
    "contact_force": read_contact_force, "foot_force": read_foot_force, "wrench": read_wrench,
    "joint_torque": read_joint_torque,
}.items():  # fmt: skip
    SENSOR_KINDS.add(_name, replace(SENSOR_KINDS[_name], function=_function), replace=True)
