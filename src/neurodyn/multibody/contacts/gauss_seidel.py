# SPDX-License-Identifier: Apache-2.0
"""Impulses in Coulomb's cone by projected Gauss-Seidel: a native loop with a hand-written adjoint."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from neurodyn.multibody.mass_matrix import is_zero
from neurodyn.multibody.trace import Expression, Loop, apply_loop, maximum, safe_sqrt
from neurodyn.multibody.trace.expression import TINY

Adjoint = Literal["taped", "implicit"]


@dataclass(frozen=True)
class Sweeps:
    """Structure of a loop of sweeps; rows are normal, tangents, point after point."""

    tangents: tuple[int, ...]  # number of tangents of each point, 0 to 2
    columns: tuple[tuple[int, ...], ...]  # impulses that each row depends on, least recently updated first
    count: int
    adjoint: Adjoint = "taped"  # see `complementarity.ImpulseSettings`


def by_age(first: int, rows: int) -> list[int]:
    """Return all rows, least recently updated first, just before the rows from `first` on are updated."""
    return [*range(first, rows), *range(first)]


def sweeps_loop(kind: Sweeps) -> Loop:
    """Return the native loop. Inputs: entries of C by rows, c, mu and the depths; outputs: x."""
    writer = _SweepsWriter(kind)
    return Loop(
        name="projected Gauss-Seidel",
        inputs=writer.entries + writer.rows + 2 * writer.points,
        outputs=writer.rows,
        saved=writer.rows * (kind.count if kind.adjoint == "taped" else 1),
        forward=writer.forward(),
        adjoint=writer.write_adjoint() if kind.adjoint == "taped" else writer.implicit(),
    )


class _SweepsWriter:
    """Generates the code of a loop; row i has y in y{i}, its impulse in x{i} and the impulse's adjoint in a{i}."""

    def __init__(self, kind: Sweeps) -> None:
        self.kind = kind
        self.rows, self.points = len(kind.columns), len(kind.tangents)
        self.entries = sum(map(len, kind.columns))
        self._first_entry = [sum(map(len, kind.columns[:i])) for i in range(self.rows)]
        self._first_row = [sum(1 + count for count in kind.tangents[:p]) for p in range(self.points)]

    def forward(self) -> str:
        taped = self.kind.adjoint == "taped"
        lines = [self._touching(), *(f"real x{i} = 0; real y{i} = 0;" for i in range(self.rows))]
        lines += [f"if ({self._any()})", f"for (int sweep = 0; sweep < {self.kind.count}; ++sweep) {{"]
        for point in range(self.points):
            lines.append(f"if (ANY(touches{point})) {{")
            normal, *tangents = self._rows_of(point)
            lines += [self._row(normal), self._project(point, [normal], "x")]
            lines += [*map(self._row, tangents), self._project(point, tangents, "x"), "}"]
        if taped:
            lines += [f"saved[sweep * {self.rows} + {i}] = y{i};" for i in range(self.rows)]
        lines.append("}")
        if not taped:
            lines += [f"saved[{i}] = y{i};" for i in range(self.rows)]
        return "\n".join([*lines, *(f"out[{i}] = x{i};" for i in range(self.rows))])

    def write_adjoint(self) -> str:
        """Return the adjoint of all sweeps; x are impulses after a sweep, w before it."""
        lines = [self._touching(), *(f"real a{i} = seed[{i}];" for i in range(self.rows))]
        lines += [f"if ({self._any()}) {{", *(f"real x{i} = out[{i}];" for i in range(self.rows))]
        lines.append(f"for (int sweep = {self.kind.count - 1}; sweep >= 0; --sweep) {{")
        lines += [f"real w{i} = 0;" for i in range(self.rows)]
        for point in range(self.points):
            rows = self._rows_of(point)
            lines.append(f"if (sweep > 0) if (ANY(touches{point})) {{")
            lines += [f"const real y{i} = saved[(sweep - 1) * {self.rows} + {i}];" for i in rows]
            lines += [self._project(point, rows[:1], "w"), self._project(point, rows[1:], "w"), "}"]
        for point in range(self.points - 1, -1, -1):
            rows = self._rows_of(point)
            lines.append(f"if (ANY(touches{point})) {{")
            lines += [f"const real y{i} = saved[sweep * {self.rows} + {i}];" for i in rows]
            lines.append(self._factors(point))
            for block in (rows[1:], rows[:1]):
                lines += [self._pull_back(point, block), *(self._pull_back_entries(i, block) for i in block)]
            lines.append("}")
        lines += [f"x{i} = w{i};" for i in range(self.rows)]
        return "\n".join([*lines, "}", "}"])

    def implicit(self) -> str:
        """Return the adjoint of the last iterate as a fixed point; s sums the adjoints of y."""
        lines = [self._touching()]
        lines += [f"real a{i} = seed[{i}]; const real x{i} = out[{i}]; real s{i} = 0;" for i in range(self.rows)]
        lines += [f"const real y{i} = saved[{i}];" for i in range(self.rows)]
        lines += [self._factors(point) for point in range(self.points)]
        lines += [f"if ({self._any()})", f"for (int sweep = 0; sweep < {self.kind.count}; ++sweep) {{"]
        for point in range(self.points - 1, -1, -1):
            rows = self._rows_of(point)
            lines.append(f"if (ANY(touches{point})) {{")
            for block in (rows[1:], rows[:1]):
                lines += [self._pull_back(point, block), *(f"s{i} += g{i};" for i in block)]
            lines.append("}")
        lines.append("}")
        for i in range(self.rows):
            lines += [f"adj[{self._entry(i, j)}] += s{i} * x{j};" for j in self.kind.columns[i]]
            lines.append(f"adj[{self.entries + i}] += s{i};")
        return "\n".join(lines)

    def _rows_of(self, point: int) -> list[int]:
        first = self._first_row[point]
        return list(range(first, first + 1 + self.kind.tangents[point]))

    def _entry(self, row: int, column: int) -> int:
        return self._first_entry[row] + self.kind.columns[row].index(column)

    def _friction(self, point: int) -> int:
        return self.entries + self.rows + point

    def _touching(self) -> str:
        """Return the code that finds touching points; impulses and adjoints of the others are 0."""
        depth = self.entries + self.rows + self.points
        return "\n".join(f"const mask touches{p} = in[{depth + p}] > (real)0;" for p in range(self.points))

    def _any(self) -> str:
        touching = " | ".join(f"touches{point}" for point in range(self.points))
        return f"ANY({touching})" if touching else "false"

    def _row(self, i: int) -> str:
        """Return y = c + C x; the most recent impulse is added last, because the processor waits for it."""
        terms = [f"y{i} = in[{self.entries + i}];"]
        return " ".join(terms + [f"y{i} += in[{self._entry(i, j)}] * x{j};" for j in self.kind.columns[i]])

    def _project(self, point: int, rows: list[int], x: str) -> str:
        """Return the projection of a point's normal row, or of its tangents after its normal."""
        if not rows:
            return ""
        normal = self._first_row[point]
        if rows[0] == normal:
            return f"{x}{normal} = SELECT(touches{point} & (y{normal} > (real)0), y{normal}, (real)0);"
        bound = f"const real bound = in[{self._friction(point)}] * {x}{normal};"
        if len(rows) == 1:
            (i,) = rows
            clamped = (
                f"const real capped = SELECT(bound < y{i}, bound, y{i}); "
                f"{x}{i} = SELECT(capped < -bound, -bound, capped);"
            )
            return f"{{ {bound} {clamped} }}"
        i, j = rows
        size = f"const real size = ::wp::sqrt(y{i} * y{i} + y{j} * y{j});"
        share = "const real share = SELECT(bound < size, bound / size, (real)1);"
        return f"{{ {bound} {size} {share} {x}{i} = share * y{i}; {x}{j} = share * y{j}; }}"

    def _factors(self, point: int) -> str:
        """Return the derivatives of a point's projections at y: on{n}, share{n} = |t| / |y|, d{i} = y / |y| or 0."""
        normal, *tangents = self._rows_of(point)
        text = f"const mask on{normal} = touches{point} & (y{normal} > (real)0);"
        if not tangents:
            return text
        text += (
            f" const real mu{normal} = in[{self._friction(point)}]; const real bound{normal} = mu{normal} * x{normal};"
        )
        if len(tangents) == 1:
            (i,) = tangents
            return (
                f"{text} const mask over{i} = bound{normal} < y{i}; const mask under{i} = y{i} < -bound{normal};"
                f" const real d{i} = SELECT(over{i}, (real)1, SELECT(under{i}, (real)-1, (real)0));"
            )
        i, j = tangents
        return (
            f"{text} const real size{normal} = ::wp::sqrt(y{i} * y{i} + y{j} * y{j});"
            f" const mask slides{normal} = bound{normal} < size{normal};"
            f" const real per{normal} = SELECT(slides{normal}, (real)1 / size{normal}, (real)0);"
            f" const real share{normal} = SELECT(slides{normal}, bound{normal} * per{normal}, (real)1);"
            f" const real d{i} = y{i} * per{normal}; const real d{j} = y{j} * per{normal};"
        )

    def _pull_back(self, point: int, rows: list[int]) -> str:
        """Return the code that turns impulse adjoints a into those of y, g, and adds to those of older impulses."""
        if not rows:
            return ""
        normal = self._first_row[point]
        if rows[0] == normal:
            text = f"const real g{normal} = SELECT(on{normal}, a{normal}, (real)0); a{normal} = 0;"
        else:
            text = self._pull_back_tangents(point, rows)
        pushed = [
            f"a{j} += in[{self._entry(i, j)}] * g{i};"
            for j in reversed(by_age(rows[0], self.rows))  # adjoints needed next come first
            for i in rows
            if j in self.kind.columns[i]
        ]
        return "\n".join([text, *pushed])

    def _pull_back_tangents(self, point: int, rows: list[int]) -> str:
        normal, friction = self._first_row[point], self._friction(point)
        if len(rows) == 1:
            (i,) = rows
            text = (
                f"const real g{i} = SELECT(over{i} | under{i} | NOT(touches{point}), (real)0, a{i});"
                f" const real along{normal} = d{i} * a{i};"
            )
        else:
            i, j = rows
            text = f"const real along{normal} = d{i} * a{i} + d{j} * a{j};" + "".join(
                f" const real g{k} = SELECT(touches{point}, share{normal} * (a{k} - along{normal} * d{k}), (real)0);"
                for k in rows
            )
        cleared = " ".join(f"a{i} = 0;" for i in rows)
        return (
            f"{text} {cleared} a{normal} += mu{normal} * along{normal}; adj[{friction}] += along{normal} * x{normal};"
        )

    def _pull_back_entries(self, i: int, block: list[int]) -> str:
        """Return the code that adds to the adjoints of a row's C and c; rows from the block on still had old values."""
        values = {j: f"x{j}" if j < block[0] else f"w{j}" for j in self.kind.columns[i]}
        terms = [f"adj[{self._entry(i, j)}] += g{i} * {value};" for j, value in values.items()]
        return " ".join([*terms, f"adj[{self.entries + i}] += g{i};"])


def cone_impulses(
    matrix: Sequence[Sequence[Any]], offset: Sequence[Any], tangents: Sequence[int], friction: Sequence[Any],
    depth: Sequence[Any], sweeps: int = 50, adjoint: Adjoint = "taped",
) -> list[Any]:  # fmt: skip
    """Return the impulses after `sweeps` sweeps from zero, as floats, or as loop results if any input is traced.

    Of the symmetric matrix A the entries [i][j] with j <= i are read; constant zeros cost nothing. `offset` is b.
    Tangents (see `Sweeps`), friction mu and depth are per point; impulses are 0 unless the depth is above 0.
    """
    rows, constant = _scale(matrix, offset, tangents)
    columns = tuple(
        tuple(j for j in by_age(first, len(rows)) if not is_zero(rows[i][j]))
        for first, count in _blocks(tangents)
        for i in range(first, first + count)
    )
    kind = Sweeps(tuple(tangents), columns, sweeps, adjoint)
    entries = [rows[i][j] for i, used in enumerate(columns) for j in used]
    given = [*entries, *constant, *friction, *depth]
    traced = next((x.graph for x in given if isinstance(x, Expression)), None)
    return _sweep(kind, given) if traced is None else list(apply_loop(traced, sweeps_loop(kind), given))


def _blocks(tangents: Sequence[int]) -> list[tuple[int, int]]:
    """Return first row and number of rows of each jointly projected block: a normal, or the tangents of a point."""
    blocks, first = [], 0
    for count in tangents:
        blocks.append((first, 1))
        if count:
            blocks.append((first + 1, count))
        first += 1 + count
    return blocks


def _scale(
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
    """Return the greater eigenvalue of the 2 x 2 block at (i, i)."""
    a, b, c = full[i][i], full[i][i + 1], full[i + 1][i + 1]
    total = maximum(a + c, TINY)
    difference, twice = (a - c) / total, 2.0 * b / total
    return 0.5 * total * (1.0 + safe_sqrt(difference * difference + twice * twice))


def _sweep(kind: Sweeps, given: Sequence[float]) -> list[float]:
    """Run the loop in Python, on floats."""
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
