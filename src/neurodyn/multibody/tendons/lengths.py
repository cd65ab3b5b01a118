# SPDX-License-Identifier: Apache-2.0
r"""Tendons in a traced step: lengths, Jacobians, forces of their springs and dampers, and their inertia.

A tendon of length l(q) has the row $J = \partial l/\partial q$ and the velocity $J \dot q$. A force f along it is the
generalised force $J^T f$; an armature m adds $m J^T J$ to the mass matrix and $m J^T \dot J \dot q$ to the bias forces.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from msgspec import UNSET

from neurodyn.core.description.couplings import TENDON, Obstacle, Strand, Tendon
from neurodyn.geometry.rotation import quaternion_matrix
from neurodyn.multibody.articulated import Quantity
from neurodyn.multibody.mass_matrix import SparseRow, TreeInertia, is_zero, sparse
from neurodyn.multibody.passive import damping_slope, is_curved, polynomial
from neurodyn.multibody.points import Kinematics
from neurodyn.multibody.scope import Scope
from neurodyn.multibody.tendons.attachments import AttachedMotion, AttachedPoint
from neurodyn.multibody.tendons.wrapping import wrap_path
from neurodyn.multibody.trace import absolute, maximum, safe_sqrt, select_less
from neurodyn.multibody.vectors import array, dot

_COINCIDENT = 1e-24
"""Square of the distance below which two points count as one [m^2]."""


@dataclass
class TendonMotion:
    """A tendon in a step.

    Attributes:
        tendon: The tendon.
        length: Its length [m].
        row: Derivative of the length with respect to the velocity coordinates.
        velocity: Rate of the length [m/s].
        bias: Second derivative of the length under no acceleration except `Tree.centripetal` [m/s^2].
        armature: Inertia along its length [kg].
    """

    tendon: Tendon
    length: Any
    row: SparseRow
    velocity: Any
    bias: Any
    armature: Any

    @property
    def name(self) -> str:
        """Prefix of the names of its quantities."""
        return f"{TENDON}{self.tendon.name}"


def tendon_motions(
    links: Kinematics, tendons: Iterable[Tendon], q: Sequence[Any], qd: Sequence[Any], quantity: Quantity
) -> dict[str, TendonMotion]:
    """Return the tendons of a mechanism in a step, by name; q and qd in Newton's convention."""
    attached, motions = AttachedMotion(links, qd, links.tree.centripetal(list(q), list(qd))), {}
    for tendon in tendons:
        armature = quantity(f"{TENDON}{tendon.name}.armature")
        if tendon.joints:
            length, row, bias = _fixed_tendon(links, tendon, q, quantity)
        else:
            length, row, bias = _spatial_tendon(attached, tendon.strands, moving=not is_zero(armature))
        velocity = sum((x * qd[dof] for dof, x in row.items()), start=0.0)
        motions[tendon.name] = TendonMotion(tendon, length, row, velocity, bias, armature)
    return motions


def _fixed_tendon(
    links: Kinematics, tendon: Tendon, q: Sequence[Any], quantity: Quantity
) -> tuple[Any, SparseRow, Any]:
    tree, length, row = links.tree, 0.0, {}
    for joint in tendon.joints:
        arm = quantity(f"{TENDON}{tendon.name}.arm.{joint}")
        if not is_zero(arm):
            row[tree.dofs[joint]] = arm
            length = length + arm * tree.q_of(tree.index_of[joint], list(q))[0]
    return length, dict(sorted(row.items())), 0.0


def _spatial_tendon(attached: AttachedMotion, strands: Sequence[Strand], *, moving: bool) -> tuple[Any, SparseRow, Any]:
    """Return length, row and, if `moving`, the second derivative of the length without accelerations."""
    length: Any = 0.0
    total: list[Any] = []
    bias: Any = 0.0
    for strand in strands:
        points = [attached.point(point.link, array(point.point)) for point in strand.points]
        share = 1.0 / strand.divisor
        for (start, end), waypoint in zip(pairwise(points), strand.points, strict=False):
            piece_length, piece_row, piece_bias = _straight(attached, start, end, moving=moving)
            if waypoint.around is not UNSET:
                piece_length, piece_row = _wrap(attached, start, end, waypoint.around, piece_length, piece_row)
            length, bias = length + share * piece_length, bias + share * piece_bias
            total = [a + share * b for a, b in zip(total or [0.0] * len(piece_row), piece_row, strict=True)]
    return length, sparse(total), bias


def _straight(
    attached: AttachedMotion, start: AttachedPoint, end: AttachedPoint, *, moving: bool = False
) -> tuple[Any, list[Any], Any]:
    """Return length, row and, if `moving`, the second derivative of a straight piece."""
    between = end.position - start.position
    square = dot(between, between)
    distance = safe_sqrt(square)
    if start.link == end.link:
        return distance, attached.zero_row, 0.0
    along_x = (1.0, 0.0, 0.0)  # MuJoCo's direction where the points coincide
    unit = array([select_less(square, _COINCIDENT, a, b) for a, b in zip(along_x, between / distance, strict=True)])
    row = [a - b for a, b in zip(attached.row(end, unit), attached.row(start, unit), strict=True)]
    if not moving:
        return distance, row, 0.0
    relative_velocity = attached.velocity(end) - attached.velocity(start)
    along, drawn = dot(unit, relative_velocity), attached.acceleration(end) - attached.acceleration(start)
    return distance, row, (dot(relative_velocity, relative_velocity) - along * along) / distance + dot(unit, drawn)


def _wrap(
    attached: AttachedMotion, start: AttachedPoint, end: AttachedPoint, obstacle: Obstacle, length: Any, row: list[Any]
) -> tuple[Any, list[Any]]:
    """Return length and row of a piece around an obstacle, from those of the straight one.

    The tangent points count as points of the obstacle: moving them along the obstacle does not change the length.
    """
    pose = obstacle.pose
    centre = attached.point(obstacle.link, array(pose[:3]))
    frame = None
    if obstacle.kind == "cylinder":
        frame = attached.rotation_of(centre.link, array(quaternion_matrix(pose[3:])))
    side = None
    if obstacle.side is not UNSET:
        side = attached.point(obstacle.side.link, array(obstacle.side.point)).position - centre.position
    path = wrap_path(start.position - centre.position, end.position - centre.position, obstacle.radius, side, frame)
    first, last = (AttachedPoint(centre.link, centre.position + x, centre.arm + x) for x in (path.first, path.last))
    (reach, row_there, _), (rest, row_on, _) = _straight(attached, start, first), _straight(attached, last, end)

    def chosen(bent: Any, straight: Any) -> Any:
        return select_less(0.5, path.wraps, bent, straight)

    bent = [a + b for a, b in zip(row_there, row_on, strict=True)]
    return chosen(reach + path.length + rest, length), [chosen(a, b) for a, b in zip(bent, row, strict=True)]


def tendon_torques(tendons: Mapping[str, TendonMotion], scope: Scope) -> SparseRow:
    """Return the generalised forces of springs and dampers; networks may act on the force of each tendon."""
    torques: SparseRow = {}
    for motion in tendons.values():
        name = motion.name
        length = scope.define(f"{name}.length", motion.length)
        velocity = scope.define(f"{name}.velocity", motion.velocity)
        stretch = maximum(length - scope(f"{name}.slack.upper"), 0.0) - maximum(
            scope(f"{name}.slack.lower") - length, 0.0
        )
        rate = absolute(velocity) if is_curved(motion.tendon) else velocity
        stiffness = polynomial(motion.tendon, scope, name, "stiffness", stretch)
        pull = stiffness * stretch + polynomial(motion.tendon, scope, name, "damping", rate) * velocity
        force = scope.define(f"{name}.force", -pull)
        for dof, x in motion.row.items():
            torques[dof] = torques.get(dof, 0.0) + x * force
    return torques


def tendon_damping(tendons: Mapping[str, TendonMotion], scope: Scope) -> list[tuple[SparseRow, Any]]:
    """Return row and damping of each tendon with damping."""
    damping = [(one.row, damping_slope(one.tendon, scope, one.name, one.velocity)) for one in tendons.values()]
    return [(row, value) for row, value in damping if not is_zero(value)]


def added_inertia(tendons: Mapping[str, TendonMotion]) -> list[tuple[SparseRow, Any]]:
    """Return row and inertia of each tendon with an armature."""
    return [(one.row, one.armature) for one in tendons.values() if not is_zero(one.armature)]


def with_inertia(
    links: Kinematics, tendons: Mapping[str, TendonMotion], acceleration: list[Any], centripetal: Mapping[int, Any],
    others: Sequence[tuple[SparseRow, Any]] = (),
) -> list[Any]:  # fmt: skip
    """Return the accelerations of a mechanism with its tendons' armature, and other inertias, from those without it.

    `others` are inertias along rows of MuJoCo's velocity coordinates (`multibody.passive`). `centripetal` are
    accelerations that the tendons' `bias` includes (`Tree.centripetal`).
    """
    heavy = [one for one in tendons.values() if not is_zero(one.armature)]
    if not heavy and not others:
        return acceleration
    every = [*added_inertia(tendons), *others]
    light, inertia = (TreeInertia(links.tree, links.poses, added) for added in ((), every))
    moving = [a - centripetal.get(dof, 0.0) for dof, a in enumerate(acceleration)]
    force = [a - b for a, b in zip(light.times(moving), inertia.times(moving), strict=True)]
    for one in heavy:
        for dof, x in one.row.items():
            force[dof] = force[dof] - x * one.armature * one.bias
    change = inertia.velocities(inertia.halfway(force))
    return [a + more for a, more in zip(acceleration, change, strict=True)]
