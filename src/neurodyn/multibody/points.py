# SPDX-License-Identifier: Apache-2.0
"""Contact points of a mechanism in the world: positions, velocities, and depths in the ground."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from neurodyn.core.description.contacts import ContactPoint
from neurodyn.multibody.articulated import RelativeMotion, Tree
from neurodyn.multibody.vectors import Matrix, Vector, array, cross, dot

Wrenches = dict[int, tuple[Vector, Vector]]
"""Moment and force on each link, in its frame."""


@dataclass
class LinkPose:
    """Pose of a link's frame in the world.

    Attributes:
        turn: Rotation from the link's frame to the world.
        origin: Origin in the world.
    """

    turn: Matrix
    origin: Vector


@dataclass
class PointContact:
    """A contact point of the robot near a locally flat ground, or of one body near another.

    Attributes:
        name: Name of the point.
        link: Index of the link that carries it.
        arm: Lowest point of its sphere relative to the origin of the link's frame, world axes [m].
        normal: Outward normal of the ground, or of the other body, world axes.
        depth: Penetration depth of the sphere [m]; negative for a gap.
        velocity: Velocity of the lowest point relative to the ground or the other body, world axes [m/s].
        other: Index of the other link; None for the ground.
        other_arm: Contact relative to the origin of the other link's frame, world axes [m].
        constants: Prefix of the names of its constants.
    """

    name: str
    link: int
    arm: Vector
    normal: Vector
    depth: Any
    velocity: Vector
    other: int | None = None
    other_arm: Vector | None = None
    constants: str = "contact"

    @property
    def sides(self) -> list[tuple[int, Vector, float]]:
        """Link, point of application and sign of the force for each body it acts on."""
        found = [(self.link, self.arm, 1.0)]
        return found if self.other is None or self.other_arm is None else [*found, (self.other, self.other_arm, -1.0)]


def link_poses(tree: Tree, motions: Sequence[RelativeMotion]) -> list[LinkPose]:
    """Return the poses of all links."""
    poses: list[LinkPose] = []
    for link, motion in zip(tree.links, motions, strict=True):
        if link.joint.parent < 0:
            poses.append(LinkPose(motion.turn, motion.offset))
            continue
        parent = poses[link.joint.parent]
        poses.append(LinkPose(parent.turn @ motion.turn, parent.origin + parent.turn @ motion.offset))
    return poses


def touches(
    tree: Tree,
    motions: Sequence[RelativeMotion],
    poses: Sequence[LinkPose],
    points: Sequence[ContactPoint],
    grounds: Sequence[tuple[Vector, Vector]],
    size: Any = 1.0,
) -> list[PointContact]:
    """Measure contact points against locally flat ground.

    `grounds` holds a point on the ground and the outward normal for each contact point, in the world; `size` scales the
    positions and radii of the contact points.
    """
    touched = []
    for point, (origin, normal) in zip(points, grounds, strict=True):
        pose, motion = poses[point.joint], motions[point.joint]
        arm = pose.turn @ tree.in_link_frame(point.joint, size * array(point.point))
        centre = pose.origin + arm
        radius = size * point.radius
        depth = radius - dot(normal, centre - origin)
        lowest = arm - radius * array(normal)
        velocity = pose.turn @ motion.velocity + cross(pose.turn @ motion.spin, lowest)
        touched.append(PointContact(point.name, point.joint, lowest, normal, depth, velocity))
    return touched


def wrenches(poses: Sequence[LinkPose], touched: Sequence[PointContact], forces: Sequence[Vector]) -> Wrenches:
    """Return moment and force on each link, in its frame, from contact forces in world axes."""
    by_link: Wrenches = {}
    for touch, force in zip(touched, forces, strict=True):
        for link, arm, sign in touch.sides:
            turn = poses[link].turn
            moment, own = sign * (turn.T @ cross(arm, force)), sign * (turn.T @ force)
            if link in by_link:
                moment, own = by_link[link][0] + moment, by_link[link][1] + own
            by_link[link] = (moment, own)
    return by_link
