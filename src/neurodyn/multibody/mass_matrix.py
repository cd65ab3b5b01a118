# SPDX-License-Identifier: Apache-2.0
r"""The mass matrix of a tree in Newton's velocity coordinates, factored without fill-in; on floats or traced values.

$$M_{ij} = S_i^T I^c_j S_j \ (i \text{ carries } j), \qquad M = L^T D L$$

with the composite inertia $I^c_j$ of link j and everything it carries (Featherstone, Rigid Body Dynamics Algorithms
(2008), sections 6.2 and 6.5). All vectors are along world axes. Velocities are those of the body-fixed point at the
origin of the tree's first link, so that composite bodies are sums. Factoring from the leaves keeps entries of different
branches zero; a constant zero costs nothing once traced.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from neurodyn.multibody.articulated import Tree, Wrenches
from neurodyn.multibody.points import LinkPose
from neurodyn.multibody.trace import Expression
from neurodyn.multibody.vectors import EYE, ZERO, Matrix, Vector, array, cross, dot, mirror


@dataclass
class MotionColumn:
    """Motion of a link and everything it carries per unit of one velocity coordinate of its joint."""

    link: int
    spin: Vector
    velocity: Vector  # of the point at the origin of the tree's first link


@dataclass
class _Composite:
    """Mass, first and second moment of mass about the origin of the tree's first link."""

    mass: Any
    moment: Vector
    inertia: Matrix


SparseRow = dict[int, Any]
"""Entries of a Jacobian's row that may differ from zero, by velocity coordinate."""


def sparse(row: Sequence[Any]) -> SparseRow:
    """Return the entries of a row that are not the constant zero."""
    return {dof: x for dof, x in enumerate(row) if not is_zero(x)}


class TreeColumns:
    """The motion of a tree's links per unit of each velocity coordinate, at a configuration.

    Attributes:
        columns: One for each velocity coordinate.
    """

    def __init__(self, tree: Tree, poses: Sequence[LinkPose]) -> None:
        """Compute the columns at these link poses."""
        self._parents = [link.joint.parent for link in tree.links]
        self._roots: list[int] = []
        for index, parent in enumerate(self._parents):
            self._roots.append(index if parent < 0 else self._roots[parent])
        self._poses = poses
        self.columns = self._columns(tree)

    def from_root(self, link: int) -> Vector:
        """Return the origin of a link relative to the origin of its tree's first link."""
        if self._roots[link] == link:
            return ZERO
        return self._poses[link].origin - self._poses[self._roots[link]].origin

    def from_first(self, link: int) -> Vector:
        """Return the origin of a link of any tree relative to that of the mechanism's first link."""
        root = self._roots[link]
        return self.from_root(link) + (ZERO if root == 0 else self._poses[root].origin - self._poses[0].origin)

    def velocity_at_first(self, column: MotionColumn) -> Vector:
        """Return the velocity of the point at the origin of the mechanism's first link per unit of a coordinate."""
        root = self._roots[column.link]
        if root == 0:
            return column.velocity
        return column.velocity + cross(column.spin, self._poses[0].origin - self._poses[root].origin)

    def carries(self, link: int, other: int) -> bool:
        """Return whether `other` is `link` or one of its descendants."""
        while other > link:
            other = self._parents[other]
        return other == link

    def row(self, link: int, arm: Vector, direction: Vector) -> list[Any]:
        """Return the Jacobian of a point's velocity along a direction, one entry per velocity coordinate.

        `arm` is the point relative to the origin of the link. Both vectors are along world axes.
        """
        lever = cross(self.from_root(link) + arm, direction)
        return [
            dot(direction, column.velocity) + dot(lever, column.spin) if self.carries(column.link, link) else 0.0
            for column in self.columns
        ]

    def angular_row(self, link: int, direction: Vector) -> list[Any]:
        """Return the Jacobian of a link's angular velocity along a direction, in world axes."""
        return [dot(direction, column.spin) if self.carries(column.link, link) else 0.0 for column in self.columns]

    def _columns(self, tree: Tree) -> list[MotionColumn]:
        columns: list[MotionColumn] = []
        for index, link in enumerate(tree.links):
            pose, origin = self._poses[index], self.from_root(index)
            if link.joint.scalar:
                angular, linear = (pose.rotation @ part for part in tree.subspace(index))
                columns.append(MotionColumn(index, angular, cross(origin, angular) + linear))
                continue
            axes = tree.base(index)[0]
            if link.joint.parent >= 0:
                axes = self._poses[link.joint.parent].rotation @ axes
            if link.joint.kind == "free":  # its velocity is that of the reference point
                columns += [MotionColumn(index, ZERO, axis) for axis in axes.T]
                origin = origin + pose.rotation @ tree.reference(index)
            columns += [MotionColumn(index, axis, cross(origin, axis)) for axis in axes.T]
        return columns


class TreeInertia(TreeColumns):
    """The factored mass matrix of a tree at a configuration.

    Attributes:
        matrix: The mass matrix; only entries [i][j] with j <= i are filled in.
    """

    def __init__(self, tree: Tree, poses: Sequence[LinkPose], added: Sequence[tuple[SparseRow, Any]] = ()) -> None:
        """Compute and factor the mass matrix at these link poses.

        `added` are inertias along rows J, such as those of tendons; see `squares`.
        """
        super().__init__(tree, poses)
        self._bodies = self._own_bodies(tree)
        self.matrix = self._mass_matrix(tree)
        if added:
            self.matrix = add(self.matrix, self.squares(added))
        self._lower, self._inverse = factorise(self.matrix)

    def halfway(self, generalised: Sequence[Any]) -> list[Any]:
        r"""Return $y = L^{-T} f$, so that $f^T M^{-1} f$ is the sum of $y_k^2/d_k$."""
        return _halfway(self._lower, generalised)

    def weight(self, y: Sequence[Any]) -> list[Any]:
        """Return $D^{-1} y$."""
        return [inverse * x for inverse, x in zip(self._inverse, y, strict=True)]

    def velocities(self, y: Sequence[Any]) -> list[Any]:
        """Return $M^{-1} f$ from $y = L^{-T} f$."""
        return _complete(self._lower, self.weight(y))

    def times(self, velocities: Sequence[Any]) -> list[Any]:
        """Return M v."""
        return product(self.matrix, velocities)

    def squares(self, rows: Sequence[tuple[SparseRow, Any]]) -> list[list[Any]]:
        """Return the sum of w J^T J over rows J and weights w, without entries of different branches, as in MuJoCo."""
        matrix: list[list[Any]] = [[0.0] * (i + 1) for i in range(len(self.columns))]
        for row, weight in rows:
            for i, x in row.items():
                for j in self.chains[i]:
                    if j in row:
                        matrix[i][j] = matrix[i][j] + weight * x * row[j]
        return matrix

    @cached_property
    def chains(self) -> tuple[tuple[int, ...], ...]:
        """Return, for each velocity coordinate, those up to it that move its link: where M may be nonzero."""
        return tuple(
            tuple(j for j in range(i + 1) if self.carries(self.columns[j].link, column.link))
            for i, column in enumerate(self.columns)
        )

    def accelerations(
        self, tree: Tree, qd: Sequence[Any], torque: Sequence[Any], wrenches: Wrenches | None = None
    ) -> list[Any]:
        r"""Return $M^{-1} (\tau - h)$, equal to `Tree.accelerations` but cheaper where M is needed as well."""
        bias = self.bias(tree, qd, wrenches)
        return self.velocities(self.halfway([force - x for force, x in zip(torque, bias, strict=True)]))

    def bias(self, tree: Tree, qd: Sequence[Any], wrenches: Wrenches | None = None) -> list[Any]:
        """Return the bias forces h, which hold the velocities constant under gravity and external wrenches.

        Recursive Newton-Euler algorithm (Featherstone, section 5.3) about the origin of the tree's first link, in world
        axes, so that only sums pass between links.
        """
        gravity, moves = tree.vector("gravity"), self._moves(qd)
        twists: list[tuple[Vector, Vector]] = []
        rates: list[tuple[Vector, Vector]] = []
        loads: list[tuple[Vector, Vector]] = []
        for index, parent in enumerate(self._parents):
            own_spin, own = moves[index]
            if parent < 0:
                spin, velocity = own_spin, own
                reference = tree.links[index].joint.kind == "free"
                # A free joint's velocity and acceleration are those of a moving point.
                passing = -1.0 * cross(own_spin, self._at_reference(qd, index)) if reference else ZERO
                turning, linear = ZERO, passing - gravity
            else:
                (carried_spin, carried), (before_spin, before) = twists[parent], rates[parent]
                spin, velocity = carried_spin + own_spin, carried + own
                turning = before_spin + cross(carried_spin, own_spin)
                linear = before + (cross(carried_spin, own) + cross(carried, own_spin))
            twists.append((spin, velocity))
            rates.append((turning, linear))
            body = self._bodies[index]
            momentum = body.mass * velocity + cross(spin, body.moment)
            angular = body.inertia @ spin + cross(body.moment, velocity)
            force = body.mass * linear + cross(turning, body.moment) + cross(spin, momentum)
            moment = body.inertia @ turning + cross(body.moment, linear) + cross(spin, angular)
            moment = moment + cross(velocity, momentum)
            if wrenches and index in wrenches:
                own_moment, push = (self._poses[index].rotation @ x for x in wrenches[index])
                moment, force = moment - (own_moment + cross(self.from_root(index), push)), force - push
            loads.append((moment, force))
        for index in range(len(loads) - 1, -1, -1):
            parent = self._parents[index]
            if parent >= 0:
                (moment, force), (own_moment, own_force) = loads[parent], loads[index]
                loads[parent] = moment + own_moment, force + own_force
        return [
            dot(column.spin, loads[column.link][0]) + dot(column.velocity, loads[column.link][1])
            for column in self.columns
        ]

    def _moves(self, qd: Sequence[Any]) -> list[tuple[Vector, Vector]]:
        """Return each joint's contribution to the motion of its link: spin, and velocity at the first link's origin."""
        moves = [(ZERO, ZERO) for _ in self._parents]
        for column, rate in zip(self.columns, qd, strict=True):
            spin, velocity = moves[column.link]
            moves[column.link] = spin + rate * column.spin, velocity + rate * column.velocity
        return moves

    def _at_reference(self, qd: Sequence[Any], link: int) -> Vector:
        """Return the velocity of a free joint's reference point, in world axes."""
        own = [(column, rate) for column, rate in zip(self.columns, qd, strict=True) if column.link == link][:3]
        return sum((rate * column.velocity for column, rate in own), start=ZERO)

    def _mass_matrix(self, tree: Tree) -> list[list[Any]]:
        bodies = self._composites()
        matrix: list[list[Any]] = []
        for j, column in enumerate(self.columns):
            body, spin, velocity = bodies[column.link], column.spin, column.velocity
            linear = body.mass * velocity + cross(spin, body.moment)
            angular = body.inertia @ spin + cross(body.moment, velocity)
            row = [
                dot(other.spin, angular) + dot(other.velocity, linear) if self.carries(other.link, column.link) else 0.0
                for other in self.columns[: j + 1]
            ]
            joint = tree.links[column.link].joint
            if joint.kind != "free":
                row[j] = row[j] + tree.quantity(f"{joint.name}.armature")
            matrix.append(row)
        return matrix

    def _own_bodies(self, tree: Tree) -> list[_Composite]:
        """Return the body of each link, about the origin of its tree's first link."""
        bodies: list[_Composite] = []
        for index, link in enumerate(tree.links):
            rotation, mass = self._poses[index].rotation, tree.quantity(f"{link.joint.name}.mass")
            centre = self.from_root(index) + rotation @ tree.centre(index)
            moment = mass * centre
            steiner = dot(moment, centre) * EYE - np.outer(moment, centre)
            bodies.append(_Composite(mass, moment, mirror(_rotate(rotation, tree.inertia(index)) + steiner)))
        return bodies

    def _composites(self) -> list[_Composite]:
        """Return the composite body of each link with everything it carries."""
        bodies = [replace(body) for body in self._bodies]
        for index in range(len(bodies) - 1, -1, -1):
            parent = self._parents[index]
            if parent >= 0:
                body, whole = bodies[index], bodies[parent]
                whole.mass = whole.mass + body.mass
                whole.moment = whole.moment + body.moment
                whole.inertia = whole.inertia + body.inertia
        return bodies


_ROUND = 1e-14
"""Relative difference of principal moments that counts as rounding error."""


def _rotate(rotation: Matrix, inertia: Matrix) -> Matrix:
    r"""Return $R I R^T$; constant inertias are rotated by principal axes, of which a round body needs only one."""
    if any(isinstance(x, Expression) for x in inertia.flat):
        return rotation @ (inertia @ rotation.T)
    moments, axes = np.linalg.eigh(inertia.astype(float))
    first = moments[1]  # the median, closest to both others
    turned = float(first) * EYE
    for moment, axis in zip(moments, axes.T, strict=True):
        if abs(moment - first) > _ROUND * abs(moments[2]):
            along = rotation @ array(axis.tolist())
            turned = turned + np.outer(float(moment - first) * along, along)
    return turned


def add(one: list[list[Any]], other: list[list[Any]]) -> list[list[Any]]:
    """Return the sum of two lower triangles."""
    return [[a + b for a, b in zip(*rows, strict=True)] for rows in zip(one, other, strict=True)]


def product(matrix: list[list[Any]], vector: Sequence[Any]) -> list[Any]:
    """Return the product of a symmetric matrix, given by its lower triangle, and a vector."""
    result: list[Any] = [0.0] * len(vector)
    for i, row in enumerate(matrix):
        for j, entry in enumerate(row):
            result[i] = result[i] + entry * vector[j]
            if j < i:
                result[j] = result[j] + entry * vector[i]
    return result


def is_zero(x: Any) -> bool:
    """Return whether a value is the constant zero."""
    return (x.value if isinstance(x, Expression) else x) == 0.0


def factorise(matrix: list[list[Any]]) -> tuple[list[list[Any]], list[Any]]:
    """Return L (without its unit diagonal) and the inverse of D, with $M = L^T D L$."""
    rest = [list(row) for row in matrix]
    inverse: list[Any] = [None] * len(rest)
    for k in range(len(rest) - 1, -1, -1):
        inverse[k] = 1.0 / rest[k][k]
        row = list(rest[k])
        for i in range(k):
            if is_zero(row[i]):
                continue
            rest[k][i] = row[i] * inverse[k]
            for j in range(i + 1):
                if not is_zero(row[j]):
                    rest[i][j] = rest[i][j] - rest[k][i] * row[j]
    return rest, inverse


def solve(lower: list[list[Any]], inverse: list[Any], right: Sequence[Any]) -> list[Any]:
    """Return the solution of M x = right from the result of `factorise`."""
    return _complete(lower, [weight * x for weight, x in zip(inverse, _halfway(lower, right), strict=True)])


def _halfway(lower: list[list[Any]], right: Sequence[Any]) -> list[Any]:
    y = list(right)
    for k in range(len(y) - 1, -1, -1):
        for i in range(k):
            if not (is_zero(lower[k][i]) or is_zero(y[k])):
                y[i] = y[i] - lower[k][i] * y[k]
    return y


def _complete(lower: list[list[Any]], y: Sequence[Any]) -> list[Any]:
    x = list(y)
    for k in range(len(x)):
        for i in range(k):
            if not is_zero(lower[k][i]):
                x[k] = x[k] - lower[k][i] * x[i]
    return x
