# SPDX-License-Identifier: Apache-2.0
"""Passive forces beside those of single joints: springs of ball and free joints, and what carries a link's weight."""

from typing import Any

from msgspec import UNSET

from neurodyn.geometry.rotation import quaternion_matrix
from neurodyn.multibody.articulated import Quantity
from neurodyn.multibody.mass_matrix import SparseRow, sparse
from neurodyn.multibody.points import Kinematics
from neurodyn.multibody.rates import polynomial
from neurodyn.multibody.tendons.attachments import AttachedMotion
from neurodyn.multibody.trace import safe_sqrt
from neurodyn.multibody.turning import turning_rows
from neurodyn.multibody.vectors import array, dot, matrix_quaternion, rotation_vector


def turning_springs(links: Kinematics, q: list[Any], quantity: Quantity) -> SparseRow:
    r"""Return the generalised forces of springs in ball and free joints, along MuJoCo's velocities of them.

    $$f = -k(|x|)\, x$$ for the rotation vector x from rest in the axes of the link, and for a free joint's position.
    """
    found: SparseRow = {}
    for index, link in enumerate(links.tree.links):
        if link.joint.scalar or link.rest_pose is UNSET:
            continue
        own, rest = links.tree.q_of(index, q), link.rest_pose
        turned = array(quaternion_matrix(rest[-4:])).T @ array(quaternion_matrix(own[-4:]))
        parts = [array(own[:-4]) - array(rest[:-4]), rotation_vector(*matrix_quaternion(turned))]
        for apart, rows in zip(parts, turning_rows(links.tree, index, q), strict=True):
            if not rows:
                continue
            stiffness = polynomial(link, quantity, link.joint.name, "stiffness", safe_sqrt(dot(apart, apart)))
            for x, row in zip(apart, rows, strict=True):
                for dof, share in row.items():
                    found[dof] = found.get(dof, 0.0) - stiffness * x * share
    return found


def carrying_forces(links: Kinematics, qd: list[Any], quantity: Quantity) -> SparseRow:
    """Return the generalised forces that carry the weight of the links' `carried` mass."""
    attached, found = AttachedMotion(links, qd), dict[int, Any]()
    for link in links.tree.links:
        if not link.carried:
            continue
        name = link.joint.name
        force = -1.0 * quantity(f"{name}.carried") * links.tree.vector("gravity")
        for dof, x in sparse(attached.row(attached.point(name, array(link.carried_at)), force)).items():
            found[dof] = found[dof] + x if dof in found else x
    return found
