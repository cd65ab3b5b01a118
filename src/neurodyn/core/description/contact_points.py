# SPDX-License-Identifier: Apache-2.0
"""Contact points: the fixed points of a robot that are measured against the ground, and the joints that move them.

A layout holds all that is needed to find the contact points of a state without a simulator: for each moving joint its
frames and axis, and for each contact point the joint whose child body carries it.
"""

from collections.abc import Mapping
from typing import ClassVar

from neurodyn.core.config import Config
from neurodyn.core.description.joint_kinds import JointKind, OfJointKind, is_floating
from neurodyn.core.description.scene import Pose, Vector3


class ChainJoint(Config, OfJointKind, frozen=True):
    """One moving joint of the kinematic tree; fixed joints are folded into the frames.

    Attributes:
        name: Name of the joint.
        kind: Kind of joint.
        parent: Index of the joint that moves the parent body; -1 where the parent is the world.
        parent_frame: Joint frame in the parent body (in the world for parent -1).
        child_frame: Joint frame in the child body.
        axis: Axis of a revolute or prismatic joint in the joint frame, unit; zero for the others.
    """

    name: str
    kind: JointKind
    parent: int
    parent_frame: Pose
    child_frame: Pose
    axis: Vector3


class ContactPoint(Config, frozen=True):
    """One point of the robot.

    Attributes:
        name: Label of the shape and number of the point on it, e.g. "front_left_foot/0".
        joint: Index of the joint whose child body carries the point.
        point: Place in that body's frame [m].
        radius: Radius of the shape around the point [m]; 0 for corners and vertices.
        axis: Axis of the capsule that ends at the point, in that body's frame; None of other shapes.
    """

    name: str
    joint: int
    point: Vector3
    radius: float
    axis: Vector3 | None = None


class ContactPointLayout(Config, frozen=True, rename={"contact_points": "probes"}):
    """All contact points of a robot.

    Attributes:
        joints: The moving joints, in the order of the robot's coordinates.
        contact_points: The contact points, in the order of the network's inputs.
        base_com: Centre of mass of the first joint's child body in its frame [m]: a free joint's linear
            velocity is that of this point.
    """

    aliases: ClassVar[Mapping[str, str]] = {"contact_points": "probes"}  # files keep the key that they began with

    joints: tuple[ChainJoint, ...]
    contact_points: tuple[ContactPoint, ...]
    base_com: Vector3 = (0.0, 0.0, 0.0)

    @property
    def floating(self) -> bool:
        """Whether the base floats."""
        return is_floating(self.joints)

    def differences(self, other: "ContactPointLayout", tolerance: float = 1e-5) -> list[str]:
        """List, in words, in what `other` differs from this layout."""
        mine, theirs = [p.name for p in self.contact_points], [p.name for p in other.contact_points]
        if mine != theirs:
            missing = [name for name in mine if name not in theirs]
            extra = [name for name in theirs if name not in mine]
            words = [f"lacks {missing[:3]}" if missing else "", f"has {extra[:3]} more" if extra else ""]
            detail = ", ".join(word for word in words if word) or "in another order"
            return [f"{len(theirs)} contact points instead of {len(mine)} ({detail})"]
        differences = []
        for a, b in zip(self.contact_points, other.contact_points, strict=True):
            distance = max(abs(x - y) for x, y in zip((*a.point, a.radius), (*b.point, b.radius), strict=True))
            if a.joint != b.joint or distance > tolerance:
                differences.append(f"contact point {a.name!r} is at {list(b.point)} instead of {list(a.point)}")
        return differences
