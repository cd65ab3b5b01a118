# SPDX-License-Identifier: Apache-2.0
"""Structure of a soft-constraint problem, the layout of its inputs, and the convex cost of a contact."""

from dataclasses import dataclass
from typing import Literal

from neurodyn.core.description.contacts import Cone

PER_POINT = 13
"""Inputs of a contact point: position, normal and first tangent (3 each), depth, D, k d r, friction."""

RowKind = Literal["equality", "limit", "friction"]
"""Cost of a row with residual y: D/2 y^2, D/2 min(0, y)^2 if violated, or Huber's function."""


@dataclass(frozen=True)
class RowGroup:
    """Rows of one constraint over the same velocity coordinates.

    The inputs of a row: its entries, D, the residual without the acceleration, then the violation of a limit or the
    friction limit.
    """

    kind: RowKind
    dofs: tuple[int, ...]  # ascending
    rows: int = 1

    @property
    def width(self) -> int:
        """Inputs of a row."""
        return len(self.dofs) + (2 if self.kind == "equality" else 3)


PER_CONE_GROUP = 6
"""Inputs of a group of contacts of shapes: friction, b, scales of second tangent, torsion, rolling about tangents."""

PER_CONE = 12
"""Inputs of a contact of shapes: position, normal and first tangent (3 each), depth, D, k d r."""


@dataclass(frozen=True)
class ConeGroup:
    """Contacts of one pair of shapes, or of several with the same links and surface."""

    dofs: tuple[int, ...]  # velocity coordinates that move one of the links, but not both, ascending
    signs: tuple[int, ...]  # 1 where that is the second link, -1 where it is the first
    dimension: Literal[1, 3, 4, 6]  # rows of a contact
    contacts: int


@dataclass(frozen=True)
class ContactPointGroup:
    """The contact points of a link."""

    chain: tuple[int, ...]  # velocity coordinates that move the link, ascending
    points: int  # their number


@dataclass(frozen=True)
class ConstraintStructure:
    """Structure of a problem."""

    # For each velocity coordinate, those that move its link, itself last: the nonzeros of the mass matrix.
    chains: tuple[tuple[int, ...], ...]
    groups: tuple[ContactPointGroup, ...]
    cone: Cone = "pyramidal"
    impratio: float = 1.0  # ratio of the impedances of friction and normal force
    rows: tuple[RowGroup, ...] = ()  # limits, friction and equalities
    cones: tuple[ConeGroup, ...] = ()  # contacts of shapes

    @property
    def filled(self) -> tuple[tuple[int, ...], ...]:
        """For each velocity coordinate, those up to it, itself last, where H or its factors may be nonzero.

        Rows over different branches fill entries of H that M does not have; eliminating a coordinate from the leaves
        fills those between the coordinates that it is coupled with.
        """
        filled = [set(chain) for chain in self.chains]
        for group in (*self.rows, *self.cones):
            for i in group.dofs:
                filled[i] |= {j for j in group.dofs if j <= i}
        for k in range(len(filled) - 1, -1, -1):
            others = filled[k] - {k}
            if others:
                filled[max(others)] |= others
        return tuple(tuple(sorted(row)) for row in filled)


class ConstraintLayout:
    """Start indices of a problem's inputs, and their number.

    Attributes:
        gates: Depth of each point and violation of each limit, with the inputs behind them (see `Loop`).
    """

    def __init__(self, structure: ConstraintStructure) -> None:
        self.nv = len(structure.chains)
        self.points = sum(group.points for group in structure.groups)
        self.entries = [(i, j) for i, chain in enumerate(structure.chains) for j in chain]  # of M, which come first
        self.free = len(self.entries)  # accelerations without constraints
        self.velocity = self.free + self.nv
        self.columns = self.velocity + self.nv  # link motions per unit of each velocity coordinate
        self.damping = self.columns + 6 * self.nv  # b of the contacts
        self.first_point = self.damping + 1
        self.first_row = self.first_point + PER_POINT * self.points
        self.first_rows: list[int] = []  # of each group
        self.inputs = self.first_row
        for group in structure.rows:
            self.first_rows.append(self.inputs)
            self.inputs += group.rows * group.width
        self.first_cones: list[int] = []  # of each group
        for group in structure.cones:
            self.first_cones.append(self.inputs)
            self.inputs += PER_CONE_GROUP + PER_CONE * group.contacts
        self.first_force = self.nv + 3 * self.points  # of contacts of shapes, among the outputs
        self.outputs = self.first_force + 3 * sum(group.contacts for group in structure.cones)
        gates = [(i + 9, i, i + PER_POINT) for i in range(self.first_point, self.first_row, PER_POINT)]
        for group, first in zip(structure.rows, self.first_rows, strict=True):
            if group.kind == "limit":
                ends = (first + group.width * (row + 1) for row in range(group.rows))
                gates += [(end - 1, end - group.width, end) for end in ends]
        self.gates = tuple(gates)


FORCES = ("F0", "F1", "F2")
"""Names of the force in the code."""

STIFFNESS = (("W00", "W01", "W02"), ("W01", "W11", "W12"), ("W02", "W12", "W22"))
"""Names of the entries of the stiffness in the code."""

STIFFNESS_ENTRIES = tuple(dict.fromkeys(name for row in STIFFNESS for name in row))
"""Distinct entries of `STIFFNESS`."""


def stiffness_times(row: int, x: str) -> str:
    """Return the expression of a row of W x; `x` contains {} for the index."""
    return " + ".join(f"{STIFFNESS[row][other]} * {x.format(other)}" for other in range(3))


def kept_stiffness_times(row: int) -> str:
    """Return the expression of a row of W dy, with the W stored in `yn`."""
    places = (9 + STIFFNESS_ENTRIES.index(STIFFNESS[row][other]) for other in range(3))
    return " + ".join(f"yn[{place}] * dy{other}" for other, place in enumerate(places))


def cone_source(cone: Cone, impratio: float, y: tuple[str, str, str], *, stiffness: bool = True) -> str:
    """Return code that declares force (`F0` to `F2`) and, if wanted, stiffness (`W00` to `W22`) at a residual `y`.

    It reads the normal weight `D` and the friction `mu`, and declares further names.
    """
    return _pyramid(y, stiffness) if cone == "pyramidal" else _ellipse(y, impratio, stiffness)


def friction_slope_source(cone: Cone, impratio: float) -> str:
    """Return code, to follow `cone_text`, that declares `P0` to `P2`: the derivative of the force by the friction."""
    if cone == "pyramidal":
        return (
            "const real P0 = -D * (ia * c1 - ib * c1 + ic * c2 - id * c2);"
            " const real P1 = -D * (qa - qb + mu * (ia + ib) * c1);"
            " const real P2 = -D * (qc - qd + mu * (ic + id) * c2);"
        )
    return (
        f"const real slope = (real){2.0 / impratio!r} * mu * stiff * per;"
        " const real P0 = SELECT(sliding, slope * gap + stiff * tau, (real)0);"
        " const real along = -(P0 * mu + F0) * inverse;"
        " const real P1 = SELECT(sliding, along * c1, (real)0); const real P2 = SELECT(sliding, along * c2, (real)0);"
    )


def _pyramid(y: tuple[str, str, str], stiffness: bool) -> str:
    normal, first, second = y
    text = f"const real c1 = {first}; const real c2 = {second}; const real n1 = mu * c1; const real n2 = mu * c2;"
    for edge, expression in (("a", "+ n1"), ("b", "- n1"), ("c", "+ n2"), ("d", "- n2")):
        text += (
            f" const real x{edge} = {normal} {expression};"
            f" const real i{edge} = SELECT(x{edge} < (real)0, (real)1, (real)0);"
            f" const real q{edge} = i{edge} * x{edge};"
        )
    text += (
        " const real Dmu = D * mu; const real F0 = -D * (qa + qb + qc + qd);"
        " const real F1 = -Dmu * (qa - qb); const real F2 = -Dmu * (qc - qd);"
    )
    if stiffness:
        text += (
            " const real W00 = D * (ia + ib + ic + id); const real W01 = Dmu * (ia - ib);"
            " const real W02 = Dmu * (ic - id); const real W11 = Dmu * mu * (ia + ib);"
            " const real W22 = Dmu * mu * (ic + id); const real W12 = (real)0;"
        )
    return text


def _ellipse(y: tuple[str, str, str], impratio: float, stiffness: bool) -> str:
    normal, first, second = y
    text = (
        f"const real c0 = {normal}; const real c1 = {first}; const real c2 = {second};"
        f" const real share = (real){1.0 / impratio!r} * mu * mu; const real per = (real)1 / ((real)1 + share);"
        " const real square = c1 * c1 + c2 * c2;"
        " const real tau = ::wp::sqrt(SELECT(square > (real)1e-30, square, (real)1e-30));"
        " const real inverse = (real)1 / tau; const real gap = c0 - mu * tau; const real stiff = D * per;"
        " const mask sticking = share * c0 + mu * tau <= (real)0;"
        " const mask sliding = (gap < (real)0) & NOT(sticking);"
        f" const real Dt = (real){impratio!r} * D; const real slid = -stiff * gap;"
        " const real drag = -slid * mu * inverse;"
        " const real F0 = SELECT(sticking, -D * c0, SELECT(sliding, slid, (real)0));"
        " const real F1 = SELECT(sticking, -Dt * c1, SELECT(sliding, drag * c1, (real)0));"
        " const real F2 = SELECT(sticking, -Dt * c2, SELECT(sliding, drag * c2, (real)0));"
    )
    if stiffness:
        text += (
            " const real u1 = c1 * inverse; const real u2 = c2 * inverse; const real across = stiff * mu;"
            " const real curve = slid * mu * inverse;"
            " const real W00 = SELECT(sticking, D, SELECT(sliding, stiff, (real)0));"
            " const real W01 = SELECT(sliding, -across * u1, (real)0);"
            " const real W02 = SELECT(sliding, -across * u2, (real)0);"
            " const real bow = across * mu - curve;"
            " const real W11 = SELECT(sticking, Dt, SELECT(sliding, bow * u1 * u1 + curve, (real)0));"
            " const real W22 = SELECT(sticking, Dt, SELECT(sliding, bow * u2 * u2 + curve, (real)0));"
            " const real W12 = SELECT(sliding, bow * u1 * u2, (real)0);"
        )
    return text
