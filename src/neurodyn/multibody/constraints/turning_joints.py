# SPDX-License-Identifier: Apache-2.0
"""Limits and dry friction of ball and free joints as rows of MuJoCo's soft constraints."""

from typing import Any

from neurodyn.multibody.constraints.equalities import ConstraintRows
from neurodyn.multibody.constraints.impedance import yielding
from neurodyn.multibody.constraints.inverse_weights import InverseWeights
from neurodyn.multibody.contacts.contact_model import Contacts
from neurodyn.multibody.mass_matrix import SparseRow
from neurodyn.multibody.trace import safe_sqrt
from neurodyn.multibody.turning import along, turning_rows
from neurodyn.multibody.vectors import array, dot, rotation_vector


def turning_constraints(contacts: Contacts, inverse: InverseWeights) -> list[ConstraintRows]:
    """Return the rows of limits of ball joints, and of dry friction of free and ball joints."""
    tree, found = contacts.tree, list[ConstraintRows]()
    for index, link in enumerate(tree.links):
        if link.joint.kind == "ball" and link.upper is not None:
            found.append(_limit(contacts, inverse, index))
    for index, link in enumerate(tree.links):
        if not link.joint.scalar and link.friction:
            found += _frictions(contacts, inverse, index)
    return found


def _limit(contacts: Contacts, inverse: InverseWeights, index: int) -> ConstraintRows:
    """Return the row of the greatest angle from the joint's reference, along its axis."""
    tree, scope = contacts.tree, contacts.scope
    name, own = tree.links[index].joint.name, tree.q_of(index, contacts.q)
    vector = rotation_vector(array(own[-4:-1]), own[-1])
    angle = safe_sqrt(dot(vector, vector))
    row: SparseRow = {}
    for x, rate in zip(vector / angle, turning_rows(tree, index, contacts.q)[1], strict=True):
        for dof, share in rate.items():
            row[dof] = row.get(dof, 0.0) - x * share
    margin = (tree.mechanism.constraints.limit_margins or {}).get(name, 0.0)
    violation = margin + angle - scope(f"{name}.upper")
    yields = yielding(scope, f"{name}.limit_solref", f"{name}.limit_solimp", contacts.dt)
    rest = yields.damping * along(row, contacts.qd) + yields.reference(violation)
    weight = yields.weight(violation, inverse.turning_joint(index)[1])
    return ConstraintRows("limit", [row], [weight], [rest], [violation])


def _frictions(contacts: Contacts, inverse: InverseWeights, index: int) -> list[ConstraintRows]:
    name, found = contacts.tree.links[index].joint.name, list[ConstraintRows]()
    most: Any = contacts.scope(f"{name}.friction")
    yields = yielding(contacts.scope, f"{name}.friction_solref", f"{name}.friction_solimp", contacts.dt)
    parts = zip(turning_rows(contacts.tree, index, contacts.q), inverse.turning_joint(index), strict=True)
    for rows, weight in parts:
        for row in rows:
            rest = yields.damping * along(row, contacts.qd)
            found.append(ConstraintRows("friction", [row], [yields.weight(0.0, weight)], [rest], [most]))
    return found
