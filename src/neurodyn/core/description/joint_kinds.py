# SPDX-License-Identifier: Apache-2.0
"""Kinds of joints: the coordinates of each, their units, and where they lie in a state.

Everything that follows from the kind of a joint is derived from the one table here. What the coordinates mean is said
in `core.description.spec`.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple

JointKind = Literal["revolute", "prismatic", "ball", "free"]


@dataclass(frozen=True)
class JointCoordinates:
    """Coordinates of one kind of joint.

    Attributes:
        q: Suffixes of the names of the position coordinates.
        q_units: Their units.
        qd: Suffixes of the names of the velocity coordinates.
        tangent: Suffixes of the names of the coordinates of a difference of two positions.
        tangent_units: Their units.
        effort_unit: Unit of what drives a joint of one degree of freedom.
    """

    q: tuple[str, ...]
    q_units: tuple[str, ...]
    qd: tuple[str, ...]
    tangent: tuple[str, ...]
    tangent_units: tuple[str, ...]
    effort_unit: Literal["N m", "N"] = "N m"


_PLACE, _QUATERNION, _TURN = (".x", ".y", ".z"), (".qx", ".qy", ".qz", ".qw"), (".rx", ".ry", ".rz")
_LINEAR, _ANGULAR = (".vx", ".vy", ".vz"), (".wx", ".wy", ".wz")
_METRES, _RADIANS, _ONES = ("m",) * 3, ("rad",) * 3, ("1",) * 4

COORDINATES: dict[JointKind, JointCoordinates] = {
    "revolute": JointCoordinates(("",), ("rad",), ("",), ("",), ("rad",)),
    "prismatic": JointCoordinates(("",), ("m",), ("",), ("",), ("m",), effort_unit="N"),
    "ball": JointCoordinates(_QUATERNION, _ONES, _ANGULAR, _TURN, _RADIANS),
    "free": JointCoordinates(
        _PLACE + _QUATERNION, _METRES + _ONES, _LINEAR + _ANGULAR, _PLACE + _TURN, _METRES + _RADIANS
    ),
}
"""Coordinates of each kind of joint."""


class OfJointKind:
    """What follows from the kind of a joint; a base of the records that have a `kind`."""

    __slots__ = ()
    kind: JointKind

    @property
    def nq(self) -> int:
        """Number of position coordinates."""
        return len(COORDINATES[self.kind].q)

    @property
    def nv(self) -> int:
        """Number of velocity coordinates."""
        return len(COORDINATES[self.kind].qd)

    @property
    def scalar(self) -> bool:
        """Whether it has one degree of freedom; the other kinds have a quaternion."""
        return self.nv == 1


class Place(NamedTuple):
    """Where the coordinates of one joint lie in a state.

    Attributes:
        q: Its positions.
        qd: Its velocities.
        quaternion: The quaternion among the positions; empty of a joint of one degree of freedom.
        linear: Linear velocity among the velocities; empty of a ball joint.
        angular: Angular velocity among the velocities; empty of a joint of one degree of freedom.
    """

    q: slice
    qd: slice
    quaternion: slice
    linear: slice
    angular: slice


def places(joints: Iterable[OfJointKind]) -> list[Place]:
    """Return where the coordinates of each joint lie in the state of all."""
    found: list[Place] = []
    row = dof = 0
    for joint in joints:
        q_end, qd_end = row + joint.nq, dof + joint.nv
        quaternion, angular = (q_end, qd_end) if joint.scalar else (q_end - 4, qd_end - 3)
        found.append(
            Place(
                slice(row, q_end), slice(dof, qd_end),
                slice(quaternion, q_end), slice(dof, angular), slice(angular, qd_end),
            )
        )  # fmt: skip
        row, dof = q_end, qd_end
    return found


def is_floating(joints: Iterable[OfJointKind]) -> bool:
    """Return whether the first of a robot's joints is that of a floating base."""
    return next((joint.kind == "free" for joint in joints), False)
