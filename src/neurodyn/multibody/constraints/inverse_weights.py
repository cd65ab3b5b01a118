# SPDX-License-Identifier: Apache-2.0
r"""How far joints and bodies yield to a unit force at the reference pose: the scale of soft constraints.

MuJoCo's `dof_invweight0` and `body_invweight0`: with the mass matrix M where all joints are at zero and J the velocity
of a body's centre of mass,

$$w_{dof} = (M^{-1})_{ii}, \qquad w_{body} = \tfrac{1}{3} tr(J M^{-1} J^T),$$

averaged over the axes of free and ball joints. They depend on masses alone, so that a program computes them once.
"""

from typing import Any

from neurodyn.multibody.articulated import Tree
from neurodyn.multibody.mass_matrix import TreeInertia
from neurodyn.multibody.points import link_poses
from neurodyn.multibody.vectors import IDENTITY


class InverseWeights:
    """The inverse weights of a mechanism."""

    def __init__(self, tree: Tree) -> None:
        """Compute the mass matrix at the reference pose."""
        q: list[Any] = []
        for link in tree.links:
            q += [0.0] * link.joint.nq
            if not link.joint.scalar:
                q[-1] = 1.0
        motions = tree.motions(q, [0.0] * tree.mechanism.nv)
        self._tree, self._poses = tree, link_poses(tree, motions)
        self._inertia = TreeInertia(tree, self._poses)

    def joint(self, dof: int) -> Any:
        """Return $w_{dof}$ of a joint with one degree of freedom [1/(kg m^2) or 1/kg]."""
        return self._yield([1.0 if i == dof else 0.0 for i in range(self._tree.mechanism.nv)])

    def body(self, link: int) -> Any:
        """Return $w_{body}$ of a link [1/kg]."""
        centre = self._poses[link].turn @ self._tree.centre(link)
        axes = [self._yield(self._inertia.row(link, centre, axis)) for axis in IDENTITY]
        return (axes[0] + axes[1] + axes[2]) / 3.0

    def _yield(self, row: list[Any]) -> Any:
        """Return J M^-1 J^T of one row."""
        half = self._inertia.halfway(row)
        return sum((y * x for y, x in zip(half, self._inertia.weighted(half), strict=True)), start=0.0)
