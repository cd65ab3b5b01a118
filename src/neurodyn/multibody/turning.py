# SPDX-License-Identifier: Apache-2.0
"""Damping, dry friction and rotor inertia of free and ball joints, along MuJoCo's velocities of them.

These are the velocity of the body's origin and the angular velocity in body axes; those of a mechanism are the velocity
of the nominal centre of mass and the angular velocity in the axes of the joint's frame in the parent.
"""

from typing import Any

from neurodyn.core.description.mechanism import Link
from neurodyn.geometry.rotation import quaternion_matrix
from neurodyn.multibody.articulated import Tree
from neurodyn.multibody.mass_matrix import SparseRow
from neurodyn.multibody.rates import curved, polynomial
from neurodyn.multibody.trace import absolute
from neurodyn.multibody.vectors import IDENTITY, array, cross


def turning_rows(tree: Tree, index: int, q: list[Any]) -> tuple[list[SparseRow], list[SparseRow]]:
    """Return MuJoCo's linear and angular velocities of a free or ball joint as rows over the velocity coordinates."""
    dofs = tree.v_of(index, list(range(tree.mechanism.nv)))
    spins = dofs[-3:]
    turn = array(quaternion_matrix(tree.q_of(index, q)[-4:]))
    angular = [dict(zip(spins, turn[:, axis], strict=True)) for axis in range(3)]
    if tree.links[index].joint.kind == "ball":
        return [], angular
    arm = tree.arm(index, q)
    linear = [
        {dofs[axis]: 1.0, **dict(zip(spins, -1.0 * cross(arm, IDENTITY[axis]), strict=True))} for axis in range(3)
    ]
    return linear, angular


def turning_damping(tree: Tree, q: list[Any], qd: list[Any], *, slope: bool = False) -> list[tuple[SparseRow, Any]]:
    """Return the damping of free and ball joints, as forces -c J^T J qd: rows J with their c.

    With `slope`, c is minus the derivative of the force along a row by its rate.
    """
    found = []
    for row, value, link in _weighted(tree, q, "damping", ("free", "ball")):
        if curved(link):
            rate = absolute(along(row, qd))
            value = polynomial(link, tree.quantity, link.joint.name, "damping", rate, slope=slope)
        found.append((row, value))
    return found


def turning_inertia(tree: Tree, q: list[Any]) -> list[tuple[SparseRow, Any]]:
    """Return the rotor inertia of free joints as inertias along rows; that of ball joints is known to `Tree`."""
    return [(row, value) for row, value, _ in _weighted(tree, q, "armature", ("free",))]


def _weighted(tree: Tree, q: list[Any], what: str, kinds: tuple[str, ...]) -> list[tuple[SparseRow, Any, Link]]:
    found = []
    for index, link in enumerate(tree.links):
        given = getattr(link, what) or (what == "damping" and curved(link))
        if link.joint.kind in kinds and given:
            value = tree.quantity(f"{link.joint.name}.{what}") if getattr(link, what) else 0.0
            found += [(row, value, link) for rows in turning_rows(tree, index, q) for row in rows]
    return found


def along(row: SparseRow, velocities: list[Any]) -> Any:
    """Return the velocity along a row."""
    return sum((x * velocities[dof] for dof, x in row.items()), start=0.0)
