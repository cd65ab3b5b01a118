# SPDX-License-Identifier: Apache-2.0
r"""What drives do in a traced step, and their damping, implicit in the step.

$$(M + h\, c\, r^T r)\, \ddot q' = M\, \ddot q$$

for each drive with damping c and transmission r, whose length has the rate $r\, \dot q$: MuJoCo's implicitfast, which
leaves out entries between joints of different branches, where M is zero.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec import UNSET

from neurodyn.core.description.drive import Drive
from neurodyn.core.description.spec import StateSpec
from neurodyn.core.errors import InputError
from neurodyn.multibody.articulated import Wrenches
from neurodyn.multibody.drives.drive import DriveForce
from neurodyn.multibody.drives.transmissions import Transmission
from neurodyn.multibody.mass_matrix import SparseRow, TreeInertia, factored, is_zero, solved
from neurodyn.multibody.points import add_wrench
from neurodyn.multibody.trace import absolute, select_less

_TINY = 1e-15

ImplicitRow = tuple[SparseRow, Any]
"""Entries of a row of a Jacobian by velocity coordinate, and the damping of its rate, implicit in the step."""


@dataclass
class DriveEffects:
    """What drives do in a step: torque by velocity coordinate, wrenches by link, and implicit damping.

    `adhesion` is the force that pulls a link to what it touches, by name of the link.
    """

    torque: dict[int, Any] = field(default_factory=dict)
    wrenches: Wrenches = field(default_factory=dict)
    implicit: list[ImplicitRow] = field(default_factory=list)
    adhesion: dict[str, Any] = field(default_factory=dict)

    def add(self, row: SparseRow, force: Any) -> None:
        """Add a force along a row."""
        for dof, factor in row.items():
            own = force if isinstance(factor, float) and factor == 1.0 else factor * force
            self.torque[dof] = self.torque[dof] + own if dof in self.torque else own

    def act(self, drive: Drive, place: Transmission, force: DriveForce, *, by_wrench: bool) -> None:
        """Add a force of a drive at its place, as a wrench where that does the same and is asked for."""
        if not is_zero(force.damping):
            self.implicit.append((place.row, force.damping))
        if drive.adhesion is not UNSET:
            self.adhesion[drive.adhesion] = self.adhesion.get(drive.adhesion, 0.0) + force.torque
        elif place.wrench is None or not by_wrench:
            self.add(place.row, force.torque)
        else:
            link, (moment, push) = place.wrench
            add_wrench(self.wrenches, link, force.torque * moment, force.torque * push)


def require_placed(drives: Mapping[str, Drive], spec: StateSpec) -> None:
    """Raise an `InputError` for a control that is neither a joint nor a drive with a place of its own."""
    for name in spec.controls:
        if name not in spec.qd_names and not (name in drives and drives[name].placed):
            raise InputError(
                f"robot {spec.robot!r}: control {name!r} is no joint; valid: a joint, or a drive of that name with a "
                "transmission"
            )


def share_within(limits: tuple[float, float], forces: Sequence[Any]) -> Any:
    """Return the share of forces that is left where their sum has a least and a greatest value."""
    total = sum(forces, start=0.0)
    divisor = select_less(absolute(total), _TINY, 1.0, total)
    lower, upper = limits
    return select_less(total, lower, lower / divisor, select_less(upper, total, upper / divisor, 1.0))


def damped(
    inertia: TreeInertia, acceleration: list[Any], joints: Mapping[int, Any], rows: Sequence[ImplicitRow], step: Any
) -> list[Any]:
    """Return accelerations over a step of this length [s] with damping implicit in the velocity.

    `joints` is damping by velocity coordinate, `rows` that along rows.
    """
    rows = [(row, value) for row, value in rows if not is_zero(value)]
    if not rows and all(map(is_zero, joints.values())):
        return acceleration
    force = inertia.times(acceleration)
    stiffer = inertia.with_squares([(row, step * value) for row, value in rows])
    for dof, value in joints.items():
        stiffer[dof][dof] = stiffer[dof][dof] + step * value
    return solved(*factored(stiffer), force)
