# SPDX-License-Identifier: Apache-2.0
r"""Additions to the mass matrix, $\Delta M = G L L^T G$, symmetric and never negative, with the torques of its change.

The entries of L are the network's outputs, functions of joint positions; $g_i^2$ is the `output_scale`. With
$y = L^T G \dot q$ the additional kinetic energy is $\tfrac12 y^T y$, and Lagrange's equations of it are

$$\Delta M \ddot q + G (\dot L y + L \dot L^T G \dot q) - \left[y^T (\partial_j L)^T G \dot q\right]_j$$

so that no energy is made: what the joints do is exactly that of a robot with these inertias.
"""

import math
from collections.abc import Sequence
from typing import Any

from neurodyn.multibody.articulated import LinkMotion, Tree
from neurodyn.multibody.mass_matrix import TreeInertia, factored, solved
from neurodyn.multibody.points import link_poses
from neurodyn.multibody.structures.acting import ActingNetwork, AddedInertia, triangle
from neurodyn.multibody.structures.energy import direction, joints_of

Rows = list[list[Any]]


def inertial(net: ActingNetwork) -> list[Any]:
    """Note what is added to the mass matrix, and add nothing to any torque.

    Raises:
        InputError: It acts on other quantities than mass_matrix.JOINT, or sees others than the positions of the joints.
    """
    joints = joints_of(net, "mass_matrix")
    n, gains = len(joints), [math.sqrt(abs(size)) for size in net.sizes]
    lower = triangle(net.outputs, n)
    slopes = [triangle(net.along(direction(net, joint)), n) for joint in joints]
    rates = [net.read(f"qd.{joint}") for joint in joints]
    moving = [g * rate for g, rate in zip(gains, rates, strict=True)]
    change = [[sum(s[i][k] * v for s, v in zip(slopes, rates, strict=True)) for k in range(i + 1)] for i in range(n)]
    y = _down(lower, moving)
    across = [a + b for a, b in zip(_up(change, y), _up(lower, _down(change, moving)), strict=True)]
    energy = [sum(a * b for a, b in zip(y, _down(slope, moving), strict=True)) for slope in slopes]
    bias = [g * a - e for g, a, e in zip(gains, across, energy, strict=True)]
    matrix = [
        [gains[i] * gains[j] * sum(lower[i][k] * lower[j][k] for k in range(min(i, j) + 1)) for j in range(n)]
        for i in range(n)
    ]
    net.inertias.append(AddedInertia(tuple(joints), matrix, bias))
    return [0.0] * n


def heavier(
    tree: Tree, motions: Sequence[LinkMotion], acceleration: list[Any], dofs: dict[str, int],
    added: Sequence[AddedInertia],
) -> list[Any]:  # fmt: skip
    r"""Return the solution of $(M + \Delta M) \ddot q = M \ddot q_0 - b$ with $\ddot q_0$ without the additions.

    Args:
        tree: The mechanism.
        motions: Motions of its links.
        acceleration: Accelerations without the additions.
        dofs: Velocity coordinates by name of joints.
        added: The additions.
    """
    inertia = TreeInertia(tree, link_poses(tree, motions))
    right, matrix = inertia.times(acceleration), [list(row) for row in inertia.matrix]
    for one in added:
        places = [dofs[name] for name in one.joints]
        for i, row, bias in zip(places, one.matrix, one.bias, strict=True):
            right[i] = right[i] - bias
            for j, entry in zip(places, row, strict=True):
                if j <= i:
                    matrix[i][j] = matrix[i][j] + entry
    return solved(*factored(matrix), right)


def _up(lower: Rows, vector: Sequence[Any]) -> list[Any]:
    """Return L y."""
    return [sum(x * y for x, y in zip(row, vector, strict=False)) for row in lower]


def _down(lower: Rows, vector: Sequence[Any]) -> list[Any]:
    """Return the transpose of L times a vector."""
    n = len(lower)
    return [sum(lower[i][k] * vector[i] for i in range(k, n)) for k in range(n)]
