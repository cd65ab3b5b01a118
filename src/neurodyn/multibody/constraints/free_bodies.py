# SPDX-License-Identifier: Apache-2.0
r"""Ball and free joints in soft constraints: limits, dry friction, and steps that are implicit in the velocity.

For a free body that carries no others MuJoCo's implicitfast solves
$(M + h\, \partial c/\partial v + h D)\, \dot v = M \dot v_0$, with the bias forces c of the body's spin and the damping
D of its joint, of drives and of tendons.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from neurodyn.multibody.articulated import Tree
from neurodyn.multibody.constraints.equalities import ConstraintRows, friction_row, limit_row
from neurodyn.multibody.constraints.impedance import InverseWeights
from neurodyn.multibody.contacts.contact_model import Contacts
from neurodyn.multibody.drives.actuators import ImplicitRow
from neurodyn.multibody.mass_matrix import SparseRow, TreeInertia, is_zero
from neurodyn.multibody.passive import along, ball_free_rows
from neurodyn.multibody.trace import safe_sqrt
from neurodyn.multibody.vectors import EYE, array, cross, dot, rotation_vector, skew


def lone_bodies(tree: Tree) -> list[int]:
    """Return the links of free joints that carry no others."""
    parents = {link.joint.parent for link in tree.links}
    return [i for i, link in enumerate(tree.links) if link.joint.kind == "free" and i not in parents]


def without_lone(tree: Tree, rows: Sequence[ImplicitRow]) -> list[ImplicitRow]:
    """Return rows without the velocity coordinates of free bodies that carry no others."""
    alone = {dof for index in lone_bodies(tree) for dof in _coordinates(tree, index)}
    return [({dof: x for dof, x in row.items() if dof not in alone}, value) for row, value in rows]


def with_lone_implicit(
    contacts: Contacts, inertia: TreeInertia, acceleration: list[Any], centripetal: Mapping[int, Any]
) -> list[Any]:
    """Return the accelerations with those of free bodies that carry no others implicit in their velocity.

    `centripetal` are accelerations that are added to these (`Tree.centripetal`).
    """
    tree, result = contacts.tree, list(acceleration)
    for index in lone_bodies(tree):
        dofs = _coordinates(tree, index)
        matrix = [[inertia.matrix[max(i, j)][min(i, j)] for j in dofs] for i in dofs]
        coupled = any(not is_zero(x) for x in tree.centre(index) - tree.reference(index)) or tree.links[index].armature
        if not coupled:
            for i in range(3):
                for j in range(3):
                    matrix[i][3 + j] = matrix[3 + i][j] = 0.0
                    matrix[i][j] = matrix[i][j] if i == j else 0.0
        right = [sum(x * acceleration[dof] for x, dof in zip(row, dofs, strict=True)) for row in matrix]
        for row, value in contacts.implicit:
            for i, first in enumerate(dofs):
                for j, second in enumerate(dofs):
                    if first in row and second in row:
                        matrix[i][j] = matrix[i][j] + contacts.dt * value * row[first] * row[second]
        _add_spin(contacts, index, matrix, by_origin=dofs[0] in centripetal)
        for dof, value in zip(dofs, _eliminate(matrix, right), strict=True):
            result[dof] = value
    return result


def _coordinates(tree: Tree, index: int) -> list[int]:
    return tree.v_of(index, list(range(tree.mechanism.nv)))


def _add_spin(contacts: Contacts, index: int, matrix: list[list[Any]], *, by_origin: bool) -> None:
    """Add the derivatives of the bias forces with respect to the spin, times the step length, to `matrix`."""
    tree, dt = contacts.tree, contacts.dt
    rotation, spin = contacts.poses[index].rotation, array(tree.v_of(index, contacts.qd)[3:])
    body = rotation @ (tree.inertia(index) @ rotation.T)
    mass, centre = tree.quantity(f"{tree.links[index].joint.name}.mass"), rotation @ tree.centre(index)
    linear = None
    if by_origin:
        columns = [cross(axis, cross(spin, centre)) + cross(spin, cross(axis, centre)) for axis in EYE]
        linear = mass * array(columns).T
    offset = centre - rotation @ tree.reference(index)  # of the centre of mass relative to the reference point
    angular = skew(spin) @ body - skew(body @ spin)
    if linear is not None and any(not is_zero(x) for x in tree.centre(index) - tree.reference(index)):
        angular = angular + skew(offset) @ linear
    for i in range(3):
        for j in range(3):
            matrix[3 + i][3 + j] = matrix[3 + i][3 + j] + dt * angular[i][j]
            if linear is not None:
                matrix[i][3 + j] = matrix[i][3 + j] + dt * linear[i][j]


def _eliminate(matrix: list[list[Any]], right: list[Any]) -> list[Any]:
    """Solve a linear system by elimination without pivoting."""
    rows, values = [list(row) for row in matrix], list(right)
    size = len(values)
    inverse: list[Any] = []
    for k in range(size):
        inverse.append(1.0 / rows[k][k])
        for i in range(k + 1, size):
            if is_zero(rows[i][k]):
                continue
            share = rows[i][k] * inverse[k]
            for j in range(k + 1, size):
                if not is_zero(rows[k][j]):
                    rows[i][j] = rows[i][j] - share * rows[k][j]
            values[i] = values[i] - share * values[k]
    for k in range(size - 1, -1, -1):
        for j in range(k + 1, size):
            if not is_zero(rows[k][j]):
                values[k] = values[k] - rows[k][j] * values[j]
        values[k] = values[k] * inverse[k]
    return values


def ball_free_constraints(contacts: Contacts, inverse: InverseWeights) -> list[ConstraintRows]:
    """Return the rows of limits of ball joints, and of dry friction of free and ball joints."""
    tree, rows = contacts.tree, list[ConstraintRows]()
    for index, link in enumerate(tree.links):
        if link.joint.kind == "ball" and link.upper is not None:
            rows.append(_limit(contacts, inverse, index))
    for index, link in enumerate(tree.links):
        if not link.joint.scalar and link.friction:
            rows += _frictions(contacts, inverse, index)
    return rows


def _limit(contacts: Contacts, inverse: InverseWeights, index: int) -> ConstraintRows:
    """Return the row of a ball joint's maximum angle from its reference, along the axis of that rotation."""
    tree, scope = contacts.tree, contacts.scope
    name, own = tree.links[index].joint.name, tree.q_of(index, contacts.q)
    vector = rotation_vector(array(own[-4:-1]), own[-1])
    angle = safe_sqrt(dot(vector, vector))
    row: SparseRow = {}
    for x, rate in zip(vector / angle, ball_free_rows(tree, index, contacts.q)[1], strict=True):
        for dof, share in rate.items():
            row[dof] = row.get(dof, 0.0) - x * share
    margin = (tree.mechanism.constraints.limit_margins or {}).get(name, 0.0)
    violation = margin + angle - scope(f"{name}.upper")
    weight = inverse.ball_free_joint(index)[1]
    return limit_row(contacts, name, row, along(row, contacts.qd), violation, weight)


def _frictions(contacts: Contacts, inverse: InverseWeights, index: int) -> list[ConstraintRows]:
    name, constraints = contacts.tree.links[index].joint.name, list[ConstraintRows]()
    most: Any = contacts.scope(f"{name}.friction")
    parts = zip(ball_free_rows(contacts.tree, index, contacts.q), inverse.ball_free_joint(index), strict=True)
    for rows, weight in parts:
        for row in rows:
            constraints.append(friction_row(contacts, name, row, along(row, contacts.qd), most, weight))
    return constraints
