# SPDX-License-Identifier: Apache-2.0
"""Where a motion rests, and what each of its commands does."""

from dataclasses import dataclass

from msgspec import UNSET
from torch import Tensor

from neurodyn.robots import Robot


@dataclass(frozen=True)
class Pose:
    """The pose of rest.

    Attributes:
        q: Positions, shape [nq].
        command: Commands that hold it, shape [nu].
        source: Where it comes from.
    """

    q: Tensor
    command: Tensor
    source: str


@dataclass(frozen=True)
class Role:
    """What a command does.

    Attributes:
        joint: Index of its joint among the limits' joints; None if it acts elsewhere.
        kind: "target" of a joint's position, "torque", or another "command".
        scale: Command per unit of target or torque.
    """

    joint: int | None
    kind: str
    scale: float = 1.0

    @classmethod
    def of(cls, robot: Robot, name: str, joints: tuple[str, ...]) -> "Role":
        """Return the role of a robot's command."""
        drive, joint = robot.drives.get(name), name
        if drive is None:
            return cls(joints.index(name), "torque")
        if drive.acts_elsewhere:
            if drive.transmission is UNSET or list(drive.transmission.values()) != [1.0]:
                return cls(None, "command")
            joint = drive.joints[0]
        place = joints.index(joint) if joint in joints else None
        per_command = None if drive.per_command is UNSET else drive.per_command
        if drive.kind in ("pd", "servo"):
            return cls(place, "target")
        if drive.kind == "affine" and per_command is not None and per_command > 0.0:
            stiffness = drive.kp or 0.0
            if stiffness > 0.0:
                return cls(place, "target", stiffness / per_command)
            return cls(place, "torque", 1.0 / per_command)
        return cls(place, "torque" if drive.kind == "torque" else "command")
