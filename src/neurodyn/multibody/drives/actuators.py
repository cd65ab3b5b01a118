# SPDX-License-Identifier: Apache-2.0
r"""Where drives act in a traced step: joints, fixed tendons and points of links; and their damping, implicit in a step.

$$(M + h\, c\, r^T r)\, \ddot q' = M\, \ddot q$$

for each drive with damping c and transmission r, whose length has the rate $r\, \dot q$: MuJoCo's implicitfast, which
leaves out entries between joints of different branches, where M is zero.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec import UNSET

from neurodyn.core.description.drive import BodyWrench, Drive
from neurodyn.core.description.spec import StateSpec
from neurodyn.core.errors import InputError
from neurodyn.multibody.articulated import Tree, Wrench, Wrenches
from neurodyn.multibody.drives.drive import DrivenJoint
from neurodyn.multibody.mass_matrix import SparseRow, TreeInertia, factored, is_zero, solved
from neurodyn.multibody.vectors import array, cross

ImplicitRow = tuple[SparseRow, Any]
"""Entries of a row of a Jacobian by velocity coordinate, and the damping of its rate, implicit in the step."""


@dataclass
class DriveEffects:
    """What drives do in a step: torque by velocity coordinate, wrenches by link, and implicit damping."""

    torque: dict[int, Any] = field(default_factory=dict)
    wrenches: Wrenches = field(default_factory=dict)
    implicit: list[ImplicitRow] = field(default_factory=list)


def require_placed(drives: Mapping[str, Drive], spec: StateSpec) -> None:
    """Raise an `InputError` for a control that is neither a joint nor a drive with a transmission or a wrench."""
    for name in spec.controls:
        if name not in spec.qd_names and not (name in drives and drives[name].placed):
            raise InputError(
                f"robot {spec.robot!r}: control {name!r} is no joint; valid: a joint, or a drive of that name with a "
                "transmission"
            )


def transmitted(drive: Drive, name: str, spec: StateSpec, q: list[Any], qd: list[Any]) -> DrivenJoint:
    """Return a drive's joint, or its transmission as a joint: length and rate, zero for a wrench."""
    if not drive.placed:
        row = spec.q_names.index(name)
        return DrivenJoint(name, q[row], qd[spec.qd_names.index(name)], spec.continuous[row])
    length: Any = 0.0
    rate: Any = 0.0
    for joint, factor in ({} if drive.transmission is UNSET else drive.transmission).items():
        length = length + factor * q[spec.q_names.index(joint)]
        rate = rate + factor * qd[spec.qd_names.index(joint)]
    return DrivenJoint(name, length, rate, continuous=False)


def jacobian_row(drive: Drive, spec: StateSpec) -> dict[int, float]:
    """Return the torque on each velocity coordinate per unit of torque of a drive with a transmission or a wrench."""
    given = {} if drive.transmission is UNSET else drive.transmission
    return {spec.qd_names.index(joint): factor for joint, factor in given.items()}


def wrench_of(wrench: BodyWrench, tree: Tree, size: Any) -> tuple[int, Wrench]:
    """Return the link of an actuator's wrench, and moment and force on it in its frame."""
    link = tree.index_of[wrench.link]
    force, moment = (tree.turned_to_link(link, array(part)) for part in (wrench.force, wrench.moment))
    arm = tree.in_link_frame(link, array(wrench.point))
    return link, (size * (moment + cross(arm, force)), size * force)


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
