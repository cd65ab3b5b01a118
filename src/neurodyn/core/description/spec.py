# SPDX-License-Identifier: Apache-2.0
"""Specification of state and control: joint kinds and their coordinates, names, order, units and time step."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import msgspec

from neurodyn.core.config import Config
from neurodyn.core.errors import InputError, require

JointKind = Literal["revolute", "prismatic", "ball", "free", "screw"]


@dataclass(frozen=True)
class JointCoordinates:
    """Coordinates of one kind of joint.

    Name suffixes and units of positions, suffixes of velocities, suffixes and units of position differences
    (`tangent`), and the effort unit of a joint with one degree of freedom.
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
    "screw": JointCoordinates(("",), ("rad",), ("",), ("",), ("rad",)),
}
"""Coordinates of each joint kind."""


class JointProperty(NamedTuple):
    """Where MuJoCo has a passive property of a joint: an array of its models, and an attribute in its files."""

    mujoco: str
    mjcf: str


JOINT_PROPERTIES = {
    "armature": JointProperty("dof_armature", "armature"),
    "damping": JointProperty("dof_damping", "damping"),
    "friction": JointProperty("dof_frictionloss", "frictionloss"),
    "stiffness": JointProperty("jnt_stiffness", "stiffness"),
}
"""Passive properties of joints, none below 0: fields of `Link`, quantities, and `joint_NAME` in Newton's models."""


class HasJointKind:
    """Base of records with a joint `kind`, with properties derived from it."""

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
        """Whether the joint has one degree of freedom; other kinds have a quaternion."""
        return self.nv == 1


class JointPlace(NamedTuple):
    """Columns of one joint in a state: positions, velocities, and their rotational and linear parts.

    The quaternion (of q) and the angular velocity (of qd) are empty for a joint with one degree of freedom, the linear
    velocity (of qd) for a ball joint.
    """

    q: slice
    qd: slice
    quaternion: slice
    linear: slice
    angular: slice


def places(joints: Iterable[HasJointKind]) -> list[JointPlace]:
    """Return the columns of each joint's coordinates in a state."""
    columns: list[JointPlace] = []
    row = dof = 0
    for joint in joints:
        q_end, qd_end = row + joint.nq, dof + joint.nv
        quaternion, angular = (q_end, qd_end) if joint.scalar else (q_end - 4, qd_end - 3)
        columns.append(
            JointPlace(
                slice(row, q_end), slice(dof, qd_end),
                slice(quaternion, q_end), slice(dof, angular), slice(angular, qd_end),
            )
        )  # fmt: skip
        row, dof = q_end, qd_end
    return columns


def is_floating(joints: Iterable[HasJointKind]) -> bool:
    """Return whether the base floats, i.e. the first joint is free."""
    return next((joint.kind == "free" for joint in joints), False)


class HasJoints:
    """Base of records with `joints`, with properties derived from their kinds."""

    __slots__ = ()
    joints: Any

    @property
    def nq(self) -> int:
        """Number of position coordinates."""
        return sum(joint.nq for joint in self.joints)

    @property
    def nv(self) -> int:
        """Number of velocity coordinates."""
        return sum(joint.nv for joint in self.joints)

    @property
    def floating(self) -> bool:
        """Whether the base floats, i.e. the first joint is free."""
        return is_floating(self.joints)


class JointSpec(Config, HasJointKind, frozen=True):
    """One joint with degrees of freedom."""

    name: str
    """Name of the joint in the robot's file."""
    kind: JointKind
    continuous: bool = False
    """Whether the position is an unlimited angle, compared modulo 2 pi."""
    lower: float | None = None
    """Lower limit [rad or m]; None for none."""
    upper: float | None = None
    """Upper limit [rad or m]; None for none."""

    @property
    def q_names(self) -> tuple[str, ...]:
        """Names of the joint's position coordinates."""
        return tuple(self.name + suffix for suffix in COORDINATES[self.kind].q)

    @property
    def qd_names(self) -> tuple[str, ...]:
        """Names of the joint's velocity coordinates."""
        return tuple(self.name + suffix for suffix in COORDINATES[self.kind].qd)

    @property
    def q_units(self) -> tuple[str, ...]:
        """Units of the joint's position coordinates."""
        return COORDINATES[self.kind].q_units

    @property
    def qd_units(self) -> tuple[str, ...]:
        """Units of the joint's velocity coordinates."""
        return tuple(f"{unit}/s" for unit in self.tangent_units)

    @property
    def tangent_names(self) -> tuple[str, ...]:
        """Names of the coordinates of a position difference; rotations are rotation vectors."""
        return tuple(self.name + suffix for suffix in COORDINATES[self.kind].tangent)

    @property
    def tangent_units(self) -> tuple[str, ...]:
        """Units of the coordinates of a position difference."""
        return COORDINATES[self.kind].tangent_units


class Channel(Config, frozen=True):
    """One measured scalar besides the generalised coordinates."""

    name: str
    """"QUANTITY" or "QUANTITY.COMPONENT", for example "base_linear_velocity.x"; the components of a quantity are
    adjacent."""
    unit: str
    """Unit, for example "m/s"; "1" if dimensionless."""
    frame: Literal["", "world", "base"] = ""
    """Axes of the components; empty for none."""

    @property
    def quantity(self) -> str:
        """Quantity it is a component of."""
        return self.name.partition(".")[0]


class StateSpec(Config, HasJoints, frozen=True):
    """Names, order, units and time step of a robot's state and control."""

    robot: str
    joints: tuple[JointSpec, ...]
    """Joints with degrees of freedom, in the order of the coordinates."""
    controls: tuple[str, ...]
    """Driven joints, or actuators of a robot with commands of its own, in the order of the control vector."""
    dt: float
    """Length of one frame [s]."""
    context: int = 0
    """Number of earlier frames that a prediction can use; 0 for a complete state."""
    channels: tuple[Channel, ...] = ()
    """Measured scalars besides the generalised coordinates, in order."""
    contacts: tuple[str, ...] = ()
    """Bodies with a known contact state, in order."""
    control_kind: Literal["torque", "target", "velocity", "command"] = "torque"
    """"torque" [N m or N]; "target" of a position controller [rad or m] whose gains are part of the measured system;
    "velocity" of a joint with prescribed motion; or "command" of the robot's own actuators, each in its own unit."""

    def __post_init__(self) -> None:
        require(bool(self.joints or self.channels), "joints", "empty", "at least one, or channels")

    @property
    def q_names(self) -> tuple[str, ...]:
        """Names of the position coordinates, shape [nq]."""
        return tuple(name for joint in self.joints for name in joint.q_names)

    @property
    def qd_names(self) -> tuple[str, ...]:
        """Names of the velocity coordinates, shape [nv]."""
        return tuple(name for joint in self.joints for name in joint.qd_names)

    @property
    def q_units(self) -> tuple[str, ...]:
        """Units of the position coordinates, shape [nq]."""
        return tuple(unit for joint in self.joints for unit in joint.q_units)

    @property
    def qd_units(self) -> tuple[str, ...]:
        """Units of the velocity coordinates, shape [nv]."""
        return tuple(unit for joint in self.joints for unit in joint.qd_units)

    @property
    def control_units(self) -> tuple[str, ...]:
        """Units of the controls according to `control_kind`, shape [nu]; "1" for commands of actuators."""
        if self.control_kind == "command":
            return ("1",) * self.nu
        if self.control_kind == "velocity":
            return tuple(self.qd_units[dof] for dof in self.control_dofs)
        if self.control_kind == "target":
            return tuple(self.q_units[self.q_names.index(name)] for name in self.controls)
        efforts = {joint.name: COORDINATES[joint.kind].effort_unit for joint in self.joints}
        return tuple(efforts.get(name, "N m") for name in self.controls)

    @property
    def tangent_names(self) -> tuple[str, ...]:
        """Names of the coordinates of a position difference, shape [nv]."""
        return tuple(name for joint in self.joints for name in joint.tangent_names)

    @property
    def tangent_units(self) -> tuple[str, ...]:
        """Units of the coordinates of a position difference, shape [nv]."""
        return tuple(unit for joint in self.joints for unit in joint.tangent_units)

    @property
    def nu(self) -> int:
        """Number of controls."""
        return len(self.controls)

    @property
    def nx(self) -> int:
        """Number of channels."""
        return len(self.channels)

    @property
    def nc(self) -> int:
        """Number of bodies with a known contact state."""
        return len(self.contacts)

    @property
    def places(self) -> list[JointPlace]:
        """Columns of each joint's coordinates in a state."""
        return places(self.joints)

    @property
    def objects(self) -> dict[str, JointPlace]:
        """Columns of the free joints of objects beside the robot, i.e. all but the first joint, by name."""
        free = [joint.kind == "free" and number > 0 for number, joint in enumerate(self.joints)]
        columns = zip(self.joints, self.places, free, strict=True)
        return {joint.name: place for joint, place, apart in columns if apart}

    @property
    def joint_q(self) -> slice:
        """Columns of the positions of all joints except a floating base."""
        return slice(self.joints[0].nq if self.floating else 0, None)

    @property
    def joint_qd(self) -> slice:
        """Columns of the velocities of all joints except a floating base."""
        return slice(self.joints[0].nv if self.floating else 0, None)

    @property
    def continuous(self) -> tuple[bool, ...]:
        """Whether each position coordinate is an angle modulo 2 pi, shape [nq]."""
        return tuple(joint.continuous for joint in self.joints for _ in joint.q_names)

    @property
    def control_dofs(self) -> tuple[int, ...]:
        """Velocity coordinate on which each control acts, shape [nu].

        Raises:
            InputError: A control is an actuator, which may act on several joints.
        """
        names = self.qd_names
        for name in self.controls:
            if name not in names:
                raise InputError(
                    f"robot {self.robot!r}: its control {name!r} is an actuator, not a joint; valid here: a robot "
                    "whose controls are joints"
                )
        return tuple(names.index(name) for name in self.controls)

    def differences(self, other: "StateSpec") -> list[str]:
        """List in words how `other` differs from this spec; empty if a model of this spec fits it.

        Contacts of `other` are ignored if this spec has none.
        """
        differences = []
        if self.q_names != other.q_names:
            differences.append(f"joint order is {list(other.q_names)} instead of {list(self.q_names)}")
        else:
            words = {True: "continuous", False: "not continuous"}
            for mine, theirs in zip(self.joints, other.joints, strict=True):
                pair = (mine.kind, theirs.kind)
                if mine.kind == theirs.kind:
                    pair = (words[mine.continuous], words[theirs.continuous])
                if pair[0] != pair[1]:
                    differences.append(f"joint {mine.name!r} is {pair[1]} instead of {pair[0]}")
        if self.controls != other.controls:
            differences.append(f"controls are {list(other.controls)} instead of {list(self.controls)}")
        for what, mine, theirs in (
            ("channels", self.channels, other.channels),
            ("contacts", self.contacts, other.contacts),
            ("control_kind", self.control_kind, other.control_kind),
        ):
            if mine != theirs and (mine or what != "contacts"):
                differences.append(f"{what}: {_show(theirs)} instead of {_show(mine)}")
        if abs(self.dt - other.dt) > 1e-6 * self.dt:
            differences.append(f"dt is {other.dt:.6g} s instead of {self.dt:.6g} s")
        return differences

    def require_joints(self, links: Iterable[Any]) -> None:
        """Raise an InputError unless the joints are those of a mechanism's links (`Mechanism.joints`)."""
        mine, theirs = ([f"{joint.name} ({joint.kind})" for joint in joints] for joints in (self.joints, links))
        if mine != theirs:
            raise InputError(
                f"robot {self.robot!r}: its joints are {', '.join(mine)}, but those of the mechanism are "
                f"{', '.join(theirs) or '(none)'}; valid: the same in the same order"
            )

    def with_context(self, frames: int) -> "StateSpec":
        """Return a copy with another number of context frames."""
        return msgspec.structs.replace(self, context=frames)


def _show(given: "str | tuple[Channel | str, ...]") -> str:
    if isinstance(given, str):
        return given
    return str([item.name if isinstance(item, Channel) else item for item in given])
