# SPDX-License-Identifier: Apache-2.0
"""Compliance of soft constraints from solref and solimp, MuJoCo's inverse weights, and its friction tangents."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from neurodyn.core.description.contacts import SOLIMP, SOLREF
from neurodyn.core.description.scene import Vector3
from neurodyn.multibody.articulated import Tree
from neurodyn.multibody.mass_matrix import TreeInertia, is_zero
from neurodyn.multibody.passive import ball_free_rows, free_armature
from neurodyn.multibody.points import Kinematics
from neurodyn.multibody.tendons.lengths import added_inertia, tendon_motions
from neurodyn.multibody.trace import exp, log, maximum, minimum, safe_sqrt, select_less
from neurodyn.multibody.trace.expression import TINY
from neurodyn.multibody.vectors import EYE, Vector, array, dot, normalise

_LEAST, _MOST = 1e-4, 0.9999
"""MuJoCo clamps impedances and midpoints to this range."""


@dataclass(frozen=True)
class Compliance:
    """Compliance of a kind of constraint; numbers, or traced values for parameters."""

    damping: Any  # b [1/s]
    stiffness: Any  # k [1/s^2]
    impedance: Callable[[Any], Any]  # d as a function of |r|

    def weight(self, violation: Any, inverse_weight: Any) -> Any:
        """Return 1 / R of a row with this violation, from its A."""
        share = self.impedance(violation)
        return share / ((1.0 - share) * inverse_weight)

    def reference(self, violation: Any) -> Any:
        """Return k d r of a row with this violation, r = -violation."""
        return -(self.stiffness * self.impedance(violation) * violation)


def compliance_of(quantity: Callable[[str], Any], solref: str, solimp: str, dt: Any) -> Compliance:
    """Return the compliance of a kind of constraint, with time constants above two steps of `dt` [s], as in MuJoCo.

    `solref` and `solimp` are prefixes of quantities; see `core.description.contacts.constraint_quantities`.
    """
    time, ratio = (quantity(f"{solref}.{part}") for part in SOLREF)
    first, last, width, midpoint, power = (quantity(f"{solimp}.{part}") for part in SOLIMP)
    first, last, midpoint = (minimum(maximum(x, _LEAST), _MOST) for x in (first, last, midpoint))
    width, power = maximum(width, TINY), maximum(power, 1.0)
    safe = last * maximum(time, 2.0 * dt)
    by_ratio = safe * maximum(ratio, TINY)
    stiffness = select_less(0.0, time, 1.0 / (by_ratio * by_ratio), -time / (last * last))
    damping = select_less(0.0, ratio, 2.0 / safe, -ratio / last)

    def impedance(violation: Any) -> Any:
        x = minimum(maximum(violation, 0.0) / width, 1.0)
        rising = _power(x, power) / _power(midpoint, power - 1.0)
        falling = 1.0 - _power(1.0 - x, power) / _power(1.0 - midpoint, power - 1.0)
        return first + (last - first) * select_less(midpoint, x, falling, rising)

    return Compliance(damping, stiffness, impedance)


def _power(x: Any, exponent: Any) -> Any:
    """Return x to a power, both at least 0."""
    if isinstance(exponent, float) and exponent.is_integer():
        return x ** int(exponent) if exponent else 1.0
    return exp(exponent * log(x))


_ALIGNED = 0.5
"""Least length of a capsule's unit axis projected to the ground for which MuJoCo aligns the tangents with it."""


def tangent(normal: Vector, axis: Vector | None = None, *, always: bool = False) -> Vector:
    """Return the first tangent of a contact with a unit normal, as MuJoCo Warp defines it.

    `axis` is the unit axis of a capsule on a plane; with `always`, the tangent follows it even where it is nearly
    along the normal, as in MuJoCo's C library.
    """
    y = normal[1]
    across = array([-(normal[0] * y), 1.0 - y * y, -(normal[2] * y)])
    along = array([-(normal[0] * normal[2]), -(y * normal[2]), 1.0 - normal[2] * normal[2]])
    steep = select_less(y, 0.5, select_less(-0.5, y, 0.0, 1.0), 1.0)  # 1 if the y axis is too close to the normal
    chosen = array([a + steep * (b - a) for a, b in zip(across, along, strict=True)])
    if axis is None:
        return normalise(chosen)
    flat = axis - dot(normal, axis) * array(normal)
    if always:
        return normalise(flat)
    # MuJoCo uses the y or z axis itself here, not its projection to the plane.
    fallback = [steep * 0.0, 1.0 - steep, steep]
    size = safe_sqrt(dot(flat, flat))
    return array([select_less(size, _ALIGNED, b, a / size) for a, b in zip(flat, fallback, strict=True)])


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
        self._inertia = TreeInertia(tree, self._links.poses, [*added_inertia(self._tendons), *free_armature(tree, q)])

    def joint(self, dof: int) -> Any:
        """Return $w_{dof}$ of a joint with one degree of freedom [1/(kg m^2) or 1/kg]."""
        return self._inverse_weight([1.0 if i == dof else 0.0 for i in range(self._links.tree.mechanism.nv)])

    def ball_free_joint(self, index: int) -> list[Any]:
        """Return the inverse weights of the linear [1/kg] and angular velocity [1/(kg m^2)] of a free or ball joint."""
        tree, weights = self._links.tree, []
        for rows in ball_free_rows(tree, index, self._q):
            along_axes = [self._inverse_weight([row.get(dof, 0.0) for dof in range(tree.mechanism.nv)]) for row in rows]
            weights.append((along_axes[0] + along_axes[1] + along_axes[2]) / 3.0 if along_axes else 0.0)
        return weights

    def tendon(self, name: str) -> Any:
        """Return the inverse weight of a tendon, above 0 even where none of its joints changes its length [1/kg]."""
        row = self._tendons[name].row
        return maximum(self._inverse_weight([row.get(dof, 0.0) for dof in range(self._links.tree.mechanism.nv)]), TINY)

    def body(self, link: int, centre: Vector3 | None = None) -> Any:
        """Return $w_{body}$ of a link at its centre of mass, or at a point in the frame of its body [1/kg].

        It is above 0 even where no joint moves that point.
        """
        tree = self._links.tree
        if tree.links[link].slides_alone:
            return 1.0 / tree.quantity(f"{tree.links[link].joint.name}.mass")
        point = tree.centre(link) if centre is None else tree.in_link_frame(link, array(centre))
        arm = self._links.poses[link].rotation @ point
        axes = [self._inverse_weight(self._inertia.row(link, arm, axis)) for axis in EYE]
        total = (axes[0] + axes[1] + axes[2]) / 3.0
        return maximum(total, TINY) if is_zero(total) else total

    def rotation(self, link: int) -> Any:
        """Return the inverse weight of a link's rotation [1/(kg m^2)]."""
        axes = [self._inverse_weight(self._inertia.angular_row(link, axis)) for axis in EYE]
        return (axes[0] + axes[1] + axes[2]) / 3.0

    def _inverse_weight(self, row: list[Any]) -> Any:
        """Return J M^-1 J^T of one row."""
        half = self._inertia.halfway(row)
        return sum((y * x for y, x in zip(half, self._inertia.weight(half), strict=True)), start=0.0)
