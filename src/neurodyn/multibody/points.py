# SPDX-License-Identifier: Apache-2.0
"""Contact points of a mechanism in the world: places, velocities, and depths in a ground."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from neurodyn.core.contact_points import ContactPoint
from neurodyn.multibody.articulated import LinkMotion, Tree
from neurodyn.multibody.vectors import (
    Matrix,
    Vector,
    add,
    apply,
    apply_transposed,
    cross,
    dot,
    product,
    scale,
    subtract,
)


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
class Touch:
    """A contact point of the robot beside a flat piece of ground.

    Attributes:
        name: Name of the point.
        link: Index of the link that carries it.
        arm: Lowest point of the sphere around it, seen from the origin of the link's frame, world axes [m].
        normal: Outward normal of the ground, world axes.
        depth: Depth of the sphere in the ground [m]; negative above it.
        velocity: Velocity of the lowest point, world axes [m/s].
    """

    name: str
    link: int
    arm: Vector
    normal: Vector
    depth: Any
    velocity: Vector


def link_poses(tree: Tree, motions: Sequence[LinkMotion]) -> list[LinkPose]:
    """Return the poses of all links."""
    poses: list[LinkPose] = []
    for link, motion in zip(tree.links, motions, strict=True):
        if link.joint.parent < 0:
            poses.append(LinkPose(motion.turn, motion.offset))
            continue
        parent = poses[link.joint.parent]
        poses.append(LinkPose(product(parent.turn, motion.turn), add(parent.origin, apply(parent.turn, motion.offset))))
    return poses


def touches(
    tree: Tree,
    motions: Sequence[LinkMotion],
    poses: Sequence[LinkPose],
    points: Sequence[ContactPoint],
    grounds: Sequence[tuple[Vector, Vector]],
    size: Any = 1.0,
) -> list[Touch]:
    """Measure points against flat pieces of ground.

    `grounds` holds for each point a point on the ground and the outward normal there, in the world; `size` is a factor
    on the places and radii of points in their bodies.
    """
    touched = []
    for point, (origin, normal) in zip(points, grounds, strict=True):
        pose, motion = poses[point.joint], motions[point.joint]
        arm = apply(pose.turn, tree.in_link_frame(point.joint, scale(size, list(point.point))))
        centre = add(pose.origin, arm)
        radius = size * point.radius
        depth = radius - dot(normal, subtract(centre, origin))
        lowest = subtract(arm, scale(radius, normal))
        velocity = add(apply(pose.turn, motion.velocity), cross(apply(pose.turn, motion.spin), lowest))
        touched.append(Touch(point.name, point.joint, lowest, normal, depth, velocity))
    return touched


def wrenches(
    poses: Sequence[LinkPose], touched: Sequence[Touch], forces: Sequence[Vector]
) -> dict[int, tuple[Vector, Vector]]:
    """Return moment and force on every touched link, in its frame, from forces in world axes at the touching points."""
    by_link: dict[int, tuple[Vector, Vector]] = {}
    for touch, force in zip(touched, forces, strict=True):
        turn = poses[touch.link].turn
        moment, own = apply_transposed(turn, cross(touch.arm, force)), apply_transposed(turn, force)
        if touch.link in by_link:
            moment, own = add(by_link[touch.link][0], moment), add(by_link[touch.link][1], own)
        by_link[touch.link] = (moment, own)
    return by_link
