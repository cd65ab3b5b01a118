# SPDX-License-Identifier: Apache-2.0
"""Passive forces of ball and free joints, which act along MuJoCo's velocity coordinates.

MuJoCo's coordinates are the velocity of the body's origin and the angular velocity in body axes; those of a mechanism
are the velocity of the nominal centre of mass and the angular velocity in the axes of the joint's frame in the parent.
"""

from typing import Any

from msgspec import UNSET

from neurodyn.core.description.mechanism import Link
from neurodyn.geometry.rotation import quaternion_matrix
from neurodyn.multibody.articulated import Quantity, Tree
from neurodyn.multibody.mass_matrix import SparseRow
from neurodyn.multibody.points import Kinematics
from neurodyn.multibody.trace import absolute, safe_sqrt
from neurodyn.multibody.vectors import EYE, array, cross, dot, matrix_quaternion, rotation_vector


def ball_free_springs(links: Kinematics, q: list[Any], quantity: Quantity) -> SparseRow:
    r"""Return the generalised forces of springs in ball and free joints, which act along MuJoCo's velocities.

    $$f = -k(|x|)\, x$$ for the rotation vector x from rest in the axes of the link, and for a free joint's position.
    """
    forces: SparseRow = {}
    for index, link in enumerate(links.tree.links):
        if link.joint.scalar or link.rest_pose is UNSET:
            continue
        pose, rest_pose = links.tree.q_of(index, q), link.rest_pose
        relative = array(quaternion_matrix(rest_pose[-4:])).T @ array(quaternion_matrix(pose[-4:]))
        parts = [array(pose[:-4]) - array(rest_pose[:-4]), rotation_vector(*matrix_quaternion(relative))]
        for displacement, rows in zip(parts, ball_free_rows(links.tree, index, q), strict=True):
            if not rows:
                continue
            stiffness = polynomial(
                link, quantity, link.joint.name, "stiffness", safe_sqrt(dot(displacement, displacement))
            )
            for x, row in zip(displacement, rows, strict=True):
                for dof, share in row.items():
                    forces[dof] = forces.get(dof, 0.0) - stiffness * x * share
    return forces


def ball_free_rows(tree: Tree, index: int, q: list[Any]) -> tuple[list[SparseRow], list[SparseRow]]:
    """Return MuJoCo's linear and angular velocities of a free or ball joint as rows over the velocity coordinates."""
    dofs = tree.v_of(index, list(range(tree.mechanism.nv)))
    spins = dofs[-3:]
    rotation = array(quaternion_matrix(tree.q_of(index, q)[-4:]))
    angular = [dict(zip(spins, rotation[:, axis], strict=True)) for axis in range(3)]
    if tree.links[index].joint.kind == "ball":
        return [], angular
    arm = tree.arm(index, q)
    linear = [{dofs[axis]: 1.0, **dict(zip(spins, -1.0 * cross(arm, EYE[axis]), strict=True))} for axis in range(3)]
    return linear, angular


def ball_free_damping(tree: Tree, q: list[Any], qd: list[Any], *, slope: bool = False) -> list[tuple[SparseRow, Any]]:
    """Return the damping of free and ball joints, forces -c J^T J qd, as rows J with their c.

    With `slope`, c is minus the derivative of the force along a row with respect to its rate.
    """
    rows = []
    for row, value, link in _weighted_rows(tree, q, "damping", ("free", "ball")):
        if is_curved(link):
            rate = absolute(along(row, qd))
            value = polynomial(link, tree.quantity, link.joint.name, "damping", rate, slope=slope)
        rows.append((row, value))
    return rows


def free_armature(tree: Tree, q: list[Any]) -> list[tuple[SparseRow, Any]]:
    """Return the rotor inertia of free joints as inertias along rows; `Tree` includes that of ball joints."""
    return [(row, value) for row, value, _ in _weighted_rows(tree, q, "armature", ("free",))]


def _weighted_rows(tree: Tree, q: list[Any], what: str, kinds: tuple[str, ...]) -> list[tuple[SparseRow, Any, Link]]:
    weighted = []
    for index, link in enumerate(tree.links):
        given = getattr(link, what) or (what == "damping" and is_curved(link))
        if link.joint.kind in kinds and given:
            value = tree.quantity(f"{link.joint.name}.{what}") if getattr(link, what) else 0.0
            weighted += [(row, value, link) for rows in ball_free_rows(tree, index, q) for row in rows]
    return weighted


def along(row: SparseRow, velocities: list[Any]) -> Any:
    """Return the velocity along a row."""
    return sum((x * velocities[dof] for dof, x in row.items()), start=0.0)


def polynomial(one: Any, quantity: Quantity, name: str, what: str, x: Any, *, slope: bool = False) -> Any:
    """Return k + a x + b x^2, the stiffness or damping of a joint or tendon; with `slope`, k + 2 a x + 3 b x^2.

    Args:
        one: The joint's link, or the tendon.
        quantity: Returns a quantity by name.
        name: Prefix of the names of its quantities.
        what: "stiffness" or "damping".
        x: Elongation, or the absolute value of a rate.
        slope: Whether to return the derivative of the force by x.
    """
    total = quantity(f"{name}.{what}") if getattr(one, what) or not is_curved(one, what) else 0.0
    if getattr(one, f"{what}_square"):
        total = total + (2.0 if slope else 1.0) * quantity(f"{name}.{what}_square") * x
    if getattr(one, f"{what}_cube"):
        total = total + (3.0 if slope else 1.0) * quantity(f"{name}.{what}_cube") * x * x
    return total


def damping_slope(one: Any, quantity: Quantity, name: str, rate: Any) -> Any:
    """Return minus the derivative of a damper's force by the rate of its joint or tendon."""
    return polynomial(one, quantity, name, "damping", absolute(rate) if is_curved(one) else rate, slope=True)


def is_curved(one: Any, what: str = "damping") -> bool:
    """Return whether the damping of a link's joint or of a tendon depends on its rate, or its stiffness on x."""
    return bool(getattr(one, f"{what}_square") or getattr(one, f"{what}_cube"))
