# SPDX-License-Identifier: Apache-2.0
r"""Equality constraints, limits and dry friction as rows of MuJoCo's soft constraints.

A row has the residual $y = J a + b J \dot q + k d r$ (MuJoCo's documentation, "Constraint model"), those of "connect"
and "weld" also $\dot J \dot q$. These share the impedance d, taken at the norm of their violations r.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from neurodyn.core.description.couplings import EQUALITY, Equality, Tendon
from neurodyn.core.description.mechanism import Link
from neurodyn.geometry.rotation import quaternion_matrix
from neurodyn.multibody.constraints.impedance import InverseWeights, compliance_of
from neurodyn.multibody.constraints.layout import RowGroup, RowKind
from neurodyn.multibody.contacts.contact_model import Contacts
from neurodyn.multibody.mass_matrix import SparseRow, is_zero, sparse
from neurodyn.multibody.tendons.attachments import AttachedMotion, AttachedPoint
from neurodyn.multibody.tendons.lengths import TendonMotion
from neurodyn.multibody.trace import absolute, minimum, safe_sqrt, select_less
from neurodyn.multibody.vectors import EYE, Matrix, array, cross, dot, matrix_quaternion


@dataclass
class ConstraintRows:
    """Rows of one constraint.

    Attributes:
        kind: Cost of the rows.
        rows: Their Jacobians.
        weights: D of each row.
        rests: Residual of each row without the acceleration.
        extra: Violation of a limit, or the friction limit; empty for equalities.
    """

    kind: RowKind
    rows: list[SparseRow]
    weights: list[Any]
    rests: list[Any]
    extra: list[Any] = field(default_factory=list)

    @property
    def group(self) -> RowGroup:
        """The structure of the rows."""
        return RowGroup(self.kind, tuple(sorted({dof for row in self.rows for dof in row})), len(self.rows))

    @property
    def inputs(self) -> list[Any]:
        """The inputs of the solver (`layout.RowGroup`)."""
        dofs, numbers = self.group.dofs, []
        for row, weight, rest in zip(self.rows, self.weights, self.rests, strict=True):
            numbers += [*(row.get(dof, 0.0) for dof in dofs), weight, rest, *self.extra]
        return numbers


def coupling_rows(contacts: Contacts, weights: InverseWeights) -> list[ConstraintRows]:
    """Return the rows of all equalities and tendons, except those that move nothing."""
    constraints = []
    for equality in contacts.tree.mechanism.equalities or ():
        if equality.kind in ("joint", "tendon"):
            constraints.append(_scalar_rows(contacts, equality, weights))
        else:
            constraints.append(_frame_rows(contacts, equality, weights))
    for motion in contacts.tendons.values():
        constraints += _tendon_rows(contacts, motion, weights.tendon(motion.tendon.name))
    return [rows for rows in constraints if rows.group.dofs]


def _along(row: SparseRow, velocities: Sequence[Any]) -> Any:
    return sum((x * velocities[dof] for dof, x in row.items()), start=0.0)


# --- equalities ----------------------------------------------------------------------------------------------------
def _equal(
    contacts: Contacts, equality: Equality, rows: list[SparseRow], residuals: Sequence[Any], weights: Sequence[Any],
    biases: Sequence[Any],
) -> ConstraintRows:  # fmt: skip
    """Return the rows of an equality from Jacobians, violations, inverse weights and accelerations of the rows."""
    start = f"{EQUALITY}{equality.name}"
    compliance = compliance_of(contacts.scope, f"{start}.solref", f"{start}.solimp", contacts.dt)
    size = absolute(residuals[0]) if len(residuals) == 1 else _norm(residuals)
    push = compliance.stiffness * compliance.impedance(size)
    rests = [
        bias + compliance.damping * _along(row, contacts.qd) + push * r
        for row, r, bias in zip(rows, residuals, biases, strict=True)
    ]
    return ConstraintRows("equality", rows, [compliance.weight(size, weight) for weight in weights], rests)


def _norm(values: Sequence[Any]) -> Any:
    """Return a Euclidean norm, exact down to 1e-12."""
    return 1e-6 * safe_sqrt(1e12 * sum((x * x for x in values), start=0.0))


def _scalar_rows(contacts: Contacts, equality: Equality, weights: InverseWeights) -> ConstraintRows:
    names = [equality.first, *([equality.second] if equality.second else [])]
    ends = [_scalar(contacts, equality, name, weights) for name in names]
    coefficients = [contacts.scope(f"{EQUALITY}{equality.name}.c{k}") for k in range(5 if equality.second else 1)]
    (position, row, weight), wanted = ends[0], coefficients[0]
    row = dict(row)
    if equality.second:
        second, other_row, other_weight = ends[1]
        offset, slope, power = second - equality.reference[1], 0.0, 1.0
        for k, coefficient in enumerate(coefficients[1:], 1):
            slope = slope + k * coefficient * power
            power = power * offset
            wanted = wanted + coefficient * power
        weight = weight + other_weight
        for dof, x in other_row.items():
            row[dof] = row.get(dof, 0.0) - slope * x
    return _equal(contacts, equality, [row], [position - equality.reference[0] - wanted], [weight], [0.0])


def _scalar(contacts: Contacts, equality: Equality, name: str, weights: InverseWeights) -> tuple[Any, SparseRow, Any]:
    """Return position, row and inverse weight of a joint or tendon."""
    if equality.kind == "tendon":
        motion = contacts.tendons[name]
        return motion.length, motion.row, weights.tendon(name)
    tree = contacts.tree
    dof = tree.dofs[name]
    return tree.q_of(tree.index_of[name], contacts.q)[0], {dof: 1.0}, weights.joint(dof)


def _frame(contacts: Contacts, attached: AttachedMotion, equality: Equality, end: str) -> tuple[AttachedPoint, Matrix]:
    """Return origin and rotation of a frame of an equality in the world."""
    name, pose = getattr(equality, end), getattr(equality, f"{end}_frame")
    point = array([contacts.scope(f"{EQUALITY}{equality.name}.{end}.{axis}") for axis in "xyz"])
    at = attached.point(name, point)
    return at, attached.rotation_of(at.link, array(quaternion_matrix(pose[3:])))


def _frame_rows(contacts: Contacts, equality: Equality, weights: InverseWeights) -> ConstraintRows:
    """Return the rows of a "connect" or "weld": translations along world axes, then rotations.

    Their residuals use the full acceleration of the constraint, including dJ/dt qd.
    """
    attached = AttachedMotion(contacts, contacts.qd, contacts.tree.centripetal(contacts.q, contacts.qd))
    (first, rotation), (second, second_rotation) = (
        _frame(contacts, attached, equality, end) for end in ("first", "second")
    )
    residuals = [*(first.position - second.position)]
    biases = [*(attached.acceleration(first) - attached.acceleration(second))]
    rows = [_difference(attached.row(first, axis), attached.row(second, axis)) for axis in EYE]
    centres = equality.first_centre or None, equality.second_centre or None
    ends = [(at.link, centre) for at, centre in zip((first, second), centres, strict=True) if at.link >= 0]
    inverse_weights = [sum((weights.body(link, centre) for link, centre in ends), start=0.0)] * 3
    if equality.kind == "weld":
        scale = contacts.scope(f"{EQUALITY}{equality.name}.torque_scale")
        vector, real = matrix_quaternion(second_rotation.T @ rotation)
        residuals += [*(scale * vector)]
        # The rate of the quaternion p between the frames is half the spin between them, in axes of the second, times p.
        for axis in EYE:
            direction = 0.5 * scale * (second_rotation @ (real * axis + cross(vector, axis)))
            rows.append(_difference(attached.angular_row(first, direction), attached.angular_row(second, direction)))
        spin = attached.spin(first) - attached.spin(second)
        drawn = attached.spin_acceleration(first) - attached.spin_acceleration(second)
        drawn = second_rotation.T @ (drawn - cross(attached.spin(second), spin))
        biases += [*(0.5 * scale * (real * drawn + cross(drawn, vector) - 0.5 * dot(spin, spin) * vector))]
        inverse_weights += [sum((weights.rotation(link) for link, _ in ends), start=0.0)] * 3
    return _equal(contacts, equality, rows, residuals, inverse_weights, biases)


def _difference(one: Sequence[Any], other: Sequence[Any]) -> SparseRow:
    return sparse([a - b for a, b in zip(one, other, strict=True)])


# --- tendons -------------------------------------------------------------------------------------------------------
def _tendon_rows(contacts: Contacts, motion: TendonMotion, weight: Any) -> list[ConstraintRows]:
    """Return the rows of the nearer limit of a tendon and of its friction."""
    name, tendon, rows, velocity = motion.name, motion.tendon, [], motion.velocity
    if tendon.limited:
        room, side = nearer_limit(contacts, name, tendon, motion.length)
        row, violation = {dof: side * x for dof, x in motion.row.items()}, contacts.scope(f"{name}.margin") - room
        rows.append(limit_row(contacts, name, row, side * velocity, violation, weight))
    most = contacts.scope(f"{name}.friction")
    if not is_zero(most):
        rows.append(friction_row(contacts, name, dict(motion.row), velocity, most, weight))
    return rows


# --- limits and friction -------------------------------------------------------------------------------------------
def nearer_limit(contacts: Contacts, name: str, bounds: Link | Tendon, value: Any) -> tuple[Any, Any]:
    """Return the distance to the nearer limit of a joint or tendon, and its side: 1 for lower, -1 for upper."""
    scope = contacts.scope
    if bounds.upper is None:
        return value - scope(f"{name}.lower"), 1.0
    above = scope(f"{name}.upper") - value
    if bounds.lower is None:
        return above, -1.0
    below = value - scope(f"{name}.lower")
    return minimum(below, above), select_less(below, above, 1.0, -1.0)


def limit_row(
    contacts: Contacts, name: str, row: SparseRow, velocity: Any, violation: Any, weight: Any
) -> ConstraintRows:
    """Return the row of a limit of a joint or tendon from the velocity along it and the inverse weight."""
    compliance = compliance_of(contacts.scope, f"{name}.limit_solref", f"{name}.limit_solimp", contacts.dt)
    rest = compliance.damping * velocity + compliance.reference(violation)
    return ConstraintRows("limit", [row], [compliance.weight(violation, weight)], [rest], [violation])


def friction_row(
    contacts: Contacts, name: str, row: SparseRow, velocity: Any, most: Any, weight: Any
) -> ConstraintRows:
    """Return the row of the dry friction of a joint or tendon; arguments: see `limit_row`."""
    compliance = compliance_of(contacts.scope, f"{name}.friction_solref", f"{name}.friction_solimp", contacts.dt)
    return ConstraintRows("friction", [row], [compliance.weight(0.0, weight)], [compliance.damping * velocity], [most])
