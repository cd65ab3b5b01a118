# SPDX-License-Identifier: Apache-2.0
r"""Contact as impulses: after a step, no touching point approaches the ground, and friction obeys Coulomb's law.

With Jacobian rows J of the touching points (normal n, tangents t) and velocities $\dot q^*$ of a step without contact,
impulses x change the velocities by $M^{-1} J^T x$. The points then move with

$$u = A x + J \dot q^*, \qquad A = J M^{-1} J^T + R$$

$$n \ge 0, \quad u_n \ge w, \quad n\,(u_n - w) = 0, \quad w = \max(e\,v, b); \qquad |t| \le \mu n$$

with t opposing slip (Stewart and Trinkle 1996; Heiden et al. 2021, NeuralSim). v is the approach speed, e the
restitution. b is Baumgarte's term, which removes a share of the depth per step, $r = a\,(depth - slop)/dt$. It
saturates at a speed c, $b = r c/(r + c)$, so that deep penetration is resolved without ejecting the body. w is the
greater of rebound and correction, not their sum. R (constraint force mixing) lets a point yield by R per unit of
impulse, which keeps the problem well posed for redundant points or joints. `gauss_seidel` solves for the impulses.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from neurodyn.core.errors import require
from neurodyn.multibody.articulated import Quantity, Tree
from neurodyn.multibody.contacts.contact_model import ContactModel, ContactPush, Contacts
from neurodyn.multibody.contacts.gauss_seidel import Adjoint, cone_impulses
from neurodyn.multibody.mass_matrix import TreeInertia, is_zero
from neurodyn.multibody.points import Kinematics, LinkPose, PointContact
from neurodyn.multibody.trace import maximum, select_less
from neurodyn.multibody.vectors import EYE, Vector, array, cross, dot

DEFAULTS = {"contact.friction": 0.8, "contact.restitution": 0.0, "contact.baumgarte": 0.2, "contact.cfm": 1e-4}
"""Nominal values of the model's quantities: mu, e, a, R [1/kg]."""


@dataclass(frozen=True)
class ImpulseSettings:
    """Solver settings of the impulses."""

    sweeps: int = 50  # of projected Gauss-Seidel
    slop: float = 1e-4  # depth that Baumgarte's term does not correct [m]
    push: float = 0.1  # saturation speed of Baumgarte's term [m/s]
    adjoint: Adjoint = "taped"  # differentiates the sweeps; "implicit" differentiates the solution

    def __post_init__(self) -> None:
        require(self.sweeps >= 1, "sweeps", self.sweeps, "at least 1")
        require(self.push > 0, "push", self.push, "a speed above 0 [m/s]")


DEFAULT_SETTINGS = ImpulseSettings()


@dataclass
class ContactRows:
    """The constrained directions of touching points and the effect of impulses along them."""

    inertia: TreeInertia
    touched: list[PointContact]  # those that the mechanism can move along their normals, in the order of the rows
    tangents: list[int]  # number of tangents of each point
    directions: list[Vector]  # unit vectors of the rows, world axes: normal, tangents, point after point
    jacobian: list[list[Any]]  # velocity along each row by the velocity coordinates
    half: list[list[Any]]  # L^-T J^T, see `TreeInertia.halfway`

    def matrix(self, cfm: Sequence[Any]) -> list[list[Any]]:
        r"""Return $J M^{-1} J^T + R$ from R of each point; only entries [i][j] with j <= i are filled in."""
        each = [value for value, count in zip(cfm, self.tangents, strict=True) for _ in range(1 + count)]
        weighted = [self.inertia.weight(y) for y in self.half]
        matrix = [[_sum_of_products(y, other) for other in weighted[: i + 1]] for i, y in enumerate(self.half)]
        for i, row in enumerate(matrix):
            row[i] = row[i] + each[i]
        return matrix

    def pushes(self, impulses: Sequence[Any], dt: Any) -> list[ContactPush]:
        """Return the mean force of each point over a step of dt [s]."""
        pushes, first = [], 0
        for touch, count in zip(self.touched, self.tangents, strict=True):
            rows = range(first, first + 1 + count)
            force = [sum((impulses[i] * self.directions[i][x] for i in rows), start=0.0) / dt for x in range(3)]
            pushes += [ContactPush(link, arm, sign * array(force)) for link, arm, sign in touch.sides]
            first += 1 + count
        return pushes


def contact_rows(tree: Tree, poses: Sequence[LinkPose], touched: Sequence[PointContact]) -> ContactRows:
    """Return the rows of touching points; points that the mechanism's structure cannot move are left out."""
    inertia = TreeInertia(tree, poses)
    rows = ContactRows(inertia, [], [], [], [], [])
    for touch in touched:
        normal_row = _relative_row(inertia, touch, touch.normal)
        if all(map(is_zero, normal_row)):
            continue
        rigid = [axis for axis in range(3) if all(map(is_zero, _relative_row(inertia, touch, EYE[axis])))]
        tangents = [(d, _relative_row(inertia, touch, d)) for d in tangent_axes(touch.normal, rigid)]
        tangents = [(d, row) for d, row in tangents if not all(map(is_zero, row))]
        rows.touched.append(touch)
        rows.tangents.append(len(tangents))
        rows.directions += [touch.normal, *(d for d, _ in tangents)]
        rows.jacobian += [normal_row, *(row for _, row in tangents)]
    rows.half = [inertia.halfway(row) for row in rows.jacobian]
    return rows


def _relative_row(inertia: TreeInertia, touch: PointContact, direction: Vector) -> list[Any]:
    """Return the Jacobian of a touching point's relative velocity along a direction."""
    row: list[Any] = [0.0] * len(inertia.columns)
    for link, arm, sign in touch.sides:
        row = [a + sign * b for a, b in zip(row, inertia.row(link, arm, direction), strict=True)]
    return row


def tangent_axes(normal: Vector, rigid: Sequence[int] = ()) -> tuple[Vector, Vector]:
    """Return two unit vectors orthogonal to a unit normal and to each other, finite for every normal.

    Duff et al. 2017, "Building an orthonormal basis, revisited". If a world axis along which nothing moves (`rigid`) is
    in the plane, it is one of the tangents, so that its row can be dropped.
    """
    for axis in rigid:
        if is_zero(normal[axis]):
            first = cross(EYE[axis], normal)
            return first, EYE[axis]
    x, y, z = normal
    sign = select_less(z, 0.0, -1.0, 1.0)
    a = -1.0 / (sign + z)
    b = x * y * a
    return array([1.0 + sign * x * x * a, sign * b, -(sign * x)]), array([b, sign + y * y * a, -y])


def contact_impulses(
    rows: ContactRows, qd_free: Sequence[Any], dt: Any, quantity: Quantity, settings: ImpulseSettings = DEFAULT_SETTINGS
) -> list[Any]:
    """Return the impulses along the rows [N s]; arguments: see `contact_velocities`."""
    offset = [_sum_of_products(row, qd_free) for row in rows.jacobian]
    first = 0
    for touch, count in zip(rows.touched, rows.tangents, strict=True):
        came = maximum(-dot(touch.normal, touch.velocity), 0.0)
        push = quantity(f"{touch.constants}.baumgarte") * maximum(touch.depth - settings.slop, 0.0) / dt
        push = push * settings.push / (push + settings.push)
        offset[first] = offset[first] - maximum(quantity(f"{touch.constants}.restitution") * came, push)
        first += 1 + count
    return cone_impulses(
        rows.matrix([quantity(f"{touch.constants}.cfm") for touch in rows.touched]),
        offset,
        rows.tangents,
        [quantity(f"{touch.constants}.friction") for touch in rows.touched],
        [touch.depth for touch in rows.touched],
        settings.sweeps,
        settings.adjoint,
    )


def contact_velocities(
    links: Kinematics, touched: Sequence[PointContact], qd_free: Sequence[Any], dt: Any, quantity: Quantity,
    settings: ImpulseSettings = DEFAULT_SETTINGS, pushes: list[ContactPush] | None = None,
) -> list[Any]:  # fmt: skip
    """Return the velocities after a step of `dt` [s] with impulses, from those without, in Newton's coordinates.

    Links and touched points are at the start of the step, `quantity` has the quantities in `DEFAULTS`, and `pushes`
    receives the mean forces over the step.
    """
    rows = contact_rows(links.tree, links.poses, touched)
    if not rows.touched:
        return list(qd_free)
    impulses = contact_impulses(rows, qd_free, dt, quantity, settings)
    if pushes is not None:
        pushes += rows.pushes(impulses, dt)
    half = [_sum_of_products(impulses, column) for column in zip(*rows.half, strict=True)]
    return [v + more for v, more in zip(qd_free, rows.inertia.velocities(half), strict=True)]


class ImpulseContactModel(ContactModel):
    """Contact as impulses at the end of a step."""

    defaults = DEFAULTS
    impulsive = True

    def accelerations(self, contacts: Contacts, free: list[Any]) -> list[Any]:
        """Return accelerations over the step."""
        before, dt, touched = contacts.qd, contacts.dt, contacts.touched
        unhindered = [v + dt * a for v, a in zip(before, free, strict=True)]
        solved = contact_velocities(contacts, touched, unhindered, dt, contacts.scope, pushes=contacts.pushes)
        return [(after - v) * (1.0 / dt) for after, v in zip(solved, before, strict=True)]


IMPULSE = ImpulseContactModel()


def _sum_of_products(a: Sequence[Any], b: Sequence[Any]) -> Any:
    return sum((x * y for x, y in zip(a, b, strict=True)), start=0.0)
