# SPDX-License-Identifier: Apache-2.0
"""What was identified of a robot, as plain data that other simulators are given."""

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from neurodyn.core.description.drive import Drive
from neurodyn.core.description.mechanism import Link, Mechanism
from neurodyn.core.errors import InputError
from neurodyn.dynamics.simulators.network import TrainedNetwork
from neurodyn.robots import Robot

ACTUATOR = "actuator."
"""What names of a drive's quantities begin with."""

BODY = ("mass", "com", "inertia")
"""Quantities of the rigid body of a link."""

_DENSITY = 1000.0  # of shapes without a mass, wherever nobody says another [kg/m^3]


@dataclass(frozen=True)
class Identified:
    """A robot with what was identified of it.

    Attributes:
        run: The run, in words.
        robot: Its declaration; None where there is nothing but an actuator network.
        mechanism: The mechanism with the identified values.
        drives: The drives by joint, likewise.
        free: Values of the free quantities by name.
        nominal: What the declaration says of them.
        contact: Values of all quantities of its contact model by name; empty where contacts are no soft constraints.
        network: An actuator network; None for none.
    """

    run: str
    robot: Robot | None
    mechanism: Mechanism
    drives: dict[str, Drive] = field(default_factory=dict)
    free: dict[str, float] = field(default_factory=dict)
    nominal: dict[str, float] = field(default_factory=dict)
    contact: dict[str, float] = field(default_factory=dict)
    network: TrainedNetwork | None = None

    @property
    def scalar_links(self) -> list[Link]:
        """Links whose joint has one degree of freedom."""
        return [link for link in self.mechanism.links if link.joint.scalar]

    @property
    def efforts(self) -> dict[str, float]:
        """Greatest torque or force of each driven joint [N m or N], in the order of the control vector."""
        return {} if self.robot is None else dict(self.robot.actuated)

    @property
    def wanted(self) -> list[str]:
        """Names of what a simulator should have a place for: free quantities, and whatever a drive does."""
        names, absent = list(self.free), Drive()
        for joint, drive in self.drives.items():
            for number, value in drive.quantities().items():
                idle = number == "stribeck_speed" and not drive.stribeck
                if value != getattr(absent, number) and not idle:
                    names.append(f"{ACTUATOR}{joint}.{number}")
        return list(dict.fromkeys(names))

    def require_robot(self, target: str) -> Robot:
        """Return the declaration.

        Raises:
            InputError: There is none.
        """
        if self.robot is None:
            raise InputError(
                f"{self.run}: holds no identified robot, which {target} needs; valid: newton, isaaclab or mjlab, which "
                "take an actuator network alone, or a run of `neurodyn identify` with --parameters"
            )
        return self.robot

    def refuse_network(self, target: str) -> None:
        """Refuse an actuator network.

        Raises:
            InputError: There is one.
        """
        if self.network is not None:
            raise InputError(
                f"{self.run}: holds an actuator network of {', '.join(self.network.joints)}, for which {target} has no "
                "place; valid: newton, isaaclab or mjlab"
            )

    def is_free(self, *names: str) -> bool:
        """Return whether one of these quantities, or of their entries ("elbow.com"), is free."""
        return any(name == one or name.startswith(f"{one}.") for one in names for name in self.free)

    def body_is_free(self, link: str) -> bool:
        """Return whether mass, centre of mass or inertia of a link is free."""
        return self.is_free(*(f"{link}.{what}" for what in BODY))

    @property
    def all_bodies(self) -> bool:
        """Whether masses and inertias differ from the asset's, because the declaration changes them."""
        robot = self.robot
        return robot is not None and (
            robot.mass_scale != 1.0 or bool(robot.densities) or bool(robot.added_inertia) or robot.density != _DENSITY
        )

    def names(self, *prefixes: str) -> set[str]:
        """Return the names of free quantities that are one of these, or entries of one."""
        return {name for name in self.free if any(name == one or name.startswith(f"{one}.") for one in prefixes)}

    def friction(self, link: Link) -> float:
        """Return the Coulomb friction of a joint with that of a rigid drive [N m or N]."""
        return link.friction + self._rigid(link, "coulomb")

    def damping(self, link: Link) -> float:
        """Return the viscous friction of a joint with that of a rigid drive [N m s/rad or N s/m]."""
        return link.damping + self._rigid(link, "viscous")

    def _rigid(self, link: Link, number: str) -> float:
        drive = self.drives.get(link.joint.name)
        return 0.0 if drive is None or drive.elastic else getattr(drive, number)

    def rigid_frictions(self) -> set[str]:
        """Return the names of the drives' frictions that `friction` and `damping` hold."""
        rigid = [joint for joint, drive in self.drives.items() if not drive.elastic]
        return {f"{ACTUATOR}{joint}.{number}" for joint in rigid for number in ("coulomb", "viscous")}

    def changes(self, names: Iterable[str]) -> list[str]:
        """Return a line for each of these quantities that is free: "elbow.mass: 1 -> 1.07"."""
        return [
            f"{name}: {number(self.nominal[name])} -> {number(self.free[name])}" for name in names if name in self.free
        ]


def number(value: float) -> str:
    """Return a number as text: as few digits as single precision needs where it is one, else ten."""
    value += 0.0  # zero has no sign
    single = np.float32(value)
    return f"{single!s}" if float(single) == value else f"{value:.10g}"


def drive_names(joint: str, numbers: Iterable[str]) -> set[str]:
    """Return the names of numbers of a drive as quantities."""
    return {f"{ACTUATOR}{joint}.{one}" for one in numbers}


def heading(identified: Identified, target: str) -> list[str]:
    """Return the lines with which an exported file says what it is: where from, and what was identified."""
    lines = [f"{target} of {identified.run}, written by neurodyn."]
    changes = identified.changes(identified.free)
    return [*lines, *(["Identified (declared -> here):", *changes] if changes else ["Nothing of it was identified."])]
