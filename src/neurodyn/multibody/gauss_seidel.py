# SPDX-License-Identifier: Apache-2.0
r"""Impulses in Coulomb's cone by projected Gauss-Seidel.

For each touching point, a normal impulse n and none to two along its tangents, t, together x, are sought such that with
the velocities $u = A x + b$

$$n \ge 0, \quad u_n \ge 0, \quad n\,u_n = 0; \qquad |t| \le \mu n, \quad
u_t \ne 0 \Rightarrow t = -\mu n\,u_t/|u_t|$$

(the nonlinear complementarity problem of contact with the cone itself, not a pyramid). At each point a sweep solves the
normal row for n, then moves t against $u_t$ and projects it onto the disc of radius $\mu n$ (Moreau 1966; Jourdan,
Alart and Jean 1998, "A Gauss-Seidel like algorithm to solve frictional contact problems"):

$$n \leftarrow \max(n - u_n/A_{nn},\ 0), \qquad t \leftarrow P_{\mu n}(t - u_t/r)$$

with r the greatest eigenvalue of A's tangent block, one number for both tangents: with a number for each, the fixed
point's friction would not oppose its slip. Every row is thus $y = c + C x$ with constant C and c, followed by a
projection, and the loop knows no more than that.
"""

from collections.abc import Sequence
from typing import Any

from neurodyn.multibody.mass_matrix import is_zero
from neurodyn.multibody.sweeps_loop import Adjoint, Sweeps, by_age, sweeps_loop
from neurodyn.multibody.trace import Expression, apply_loop, maximum, safe_sqrt
from neurodyn.multibody.trace.expression import TINY


def cone_impulses(
    matrix: Sequence[Sequence[Any]],
    offset: Sequence[Any],
    tangents: Sequence[int],
    friction: Sequence[Any],
    depth: Sequence[Any],
    sweeps: int = 50,
    adjoint: Adjoint = "taped",
) -> list[Any]:
    """Return the impulses after so many sweeps from zero; floats, or results of a loop where anything is traced.

    Args:
        matrix: A, symmetric; entries [i][j] with j <= i are read. Constant zeros cost nothing.
        offset: b.
        tangents: Number of tangents of each point, 0 to 2; rows are normal, tangents, point after point.
        friction: mu of each point.
        depth: Depth of each point in the ground; where it is not above 0, impulses are exactly 0.
        sweeps: Number of sweeps.
        adjoint: How derivatives are computed.
    """
    rows, constant = _scaled(matrix, offset, tangents)
    columns = tuple(
        tuple(j for j in by_age(first, len(rows)) if not is_zero(rows[i][j]))
        for first, count in _blocks(tangents)
        for i in range(first, first + count)
    )
    kind = Sweeps(tuple(tangents), columns, sweeps, adjoint)
    entries = [rows[i][j] for i, used in enumerate(columns) for j in used]
    given = [*entries, *constant, *friction, *depth]
    traced = next((x.graph for x in given if isinstance(x, Expression)), None)
    return _swept(kind, given) if traced is None else list(apply_loop(traced, sweeps_loop(kind), given))


def _blocks(tangents: Sequence[int]) -> list[tuple[int, int]]:
    """Return first row and number of rows of what is projected together: normals, and the tangents of a point."""
    blocks, first = [], 0
    for count in tangents:
        blocks.append((first, 1))
        if count:
            blocks.append((first + 1, count))
        first += 1 + count
    return blocks


def _scaled(
    matrix: Sequence[Sequence[Any]], offset: Sequence[Any], tangents: Sequence[int]
) -> tuple[list[list[Any]], list[Any]]:
    """Return C and c of y = c + C x."""
    size = len(offset)
    full = [[matrix[max(i, j)][min(i, j)] for j in range(size)] for i in range(size)]
    rows, constant = [], []
    for first, count in _blocks(tangents):
        own = range(first, first + count)
        inverse = 1.0 / maximum(_greatest(full, first) if count == 2 else full[first][first], TINY)
        for i in own:
            row = [-(inverse * x) for x in full[i]]
            for j in own:
                row[j] = (1.0 + row[j] if i == j else row[j]) if count == 2 else 0.0
            rows.append(row)
            constant.append(-(inverse * offset[i]))
    return rows, constant


def _greatest(full: list[list[Any]], i: int) -> Any:
    """Return the greater eigenvalue of the 2 x 2 block that begins at (i, i)."""
    a, b, c = full[i][i], full[i][i + 1], full[i + 1][i + 1]
    total = maximum(a + c, TINY)
    difference, twice = (a - c) / total, 2.0 * b / total
    return 0.5 * total * (1.0 + safe_sqrt(difference * difference + twice * twice))


def _swept(kind: Sweeps, given: Sequence[float]) -> list[float]:
    """Return what the loop computes, by Python."""
    entries = iter(given)
    rows = [[(j, next(entries)) for j in used] for used in kind.columns]
    constant = [next(entries) for _ in rows]
    friction = [next(entries) for _ in kind.tangents]
    depth = [next(entries) for _ in kind.tangents]
    x = [0.0] * len(rows)
    for _ in range(kind.count):
        first = 0
        for point, count in enumerate(kind.tangents):
            own = range(first + 1, first + 1 + count)
            if depth[point] > 0.0:
                x[first] = max(constant[first] + sum(entry * x[j] for j, entry in rows[first]), 0.0)
                y = [constant[i] + sum(entry * x[j] for j, entry in rows[i]) for i in own]
                bound, size = friction[point] * x[first], sum(value * value for value in y) ** 0.5
                share = bound / size if bound < size else 1.0
                for i, value in zip(own, y, strict=True):
                    x[i] = share * value
            first += 1 + count
    return x
