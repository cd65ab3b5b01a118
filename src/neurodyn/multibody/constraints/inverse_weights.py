# SPDX-License-Identifier: Apache-2.0
"""MuJoCo's inverse weights: what a mechanism at its reference pose yields to unit forces."""

from typing import Any

from neurodyn.core.description.scene import Vector3
from neurodyn.multibody.articulated import Tree
from neurodyn.multibody.mass_matrix import TreeInertia, is_zero
from neurodyn.multibody.points import Kinematics
from neurodyn.multibody.tendons.lengths import added_inertia, tendon_motions
from neurodyn.multibody.trace import maximum
from neurodyn.multibody.trace.expression import TINY
from neurodyn.multibody.turning import turning_inertia, turning_rows
from neurodyn.multibody.vectors import IDENTITY, array


class InverseWeights:
    """MuJoCo's inverse weights of a mechanism, from the mass matrix at the reference pose."""

    def __init__(self, tree: Tree) -> None:
        """Compute the mass matrix at the reference pose."""
        q: list[Any] = list(tree.mechanism.reference or ())
        for link in tree.links if not q else ():
            q += [0.0] * link.joint.nq
            if not link.joint.scalar:
                q[-1] = 1.0
        self._q, rest = q, [0.0] * tree.mechanism.nv
        self._links = Kinematics(tree, tree.motions(q, rest))
        self._tendons = tendon_motions(self._links, tree.mechanism.tendons or (), q, rest, tree.quantity)
        self._inertia = TreeInertia(tree, self._links.poses, [*added_inertia(self._tendons), *turning_inertia(tree, q)])

    def joint(self, dof: int) -> Any:
        """Return $w_{dof}$ of a joint with one degree of freedom [1/(kg m^2) or 1/kg]."""
        return self._yield([1.0 if i == dof else 0.0 for i in range(self._links.tree.mechanism.nv)])

    def turning_joint(self, index: int) -> list[Any]:
        """Return those of the linear [1/kg] and angular velocities [1/(kg m^2)] of a free or ball joint."""
        tree, weights = self._links.tree, []
        for rows in turning_rows(tree, index, self._q):
            yields = [self._yield([row.get(dof, 0.0) for dof in range(tree.mechanism.nv)]) for row in rows]
            weights.append((yields[0] + yields[1] + yields[2]) / 3.0 if yields else 0.0)
        return weights

    def tendon(self, name: str) -> Any:
        """Return the inverse weight of a tendon, above 0 even where none of its joints changes its length [1/kg]."""
        row = self._tendons[name].row
        return maximum(self._yield([row.get(dof, 0.0) for dof in range(self._links.tree.mechanism.nv)]), TINY)

    def body(self, link: int, centre: Vector3 | None = None) -> Any:
        """Return $w_{body}$ of a link at its centre of mass, or at a point in the frame of its body [1/kg].

        It is above 0 even where no joint moves that point.
        """
        tree = self._links.tree
        if tree.links[link].slides_alone:
            return 1.0 / tree.quantity(f"{tree.links[link].joint.name}.mass")
        place = tree.centre(link) if centre is None else tree.in_link_frame(link, array(centre))
        arm = self._links.poses[link].turn @ place
        axes = [self._yield(self._inertia.row(link, arm, axis)) for axis in IDENTITY]
        total = (axes[0] + axes[1] + axes[2]) / 3.0
        return maximum(total, TINY) if is_zero(total) else total

    def turning(self, link: int) -> Any:
        """Return the inverse weight of a link's rotation [1/(kg m^2)]."""
        axes = [self._yield(self._inertia.turning(link, axis)) for axis in IDENTITY]
        return (axes[0] + axes[1] + axes[2]) / 3.0

    def _yield(self, row: list[Any]) -> Any:
        """Return J M^-1 J^T of one row."""
        half = self._inertia.halfway(row)
        return sum((y * x for y, x in zip(half, self._inertia.weighted(half), strict=True)), start=0.0)
