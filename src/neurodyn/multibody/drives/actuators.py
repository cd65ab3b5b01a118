# SPDX-License-Identifier: Apache-2.0
r"""Drives in a traced step: transmissions, forces, and damping that is implicit in the step.

A drive of length l has the row $r = \partial l/\partial q$ and the rate $r\, \dot q$; its force f is the generalised
force $r^T f$. Transmissions without a length, such as a force on a link, have only a row.

$$(M + h\, c\, r^T r)\, \ddot q' = M\, \ddot q$$

for each drive with damping c: MuJoCo's implicitfast, which leaves out entries between joints of different branches,
where M is zero.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from msgspec import UNSET

from neurodyn.core.description.actuation import PLACES, BodyWrench, FrameOffset, Pivot, SliderCrank, TurningJoint
from neurodyn.core.description.drive import Drive
from neurodyn.core.description.spec import StateSpec
from neurodyn.core.errors import InputError
from neurodyn.geometry.rotation import quaternion_matrix
from neurodyn.multibody.articulated import Wrench, Wrenches
from neurodyn.multibody.drives.drive import DriveForce, DrivenJoint
from neurodyn.multibody.mass_matrix import SparseRow, TreeInertia, add, factorise, is_zero, product, solve, sparse
from neurodyn.multibody.passive import along, ball_free_rows
from neurodyn.multibody.points import Kinematics, add_wrench
from neurodyn.multibody.tendons.attachments import AttachedMotion, AttachedPoint
from neurodyn.multibody.tendons.lengths import TendonMotion
from neurodyn.multibody.trace import absolute, safe_sqrt, select_less
from neurodyn.multibody.vectors import Vector, array, cross, dot, matrix_quaternion, rotation_vector


@dataclass
class DrivenMotion:
    """State of the driven system in a step: links, coordinates and tendons."""

    links: Kinematics
    q: list[Any]  # encoder readings
    qd: list[Any]
    tendons: Mapping[str, TendonMotion]
    loads: Sequence[Any] = ()  # torques of gravity and motion by velocity coordinate; empty if no drive needs them
    rates: Sequence[Any] = ()  # velocities that belong to the readings
    joints: Sequence[Any] = ()  # joint positions

    @cached_property
    def attached(self) -> AttachedMotion:
        """Points and frames of links."""
        return AttachedMotion(self.links, self.qd)


@dataclass
class Transmission:
    """A drive's transmission in a step."""

    length: Any
    """Its length; 0 for transmissions without one."""
    row: SparseRow
    """Derivative of the length with respect to the velocity coordinates."""
    period: float | None = None
    """Length of a full turn if a servo takes the shorter way around; None otherwise."""
    wrench: tuple[int, Wrench] | None = None
    """Link, and moment and force on it in its frame per unit of drive force, equivalent to the row."""

    def joint(self, name: str, qd: list[Any], drive: Drive) -> DrivenJoint:
        """Return the transmission as the joint of a drive."""
        servo = drive.kind == "servo" or (drive.kind == "affine" and drive.per_command == drive.kp)
        servo = servo and not drive.per_position and not drive.per_velocity  # the command is a set-point of the length
        turns = self.period if servo and drive.state_kind in (None, "integrator") else None
        return DrivenJoint(name, self.length, along(self.row, qd), continuous=False, period=turns)


def transmission_of(drive: Drive, motion: DrivenMotion) -> Transmission:
    """Return the transmission of a drive that does not act on the joint of its own name."""
    for name in PLACES:
        declared = getattr(drive, name)
        if declared is not UNSET:
            return _TRANSMISSIONS[name](declared, motion)
    raise AssertionError("a drive with a place")


def _joints(factors: Mapping[str, float], motion: DrivenMotion) -> Transmission:
    tree, length, row = motion.links.tree, 0.0, {}
    for joint, factor in factors.items():
        length = length + factor * tree.q_of(tree.index_of[joint], motion.q)[0]
        row[tree.dofs[joint]] = factor
    return Transmission(length, row)


def _tendons(factors: Mapping[str, float], motion: DrivenMotion) -> Transmission:
    length, row = 0.0, dict[int, Any]()
    for name, factor in factors.items():
        tendon = motion.tendons[name]
        length = length + factor * tendon.length
        for dof, x in tendon.row.items():
            row[dof] = row[dof] + factor * x if dof in row else factor * x
    return Transmission(length, row)


def _wrench(thruster: BodyWrench, motion: DrivenMotion) -> Transmission:
    tree = motion.links.tree
    link = tree.index_of[thruster.link]
    force, moment = (tree.rotate_to_link(link, array(part)) for part in (thruster.force, thruster.moment))
    arm = tree.in_link_frame(link, array(thruster.point))
    at, rotation = motion.attached.point(thruster.link, array(thruster.point)), motion.links.poses[link].rotation
    row = _row(motion, at, rotation @ force, rotation @ moment)
    return Transmission(0.0, sparse(row), wrench=(link, (moment + cross(arm, force), force)))


def _ball_free(acted: TurningJoint, motion: DrivenMotion) -> Transmission:
    tree = motion.links.tree
    index = tree.index_of[acted.joint]
    quaternion = tree.q_of(index, motion.q)[-4:]
    moment = array(acted.moment)
    if acted.in_parent:
        moment = array(quaternion_matrix(quaternion)).T @ moment
    linear, angular = ball_free_rows(tree, index, motion.q)
    row: SparseRow = {}
    for factor, own in zip((*acted.force[: len(linear)], *moment), (*linear, *angular), strict=True):
        for dof, x in own.items():
            row[dof] = row.get(dof, 0.0) + factor * x
    if tree.links[index].joint.kind == "free":
        return Transmission(0.0, row)
    turned = rotation_vector(array(quaternion[:3]), quaternion[3])
    return Transmission(dot(turned, moment), row, period=_full_turn(acted.moment))


def _full_turn(about: Sequence[float]) -> float:
    return 2.0 * math.pi * math.hypot(*about)


def _between(frames: FrameOffset, motion: DrivenMotion) -> Transmission:
    attached, length, ends = motion.attached, 0.0, []
    for name, frame in ((frames.link, frames.frame), (frames.reference, frames.reference_frame)):
        at = attached.point(name, array(frame[:3]))
        ends.append((at, attached.rotation_of(at.link, array(quaternion_matrix(frame[3:])))))
    (first, rotation), (second, second_rotation) = ends
    if any(frames.along):
        length = length + dot(second_rotation.T @ (first.position - second.position), array(frames.along))
    if any(frames.about):
        length = length + dot(rotation_vector(*matrix_quaternion(second_rotation.T @ rotation)), array(frames.about))
    pull, twist = second_rotation @ array(frames.along), second_rotation @ array(frames.about)
    rows = [_row(motion, at, pull, twist) for at in (first, second)]
    both = attached.carriers(first) & attached.carriers(second)
    row = [0.0 if dof in both else a - b for dof, (a, b) in enumerate(zip(*rows, strict=True))]
    return Transmission(length, sparse(row), None if any(frames.along) else _full_turn(frames.about))


def _crank(crank: SliderCrank, motion: DrivenMotion) -> Transmission:
    r"""Return the position $a \cdot v - \sqrt{(a \cdot v)^2 + r^2 - v \cdot v}$, v from the origin to the pin."""
    attached = motion.attached
    pin, slider = attached.point(crank.link, array(crank.point)), attached.point(crank.slider, array(crank.origin))
    axis = attached.direction(slider, array(crank.axis))
    offset = pin.position - slider.position
    share = dot(axis, offset)
    square = share * share + crank.rod * crank.rod - dot(offset, offset)
    reaches = select_less(0.0, square, 1.0, 0.0)
    root = safe_sqrt(select_less(0.0, square, square, 1.0))
    scale = 1.0 - reaches * (share / root)
    by_offset, by_axis = scale * axis + (reaches / root) * offset, scale * offset
    moved = [a - b for a, b in zip(attached.row(pin, by_offset), attached.row(slider, by_offset), strict=True)]
    turned = attached.angular_row(slider, cross(axis, by_axis))
    row = [crank.factor * (a + b) for a, b in zip(moved, turned, strict=True)]
    return Transmission(crank.factor * (share - reaches * root), sparse(row))


def _nowhere(place: object, motion: DrivenMotion) -> Transmission:
    """Return a transmission without a row: a contact model applies adhesion at contacts, `constraints.pivots` holds."""
    return Transmission(0.0, {})


_TRANSMISSIONS: dict[str, Callable[[Any, DrivenMotion], Transmission]] = {
    "transmission": _joints, "tendons": _tendons, "wrench": _wrench, "turning": _ball_free, "between": _between,
    "crank": _crank, "adhesion": _nowhere, "pivot": _nowhere,
}  # fmt: skip


def _row(motion: DrivenMotion, at: AttachedPoint, force: Vector, moment: Vector) -> list[Any]:
    """Return the row of a force at a point and a moment on its link, in world axes."""
    rows = motion.attached.row(at, force), motion.attached.angular_row(at, moment)
    return [a + b for a, b in zip(*rows, strict=True)]


_TINY = 1e-15

ImplicitRow = tuple[SparseRow, Any]
"""Entries of a row of a Jacobian by velocity coordinate, and the damping of its rate, implicit in the step."""


@dataclass
class DriveEffects:
    """Effects of drives in a step: torque by velocity coordinate, wrenches by link, and implicit damping.

    `adhesion` is the adhesion force of a link at its contacts, by name of the link; `dry` dry friction by velocity
    coordinate, a constraint of the joint; `pivots` are points with whether they are held, 0 or 1.
    """

    torque: dict[int, Any] = field(default_factory=dict)
    wrenches: Wrenches = field(default_factory=dict)
    implicit: list[ImplicitRow] = field(default_factory=list)
    adhesion: dict[str, Any] = field(default_factory=dict)
    dry: dict[int, Any] = field(default_factory=dict)
    pivots: list[tuple[Pivot, Any]] = field(default_factory=list)

    def add(self, row: SparseRow, force: Any) -> None:
        """Add a force along a row."""
        for dof, factor in row.items():
            own = force if isinstance(factor, float) and factor == 1.0 else factor * force
            self.torque[dof] = self.torque[dof] + own if dof in self.torque else own

    def act(self, drive: Drive, transmission: Transmission, force: DriveForce, *, by_wrench: bool) -> None:
        """Add a drive's force through its transmission, as a wrench if `by_wrench` and the transmission has one."""
        if not is_zero(force.damping):
            self.implicit.append((transmission.row, force.damping))
        if not is_zero(force.dry):
            (dof,) = transmission.row
            self.dry[dof] = force.dry
        if drive.pivot is not UNSET:
            self.pivots.append((drive.pivot, force.torque))
        elif drive.adhesion is not UNSET:
            self.adhesion[drive.adhesion] = self.adhesion.get(drive.adhesion, 0.0) + force.torque
        elif transmission.wrench is None or not by_wrench:
            self.add(transmission.row, force.torque)
        else:
            link, (moment, push) = transmission.wrench
            add_wrench(self.wrenches, link, force.torque * moment, force.torque * push)


def require_placed(drives: Mapping[str, Drive], spec: StateSpec) -> None:
    """Raise an `InputError` for a control that is neither a joint nor a drive with a transmission."""
    for name in spec.controls:
        if name not in spec.qd_names and not (name in drives and drives[name].acts_elsewhere):
            raise InputError(
                f"robot {spec.robot!r}: control {name!r} is no joint; valid: a joint, or a drive of that name with a "
                "transmission"
            )


def share_within(limits: tuple[float, float], forces: Sequence[Any]) -> Any:
    """Return the factor that scales forces so that their sum stays within limits."""
    total = sum(forces, start=0.0)
    divisor = select_less(absolute(total), _TINY, 1.0, total)
    lower, upper = limits
    return select_less(total, lower, lower / divisor, select_less(upper, total, upper / divisor, 1.0))


def damp_implicitly(
    inertia: TreeInertia, acceleration: list[Any], joints: Mapping[int, Any], rows: Sequence[ImplicitRow], step: Any
) -> list[Any]:
    """Return accelerations over a step of length `step` [s] with damping implicit in the velocity.

    `joints` is damping by velocity coordinate, `rows` damping along rows.
    """
    rows = [(row, value) for row, value in rows if not is_zero(value)]
    if not rows and all(map(is_zero, joints.values())):
        return acceleration
    added = inertia.squares([(row, step * value) for row, value in rows])
    for dof, value in joints.items():
        added[dof][dof] = added[dof][dof] + step * value
    # (M + h D)^-1 M a as a correction to a, which takes no product with M, and D is mostly 0.
    change = solve(*factorise(add(inertia.matrix, added)), product(added, acceleration))
    return [a - x for a, x in zip(acceleration, change, strict=True)]
