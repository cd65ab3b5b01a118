# SPDX-License-Identifier: Apache-2.0
r"""Points that are held for a while: stance feet and gripping hands, and the impact where they begin to hold.

With the points' Jacobian J at the start of a step of length h, the velocity after it obeys

$$J\, \dot q' + \tfrac{h}{2} \dot J \dot q = 0, \qquad \dot q' = \dot q + h (\ddot q - M^{-1} J^T \lambda)$$

so that a point which moves when it begins to hold stops within the step: a plastic impact with the impulse
$h \lambda = (J M^{-1} J^T)^{-1} J \dot q$ (Westervelt et al., "Feedback control of dynamic bipedal robot locomotion",
section 3.4.2). The second term is that of the middle of the step, without which a held point drifts in h instead of
h squared.
"""

from collections.abc import Sequence
from typing import Any

from neurodyn.core.description.actuation import Pivot
from neurodyn.multibody.contacts.contact_model import Contacts
from neurodyn.multibody.mass_matrix import SparseRow, TreeInertia, factorise, solve, sparse
from neurodyn.multibody.tendons.attachments import AttachedMotion
from neurodyn.multibody.trace import select_less
from neurodyn.multibody.vectors import EYE, array

_RIDGE = 1e-9
"""Share of the diagonal that is added to it: two held points may constrain the same motion."""


def hold_pivots(contacts: Contacts, acceleration: list[Any], pivots: Sequence[tuple[Pivot, Any]]) -> list[Any]:
    """Return the accelerations over a step with some points held.

    Args:
        contacts: The step.
        acceleration: Accelerations without them.
        pivots: The points, and commands from 0.5 on where they are held.
    """
    if not pivots:
        return acceleration
    step, held = contacts.dt, [select_less(command, 0.5, 0.0, 1.0) for _, command in pivots]
    attached = AttachedMotion(contacts, contacts.qd, contacts.tree.centripetal(contacts.q, contacts.qd))
    inertia = TreeInertia(contacts.tree, contacts.poses, [(row, step * damping) for row, damping in contacts.implicit])
    rows, rests, loose = list[SparseRow](), [], []
    after = [rate + step * rise for rate, rise in zip(contacts.qd, acceleration, strict=True)]
    for (pivot, _), share in zip(pivots, held, strict=True):
        at = attached.point(pivot.link, array(pivot.point))
        turning = attached.acceleration(at)
        for axis, own in zip(EYE, turning, strict=True):
            row = {dof: share * x for dof, x in sparse(attached.row(at, axis)).items()}
            if row:
                rows.append(row)
                loose.append(1.0 - share)
                rests.append(sum((x * after[dof] for dof, x in row.items()), start=share * 0.5 * step * own))
    halves = [inertia.halfway([row.get(dof, 0.0) for dof in range(len(acceleration))]) for row in rows]
    matrix = [
        [sum((a * b for a, b in zip(half, inertia.weight(other), strict=True)), start=0.0) for other in halves[: k + 1]]
        for k, half in enumerate(halves)
    ]
    for k, row in enumerate(matrix):
        row[k] = (1.0 + _RIDGE) * row[k] + loose[k]
    impulses = solve(*factorise(matrix), rests)
    push = [
        sum((row[dof] * x for row, x in zip(rows, impulses, strict=True) if dof in row), start=0.0)
        for dof in range(len(acceleration))
    ]
    change = inertia.velocities(inertia.halfway(push))
    return [rise - by / step for rise, by in zip(acceleration, change, strict=True)]
