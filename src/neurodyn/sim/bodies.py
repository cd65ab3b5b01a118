# SPDX-License-Identifier: Apache-2.0
"""Bodies of an asset, merged across fixed joints, and the check that an inertia is physical."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from neurodyn.core.description import scene
from neurodyn.core.errors import InputError
from neurodyn.geometry.rotation import quaternion_matrix

Pose = np.ndarray
"""[x y z, qx qy qz qw]."""

Groups = dict[int, tuple[int, Pose]]
"""For each body (-1: the world) the leading body of its group, and its pose in the leader's frame."""

_IDENTITY = np.array([0, 0, 0, 0, 0, 0, 1.0])
_DIGITS = 9


def group_bodies(
    joints: Sequence[int],
    is_fixed: np.ndarray,
    parent: np.ndarray,
    child: np.ndarray,
    parent_pose: np.ndarray,
    child_pose: np.ndarray,
) -> Groups:
    """Group the bodies of an articulation that fixed joints connect.

    `joints` come parents first. Per joint, shape [joints, ...]: whether it is fixed, its parent (-1: the world) and
    child body, and the poses of its frame in both.
    """
    groups: Groups = {-1: (-1, _IDENTITY)}
    for joint in joints:
        body = int(child[joint])
        groups[body] = (body, _IDENTITY)
        if is_fixed[joint]:
            leader, pose = groups.get(int(parent[joint]), (int(parent[joint]), _IDENTITY))
            groups[body] = (leader, compose(pose, compose(parent_pose[joint], invert(child_pose[joint]))))
    return groups


def merged_body(
    groups: Groups, leader: int, mass: np.ndarray, com: np.ndarray, inertia: np.ndarray
) -> tuple[float, np.ndarray, np.ndarray]:
    r"""Return mass [kg], centre of mass [m] and inertia about it [kg m^2] of a group of bodies, in the leader's frame.

    $$I = \sum_b R_b I_b R_b^T + m_b (d_b^T d_b 1 - d_b d_b^T)$$ (Steiner), with d from the common centre of mass.

    Args:
        groups: Result of `group_bodies`.
        leader: Leading body of the group.
        mass: Masses of all bodies, shape [bodies].
        com: Centres of mass in body frames, shape [bodies, 3].
        inertia: Inertias about the centres of mass in body axes, shape [bodies, 3, 3].
    """
    members = [(body, pose) for body, (head, pose) in groups.items() if head == leader]
    centres = {body: pose[:3] + rotation(pose) @ com[body] for body, pose in members}
    total = sum(float(mass[body]) for body, _ in members)
    centre = np.sum([mass[body] * centres[body] for body, _ in members], axis=0) / max(total, 1e-300)
    merged = np.zeros((3, 3))
    for body, pose in members:
        matrix, d = rotation(pose), centres[body] - centre
        merged += matrix @ inertia[body] @ matrix.T + mass[body] * (d @ d * np.eye(3) - np.outer(d, d))
    return total, centre, merged


def exact_pose(values: Any) -> scene.Pose:
    """Return a pose as plain numbers."""
    x, y, z, qx, qy, qz, qw = (float(value) for value in values)
    return (x, y, z, qx, qy, qz, qw)


def rounded_pose(values: Any) -> scene.Pose:
    """Return a pose as plain numbers, without the noise of float32."""
    return exact_pose(rounded_numbers(values))


def rounded_vector(values: Any) -> scene.Vector3:
    """Return a vector as plain numbers, without the noise of float32."""
    x, y, z = rounded_numbers(values)
    return (x, y, z)


def rounded_numbers(values: Any) -> tuple[float, ...]:
    """Return an array as plain numbers, without the noise of float32."""
    return tuple(round(float(value), _DIGITS) for value in np.asarray(values, dtype=float).ravel())


def rotation(pose: Pose | scene.Pose) -> np.ndarray:
    """Return the rotation matrix of a pose, shape [3, 3]."""
    return np.array(quaternion_matrix(np.asarray(pose[3:], dtype=float)))


def compose(a: Pose, b: Pose) -> Pose:
    """Return the composition of two poses, a (A to world) after b (B to A)."""
    ax, ay, az, aw = np.asarray(a[3:], dtype=float)
    bx, by, bz, bw = np.asarray(b[3:], dtype=float)
    quaternion = [
        aw * bx + ax * bw + ay * bz - az * by,
        aw * by - ax * bz + ay * bw + az * bx,
        aw * bz + ax * by - ay * bx + az * bw,
        aw * bw - ax * bx - ay * by - az * bz,
    ]
    return np.concatenate([a[:3] + rotation(a) @ b[:3], quaternion])


def invert(a: Pose) -> Pose:
    """Return the inverse pose."""
    quaternion = np.array([-a[3], -a[4], -a[5], a[6]], dtype=float)
    return np.concatenate([-rotation(a).T @ a[:3], quaternion])


def inertia_tensor(inertia: Sequence[float]) -> np.ndarray:
    """Return the matrix of an inertia given as xx, yy, zz, xy, xz, yz, shape [3, 3]."""
    xx, yy, zz, xy, xz, yz = inertia
    return np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])


def inertia_entries(tensor: np.ndarray) -> tuple[float, float, float, float, float, float]:
    """Return xx, yy, zz, xy, xz, yz of an inertia, shape [3, 3]."""
    xx, yy, zz, xy, xz, yz = (float(tensor[i, j]) for i, j in ((0, 0), (1, 1), (2, 2), (0, 1), (0, 2), (1, 2)))
    return xx, yy, zz, xy, xz, yz


_ROUNDING = 0.01
"""Tolerance for rounded numbers in assets, as a share of the greatest moment of inertia."""


def require_possible(where: str, inertia: np.ndarray) -> None:
    r"""Raise InputError for an inertia about the centre of mass, shape [3, 3], that no rigid body can have.

    Principal moments are at least 0, and none exceeds the sum of the others, since
    $I_{xx} + I_{yy} - I_{zz} = 2 \int z^2\,dm \ge 0$. The message begins with `where`.
    """
    if not np.isfinite(inertia).all():
        raise InputError(f"{where}: its inertia is not finite; give ixx, iyy, izz, ixy, ixz, iyz [kg m^2]")
    least, middle, most = np.linalg.eigvalsh(0.5 * (inertia + inertia.T))
    moments = ", ".join(f"{value:.3g}" for value in (least, middle, most))
    slack = _ROUNDING * most
    if not most > 0:
        raise InputError(f"{where}: moves but has no inertia (principal moments {moments} kg m^2); valid: above 0")
    if least < -slack:
        raise InputError(f"{where}: principal moments of inertia are {moments} kg m^2; valid: none below 0")
    if most > least + middle + slack:
        raise InputError(
            f"{where}: principal moments of inertia are {moments} kg m^2, which no body has; valid: none above the sum "
            "of the other two"
        )
