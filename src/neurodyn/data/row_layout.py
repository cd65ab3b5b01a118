# SPDX-License-Identifier: Apache-2.0
"""Layout of headerless rows of legged robots: state-estimator and controller quantities.

A row is [state | action | contacts | termination]. The state is base linear velocity (3), base angular velocity (3) and
direction of gravity (3), all in base axes, then joint positions relative to the default pose, joint velocities and
joint torques (n each). The n actions are outputs of a policy: a joint's position target is its default position plus
scale times the action. Contacts are 0 or 1; termination marks failure at that row.
"""

import math
from itertools import accumulate, pairwise
from typing import Literal

from neurodyn.core.config import Config
from neurodyn.core.description.spec import Channel, JointSpec, StateSpec
from neurodyn.core.errors import require

_BASE = (("base_linear_velocity", "m/s"), ("base_angular_velocity", "rad/s"), ("projected_gravity", "1"))
_PARTS = ("state", "action", "contacts", "termination")


class RowLayout(Config, frozen=True):
    """Columns of the rows.

    Attributes:
        robot: Name of the robot.
        dt: Time between two rows of an episode [s].
        joints: Joints, in column order.
        nominal: Default joint positions [rad]; logged positions and targets are relative to them.
        action_scale: Change of a joint's target per unit of action [rad].
        contacts: Bodies of the contact columns, in order.
        format: Always "rows"; distinguishes this file from a column map.
        time_out: Whether a further column marks episodes that ended by a time limit.
        episode_length: Rows of an episode that ended by a time limit; None if unknown.
        continuous: Whether a file is one recording, in which only failures end episodes.
    """

    robot: str
    dt: float
    joints: tuple[str, ...]
    nominal: tuple[float, ...]
    action_scale: float
    contacts: tuple[str, ...] = ()
    format: Literal["rows"] = "rows"
    time_out: bool = False
    episode_length: int | None = None
    continuous: bool = False

    def __post_init__(self) -> None:
        for name in ("dt", "action_scale"):
            require(0 < getattr(self, name) < math.inf, name, getattr(self, name), "a number above 0")
        if not self.joints or len(set(self.joints)) < len(self.joints):
            raise ValueError("joints: give every joint once, in the order of the columns")
        if len(self.nominal) != len(self.joints) or not all(math.isfinite(value) for value in self.nominal):
            raise ValueError(f"nominal has {len(self.nominal)} values; valid: {len(self.joints)} finite ones [rad]")
        length = self.episode_length
        require(length is None or length >= 2, "episode_length", length, "at least 2 rows")
        if sum((self.time_out, self.episode_length is not None, self.continuous)) > 1:
            raise ValueError("give one of time_out, episode_length and continuous: each says where episodes end")

    @property
    def spec(self) -> StateSpec:
        """State specification of the rows."""
        return log_spec(self.robot, self.joints, self.dt, self.contacts)

    @property
    def widths(self) -> dict[str, int]:
        """Number of columns of each part, in order."""
        n = len(self.joints)
        return dict(zip(_PARTS, (9 + 3 * n, n, len(self.contacts), 1), strict=True)) | (
            {"time_out": 1} if self.time_out else {}
        )

    @property
    def slices(self) -> dict[str, slice]:
        """Columns of each part."""
        bounds = accumulate(self.widths.values(), initial=0)
        return {name: slice(*pair) for name, pair in zip(self.widths, pairwise(bounds), strict=True)}

    @property
    def names(self) -> tuple[str, ...]:
        """Name of each column, for messages."""
        base = [f"{quantity}.{axis}" for quantity, _ in _BASE for axis in "xyz"]
        joints = [f"{what}.{joint}" for what in ("position", "velocity", "torque") for joint in self.joints]
        actions, contacts = [f"action.{j}" for j in self.joints], [f"contact.{c}" for c in self.contacts]
        return (*base, *joints, *actions, *contacts, "termination", *(["time_out"] if self.time_out else []))


def log_spec(robot: str, joints: tuple[str, ...], dt: float, contacts: tuple[str, ...]) -> StateSpec:
    """Return a legged robot's logged state: driven revolute joints, base velocity, gravity, torques; no base pose.

    Controls are position targets; `contacts` are bodies whose contact state is known.
    """
    base = [Channel(f"{name}.{axis}", unit, "base") for name, unit in _BASE for axis in "xyz"]
    return StateSpec(
        robot=robot,
        joints=tuple(JointSpec(name=name, kind="revolute") for name in joints),
        controls=joints,
        dt=dt,
        channels=(*base, *(Channel(f"joint_torque.{name}", "N m") for name in joints)),
        contacts=contacts,
        control_kind="target",
    )
