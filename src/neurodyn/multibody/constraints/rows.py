# SPDX-License-Identifier: Apache-2.0
"""Generated code for limits, friction and equalities (`layout.RowGroup`), in the native solver and its adjoint.

Row r, counted over all groups, has its residual y in `ry[r]`, its change along a step in `rs[r]`, force in `rf[r]` and
stiffness in `rw[r]`; limits that no world violates have none of them. All rows of a group share the same code, with
loops over rows and joints. The code reads `a`, `s`, `in`, `adj`, and declares names only within its own blocks.
"""

from collections.abc import Callable, Mapping, Sequence

from neurodyn.multibody.constraints.layout import RowGroup

Entries = Mapping[tuple[int, int], int]
"""Indices of the entries of H, by row and column."""


class RowWriter:
    """Generates the code of the rows of a problem, empty without rows."""

    def __init__(self, groups: Sequence[RowGroup], starts: Sequence[int], entry: Entries) -> None:
        """Prepare the code from the first input of each group and the indices of the entries of H."""
        self._groups, self._starts, self._entry = groups, starts, entry
        self._numbers = [sum(group.rows for group in groups[:g]) for g in range(len(groups))]
        self._count = sum(group.rows for group in groups)

    def declarations(self) -> str:
        """Return code that declares residuals, and the joints and entries of H of each group."""
        if not self._groups:
            return ""
        lines = [f"real {', '.join(f'{name}[{self._count}]' for name in ('ry', 'rs', 'rf', 'rw'))}; (void)rs;"]
        for g, group in enumerate(self._groups):
            places = [self._entry[i, j] for i in group.dofs for j in group.dofs if j <= i]
            for name, values in (("rd", group.dofs), ("rh", places)):
                lines.append(f"const int {name}{g}[] = {{{', '.join(map(str, values))}}}; (void){name}{g};")
        return "\n".join(lines)

    def may_push(self) -> tuple[list[str], bool]:
        """Return masks under which rows may be active, and whether some always are."""
        masks = []
        for g, group in enumerate(self._groups):
            if group.kind != "equality":
                masks += [f"(in[{self._starts[g] + group.width * (r + 1) - 1}] > (real)0)" for r in range(group.rows)]
        return masks, any(group.kind == "equality" for group in self._groups)

    def gradient(self) -> str:
        """Return code that computes residuals at `a` and adds to `g`, `H` and `pushed`."""
        pushed = {"equality": "pushed += (real)1;", "limit": "pushed += F;", "friction": "pushed += F * F;"}
        return self._each(
            lambda group: [
                f"real y = J[{len(group.dofs) + 1}];",
                self._sum("y", "a"),
                _cost(group, "y"),
                "ry[r] = y; rf[r] = F; rw[r] = W;",
                pushed[group.kind],
                "int h = 0;",
                "for (int k = 0; k < n; ++k) {",
                "const real u = W * J[k]; g[rd[k]] -= J[k] * F;",
                "for (int l = 0; l <= k; ++l) H[rh[h++]] += J[l] * u;",
                "}",
            ]
        )

    def whole_step(self) -> str:
        """Return code that takes the step `s`, and adds to `slope`, `bend` and `missed`."""

        def lines(group: RowGroup) -> list[str]:
            start = ["real dy = (real)0;", self._sum("dy", "s"), "rs[r] = dy;"]
            after = [_cost(group, "(ry[r] + dy)"), "slope -= F * dy; bend += W * dy * dy;"]
            if group.kind != "equality":
                after.append(f"const real l = rf[r] - rw[r] * dy - F; missed += l * l / J[{len(group.dofs)}];")
            return [*start, *after]

        return self._each(lines)

    def along(self) -> str:
        """Return code that adds slope and curvature at the fraction `reach` of the step."""
        return self._each(
            lambda group: [
                "const real dy = rs[r];",
                _cost(group, "(ry[r] + reach * dy)"),
                "slope -= F * dy; bend += W * dy * dy;",
            ],
            joints=False,
        )

    def pull_back(self) -> str:
        """Return code that propagates the adjoints `s` of the accelerations to the inputs of the rows."""

        def lines(group: RowGroup) -> list[str]:
            n = len(group.dofs)
            code = [
                "real z = (real)0;",
                self._sum("z", "s"),
                "const real y = ry[r];",
                _cost(group, "y") if group.kind == "friction" else "const real F = rf[r]; const real W = rw[r];",
                "real* back = adj + (J - in);",
                "for (int k = 0; k < n; ++k) back[k] += s[rd[k]] * F - z * W * a[rd[k]];",
                f"back[{n + 1}] -= z * W;",
            ]
            if group.kind == "equality":
                return [*code, f"back[{n}] -= z * y;"]
            if group.kind == "limit":
                return [*code, f"back[{n}] -= SELECT(W > (real)0, z * y, (real)0);"]
            return [
                *code,
                f"back[{n}] -= SELECT(under | over, (real)0, z * y);",
                f"back[{n + 2}] += SELECT(under, -z, SELECT(over, z, (real)0));",
            ]

        return self._each(lines)

    def _each(self, lines: Callable[[RowGroup], list[str]], *, joints: bool = True) -> str:
        """Return loops over the rows of all groups; `lines` returns the code of a row of a group."""
        code = []
        for g, group in enumerate(self._groups):
            code.append(f"for (int row = 0; row < {group.rows}; ++row) {{ const int r = {self._numbers[g]} + row;")
            code.append(f"const real* J = in + {self._starts[g]} + {group.width} * row; (void)J;")
            if group.kind == "limit":
                code.append(f"if (!ANY(J[{group.width - 1}] > (real)0)) continue;")
            if joints:
                tables = f"const int* rd = rd{g}; const int* rh = rh{g}; (void)rh;"
                code.append(f"const int n = {len(group.dofs)}; {tables}")
            code += [*lines(group), "}"]
        return "\n".join(code)

    @staticmethod
    def _sum(name: str, x: str) -> str:
        return f"for (int k = 0; k < n; ++k) {name} += J[k] * {x}[rd[k]];"


def _cost(group: RowGroup, y: str) -> str:
    """Return code that declares force F and stiffness W of a row at a residual."""
    n = len(group.dofs)
    if group.kind == "equality":
        return f"const real W = J[{n}]; const real F = -W * {y};"
    if group.kind == "limit":
        active = f"(J[{n + 2}] > (real)0) & ({y} < (real)0)"
        return f"const real W = SELECT({active}, J[{n}], (real)0); const real F = -W * {y};"
    return (
        f"const real most = J[{n + 2}]; const real whole = -J[{n}] * {y};"
        " const mask under = whole < -most; const mask over = whole > most;"
        " const real F = SELECT(under, -most, SELECT(over, most, whole));"
        f" const real W = SELECT(under | over, (real)0, J[{n}]);"
    )
