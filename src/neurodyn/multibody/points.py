# SPDX-License-Identifier: Apache-2.0
"""Contact points of a mechanism in the world: positions, velocities, and depths in the ground."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from neurodyn.core.description.contacts import ContactPoint
from neurodyn.multibody.articulated import RelativeMotion, Tree, Wrenches
from neurodyn.multibody.vectors import Matrix, Vector, array, cross, dot


@dataclass
class LinkPose:
    """Pose of a link's frame in the world."""

    rotation: Matrix  # from the link's frame to the world
    origin: Vector

    @property
    def turn(self) -> Matrix:
        """`rotation`, under the name that sensors of others may know it by."""
        return self.rotation


@dataclass
class PointContact:
    """A contact point of the robot near a locally flat ground, or of one body near another; vectors in world axes."""

    name: str
    link: int  # index of the link that carries it
    arm: Vector  # lowest point of its sphere relative to the origin of the link's frame [m]
    normal: Vector  # outward from the ground or the other body
    depth: Any  # penetration of the sphere [m]; negative for a gap
    velocity: Vector  # of the lowest point relative to the ground or the other body [m/s]
    other: int | None = None  # index of the other link; None for the ground
    other_arm: Vector | None = None  # contact relative to the origin of the other link's frame [m]
    constants: str = "contact"  # prefix of the names of its constants

    @property
    def sides(self) -> list[tuple[int, Vector, float]]:
        """Link, point of application and sign of the force for each body it acts on."""
        sides = [(self.link, self.arm, 1.0)]
        return sides if self.other is None or self.other_arm is None else [*sides, (self.other, self.other_arm, -1.0)]


def link_poses(tree: Tree, motions: Sequence[RelativeMotion]) -> list[LinkPose]:
    """Return the poses of all links."""
    poses: list[LinkPose] = []
    for link, motion in zip(tree.links, motions, strict=True):
        if link.joint.parent < 0:
            poses.append(LinkPose(motion.rotation, motion.offset))
            continue
        parent = poses[link.joint.parent]
        poses.append(LinkPose(parent.rotation @ motion.rotation, parent.origin + parent.rotation @ motion.offset))
    return poses


@dataclass
class Kinematics:
    """Motions of a mechanism's links, and their poses in the world, computed on first use."""

    tree: Tree
    motions: list[RelativeMotion]

    @cached_property
    def poses(self) -> list[LinkPose]:
        """Poses of the links."""
        return link_poses(self.tree, self.motions)

    def arm(self, link: int, point: Vector) -> Vector:
        """Return a point of a link's body relative to the origin of the link's frame, world axes."""
        return self.poses[link].rotation @ self.tree.in_link_frame(link, point)

    def velocity(self, link: int, arm: Vector) -> Vector:
        """Return the velocity of a link's point at `arm`, world axes."""
        rotation, motion = self.poses[link].rotation, self.motions[link]
        return rotation @ motion.velocity + cross(rotation @ motion.spin, arm)

    def to_body(self, link: int, direction: Vector) -> Vector:
        """Rotate a direction from the world to a link's body frame."""
        return self.tree.rotate_to_body(link, self.poses[link].rotation.T @ direction)

    def to_world(self, link: int, direction: Vector) -> Vector:
        """Rotate a direction from a link's body frame to the world."""
        return self.poses[link].rotation @ self.tree.rotate_to_link(link, direction)


def touches(
    links: Kinematics, points: Sequence[ContactPoint], grounds: Sequence[tuple[Vector, Vector]], size: Any = 1.0
) -> list[PointContact]:
    """Return the contact points of a mechanism over locally flat ground.

    `grounds` holds a point on the ground and the outward normal for each contact point, in the world; `size` scales the
    positions and radii of the contact points.
    """
    touched = []
    for point, (origin, normal) in zip(points, grounds, strict=True):
        arm = links.arm(point.joint, size * array(point.point))
        centre = links.poses[point.joint].origin + arm
        radius = size * point.radius
        depth = radius - dot(normal, centre - origin)
        lowest = arm - radius * array(normal)
        velocity = links.velocity(point.joint, lowest)
        touched.append(PointContact(point.name, point.joint, lowest, normal, depth, velocity))
    return touched


def wrenches(poses: Sequence[LinkPose], touched: Sequence[PointContact], forces: Sequence[Vector]) -> Wrenches:
    """Return moment and force on each link, in its frame, from contact forces in world axes."""
    by_link: Wrenches = {}
    for touch, force in zip(touched, forces, strict=True):
        for link, arm, sign in touch.sides:
            rotation = poses[link].rotation
            add_wrench(by_link, link, sign * (rotation.T @ cross(arm, force)), sign * (rotation.T @ force))
    return by_link


def add_wrench(wrenches: Wrenches, link: int, moment: Vector, force: Vector) -> None:
    """Add a moment and a force to those on a link."""
    if link in wrenches:
        moment, force = wrenches[link][0] + moment, wrenches[link][1] + force
    wrenches[link] = moment, force
