# SPDX-License-Identifier: Apache-2.0
r"""The convex cost of a contact's soft constraint, as native text: force, stiffness and derivative by the friction.

With the residual $y = J a - a_{ref}$ of a contact (normal, two tangents), the cost s(y) has the force $F = -\partial s/
\partial y$ and the stiffness $W = \partial^2 s/\partial y^2$. Pyramidal cones are four edges, each pushing one way:

$$s = \tfrac{D}{2} \sum_{i \in 1, 2} \min(0,\ y_n + \mu y_i)^2 + \min(0,\ y_n - \mu y_i)^2$$

Elliptic cones have three zones, with $\tau = |y_t|$ and MuJoCo's $m = \mu/\sqrt{\rho}$ (ρ: impratio): nothing where
$y_n \ge \mu \tau$; all of $\tfrac{D}{2} (y_n^2 + \rho \tau^2)$ where $m^2 y_n + \mu \tau \le 0$; else

$$s = \tfrac{D}{2 (1 + m^2)} (y_n - \mu \tau)^2$$
"""

from neurodyn.core.description.soft_constraints import Cone

FORCE = ("F0", "F1", "F2")
"""Names of the force in the texts."""

STIFFNESS = (("W00", "W01", "W02"), ("W01", "W11", "W12"), ("W02", "W12", "W22"))
"""Names of the entries of the stiffness in the texts."""


def cone_text(cone: Cone, impratio: float, y: tuple[str, str, str], *, stiffness: bool = True) -> str:
    """Return text that declares `F0` to `F2`, and `W00` to `W22`, of a residual.

    It reads the weight of the normal `D` and the friction `mu`, and declares more names on its way.

    Args:
        cone: Kind of cone.
        impratio: Ratio of the impedances of friction and normal force.
        y: Names of the residual's three numbers.
        stiffness: Whether the stiffness is wanted.
    """
    return _pyramid(y, stiffness) if cone == "pyramidal" else _ellipse(y, impratio, stiffness)


def friction_slope_text(cone: Cone, impratio: float) -> str:
    """Return text that declares `P0` to `P2`, the derivative of the force by the friction, after that of the cone."""
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
