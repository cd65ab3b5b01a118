# SPDX-License-Identifier: Apache-2.0
"""Generated code for contacts of shapes: their part of the native solver and its adjoint (`layout.ConeGroup`).

A contact has 1, 3, 4 or 6 rows: normal; tangents; torsion about the normal; rolling about the tangents. Rows of
friction are scaled to the coefficient of the first tangent, which makes the cone isotropic in them. A contact between
two links uses the difference of their motions: joints that move both cancel, and those of the first link count
negatively.

Active contacts are numbered as they are found. The residuals of contact i start at `cy[12 i]`, followed by their change
along a step. The code reads `a`, `s`, `in`, `adj`, and declares names only within its own blocks.
"""

from collections.abc import Mapping

from neurodyn.core.description.contacts import Cone
from neurodyn.multibody.constraints.layout import PER_CONE, PER_CONE_GROUP, ConeGroup, ConstraintLayout

TWICE = tuple((axis, (axis + 1) % 3, (axis + 2) % 3) for axis in range(3))
"""Each axis with the next two: the indices of a cross product."""
_MOST = 6  # rows of a contact


class ConeWriter:
    """Generates the code of a problem's contacts of shapes, empty if there are none."""

    def __init__(
        self, groups: tuple[ConeGroup, ...], at: ConstraintLayout, entry: Mapping[tuple[int, int], int], cone: Cone,
        impratio: float,
    ) -> None:  # fmt: skip
        """Prepare the code; `entry` holds the indices of the entries of H."""
        self._groups, self._at, self._entry = groups, at, entry
        self._elliptic, self._impratio = cone == "elliptic", impratio
        self._contacts = sum(group.contacts for group in groups)

    def declarations(self) -> str:
        """Return code that finds the contacts and their rows."""
        if not self._groups:
            return ""
        rows = sum(group.contacts * group.dimension * len(group.dofs) for group in self._groups)
        moved = " ".join(
            f"const real p{i} = column[{3 + i}] + column[{j}] * c[{k}] - column[{k}] * c[{j}];" for i, j, k in TWICE
        )
        return f"""{self._tables()}
real cJ[{rows}]; real ce[{_MOST * self._contacts}]; real cy[{2 * _MOST * self._contacts}]; real cD[{self._contacts}];
int cat[{self._contacts}]; int cof[{self._contacts}]; int cwhere[{self._contacts}]; int cforce[{self._contacts}];
int ccount = 0; int croom = 0; int cseen = {self._at.first_force}; (void)cy; (void)cforce; (void)cplace; (void)cph;
for (int group = 0; group < {len(self._groups)}; ++group) {{
const int* dofs = cdofs + cfirst[group]; const int* sign = csign + cfirst[group]; const real* own = in + cstart[group];
const int n = clength[group]; const int m = crows[group];
for (int number_of = 0; number_of < cpoints[group]; ++number_of, cseen += 3) {{
const real* c = own + {PER_CONE_GROUP} + {PER_CONE} * number_of; const mask touches = c[9] > (real)0;
if (ANY(touches)) {{
real* Jn = cJ + croom; real v[{_MOST}]; for (int r = 0; r < m; ++r) v[r] = (real)0;
{second_tangent()}
for (int k = 0; k < n; ++k) {{
const real* column = in + {self._at.columns} + 6 * dofs[k]; const real rate = in[{self._at.velocity} + dofs[k]];
{moved}
const real side = (real)(number)sign[k];
Jn[k] = side * (c[3] * p0 + c[4] * p1 + c[5] * p2);
if (m > 1) {{
Jn[n + k] = side * (c[6] * p0 + c[7] * p1 + c[8] * p2); Jn[2 * n + k] = side * own[2] * (t0 * p0 + t1 * p1 + t2 * p2);
}}
if (m > 3) Jn[3 * n + k] = side * own[3] * (c[3] * column[0] + c[4] * column[1] + c[5] * column[2]);
if (m > 4) {{
Jn[4 * n + k] = side * own[4] * (c[6] * column[0] + c[7] * column[1] + c[8] * column[2]);
Jn[5 * n + k] = side * own[5] * (t0 * column[0] + t1 * column[1] + t2 * column[2]);
}}
for (int r = 0; r < m; ++r) v[r] += Jn[r * n + k] * rate;
}}
real* en = ce + {_MOST} * ccount; for (int r = 0; r < m; ++r) en[r] = own[1] * v[r];
en[0] += c[11]; cD[ccount] = SELECT(touches, c[10], (real)0);
cat[ccount] = cstart[group] + {PER_CONE_GROUP} + {PER_CONE} * number_of; cof[ccount] = group; cwhere[ccount] = croom;
cforce[ccount] = cseen;
croom += m * n; ++ccount;
}}
}}
}}"""

    def may_push(self) -> list[str]:
        """Return conditions under which contacts may be active."""
        return ["ccount > 0"] if self._groups else []

    def gradient(self) -> str:
        """Return code that computes residuals at `a` and adds to `g`, `H` and `pushed`."""
        return self._each(
            "for (int r = 0; r < m; ++r) { yn[r] = en[r];"
            " for (int k = 0; k < n; ++k) yn[r] += Jn[r * n + k] * a[dofs[k]]; }",
            "const real* Y = yn;",
            self._cost(),
            "pushed += F[0]; int h = cph[cof[i]];",
            "for (int k = 0; k < n; ++k) {",
            f"real x[{_MOST}]; real u[{_MOST}]; for (int r = 0; r < m; ++r) x[r] = Jn[r * n + k];",
            _stiffness_times("x", "u"),
            "for (int r = 0; r < m; ++r) g[dofs[k]] -= x[r] * F[r];",
            "for (int l = 0; l <= k; ++l) { real sum = (real)0;"
            " for (int r = 0; r < m; ++r) sum += Jn[r * n + l] * u[r]; H[cplace[h++]] += sum; }",
            "}",
        )

    def whole_step(self) -> str:
        """Return code that takes the step `s`, and adds to `slope`, `bend` and `missed`."""
        return self._each(
            f"real* dy = yn + {_MOST}; real l[{_MOST}];",
            "for (int r = 0; r < m; ++r) { dy[r] = (real)0;"
            " for (int k = 0; k < n; ++k) dy[r] += Jn[r * n + k] * s[dofs[k]]; }",
            f"{{ const real* Y = yn; {self._cost()} {_stiffness_times('dy', 'l')}",
            "for (int r = 0; r < m; ++r) l[r] = F[r] - l[r]; }",
            f"real Y[{_MOST}]; for (int r = 0; r < m; ++r) Y[r] = yn[r] + dy[r];",
            self._cost(),
            "real lost = (real)0; for (int r = 0; r < m; ++r) { const real off = l[r] - F[r]; lost += off * off; }",
            "missed += SELECT(D > (real)0, lost / D, (real)0);",
            _along(),
        )

    def along(self) -> str:
        """Return code that adds slope and curvature at the fraction `reach` of the step."""
        return self._each(
            f"const real* dy = yn + {_MOST}; real Y[{_MOST}];",
            "for (int r = 0; r < m; ++r) Y[r] = yn[r] + reach * dy[r];",
            self._cost(),
            _along(),
        )

    def forces(self) -> str:
        """Return code that writes the forces along normal and tangents."""
        return self._each(
            "for (int r = 0; r < m; ++r) { yn[r] = en[r];"
            " for (int k = 0; k < n; ++k) yn[r] += Jn[r * n + k] * a[dofs[k]]; }",
            "const real* Y = yn;",
            self._cost(),
            "real* f = out + cforce[i]; f[0] = F[0];",
            "if (m > 1) { f[1] = F[1]; f[2] = in[cstart[cof[i]] + 2] * F[2]; }",
        )

    def seed(self) -> str:
        """Return code that adds the adjoints of the forces at the solution to the accelerations' adjoints."""
        return self._each(
            "const real* Y = yn;",
            self._cost(),
            self._seeds(),
            f"real h[{_MOST}];",
            _stiffness_times("seeds", "h"),
            "for (int k = 0; k < n; ++k) for (int r = 0; r < m; ++r) b[dofs[k]] -= Jn[r * n + k] * h[r];",
        )

    @staticmethod
    def _seeds() -> str:
        """Return code that declares the adjoints of the force along the rows."""
        return (
            f"real seeds[{_MOST}]; for (int r = 0; r < m; ++r) seeds[r] = (real)0; seeds[0] = seed[cforce[i]];"
            " if (m > 1) { seeds[1] = seed[cforce[i] + 1]; seeds[2] = in[cstart[cof[i]] + 2] * seed[cforce[i] + 2]; }"
        )

    def pull_back(self) -> str:
        """Return code that propagates the adjoints `s` of the accelerations to the inputs of the contacts.

        The adjoint of the rows is F lambda + q omega, with omega = a + b v, as for the solver's contacts of points.
        """
        if not self._groups:
            return ""
        return self._each(
            "const real* Y = yn;",
            self._cost(),
            self._friction_slope(),
            "const real* c = in + cat[i]; real* ca = adj + cat[i]; const int start = cstart[cof[i]];"
            " const real* own = in + start; real* back = adj + start; const int* sign = csign + cfirst[cof[i]];",
            second_tangent(),
            f"real z[{_MOST}]; real q[{_MOST}]; real raw[{_MOST}];",
            "for (int r = 0; r < m; ++r) { z[r] = (real)0; raw[r] = (real)0; for (int k = 0; k < n; ++k) {"
            f" z[r] += Jn[r * n + k] * s[dofs[k]]; raw[r] += Jn[r * n + k] * in[{self._at.velocity} + dofs[k]]; }} }}",
            self._seeds(),
            "for (int r = 0; r < m; ++r) z[r] += seeds[r];",
            _stiffness_times("z", "q"),
            "for (int r = 0; r < m; ++r) q[r] = -q[r];",
            "real byD = (real)0; real byb = (real)0; real bymu = (real)0;",
            "for (int r = 0; r < m; ++r) { byD += z[r] * F[r]; byb += q[r] * raw[r]; bymu += z[r] * P[r]; }",
            "ca[10] += SELECT(D > (real)0, byD / D, (real)0); ca[11] += q[0]; back[1] += byb; back[0] += bymu;",
            "for (int r = 2; r < m; ++r) back[r] += (F[r] * z[r] + q[r] * yn[r]) / own[r];",
            "for (int r = 2; r < m; ++r) { F[r] *= own[r]; q[r] *= own[r]; }",
            "real lm[6]; real om[6]; for (int part = 0; part < 6; ++part) { lm[part] = (real)0; om[part] = (real)0; }",
            "for (int k = 0; k < n; ++k) {",
            f"const int j = dofs[k]; const real* column = in + {self._at.columns} + 6 * j;",
            f"const real omega = a[j] + own[1] * in[{self._at.velocity} + j]; const real side = (real)(number)sign[k];",
            "for (int part = 0; part < 6; ++part) {"
            " lm[part] += side * column[part] * s[j]; om[part] += side * column[part] * omega; }",
            "}",
            self._pull_back_directions(),
            "for (int k = 0; k < n; ++k) {",
            f"const int j = dofs[k]; const real* column = in + {self._at.columns} + 6 * j;",
            "const real side = (real)(number)sign[k];",
            f"const real omega = a[j] + own[1] * in[{self._at.velocity} + j]; real work = (real)0;",
            f"real* moving = adj + {self._at.columns} + 6 * j;",
            "for (int part = 0; part < 6; ++part) {",
            "moving[part] += side * (f[part] * s[j] + fq[part] * omega); work += side * column[part] * fq[part];",
            "}",
            f"adj[{self._at.velocity} + j] += own[1] * work;",
            "}",
        )

    def _pull_back_directions(self) -> str:
        """Return code that declares the wrenches f and fq along the rows, and pulls back place and directions."""
        lines = ["real f[6]; real fq[6];"]
        for name, x in (("f", "F"), ("fq", "q")):
            for i in range(3):
                push = f"{x}[0] * c[{3 + i}] + (m > 1 ? {x}[1] * c[{6 + i}] + {x}[2] * t{i} : (real)0)"
                turn = f"(m > 3 ? {x}[3] * c[{3 + i}] : (real)0)"
                roll = f"(m > 4 ? {x}[4] * c[{6 + i}] + {x}[5] * t{i} : (real)0)"
                lines += [f"{name}[{3 + i}] = {push}; {name}[{i}] = {turn} + {roll};"]
            lines += [f"{name}[{i}] += c[{j}] * {name}[{3 + k}] - c[{k}] * {name}[{3 + j}];" for i, j, k in TWICE]
        for x in "lo":
            lines += [
                f"const real {x}v{i} = {x}m[{3 + i}] + {x}m[{j}] * c[{k}] - {x}m[{k}] * c[{j}];" for i, j, k in TWICE
            ]
        for i, j, k in TWICE:
            pulled = " + ".join(
                f"{f}[{3 + j}] * {x}m[{k}] - {f}[{3 + k}] * {x}m[{j}]" for f, x in (("f", "l"), ("fq", "o"))
            )
            lines += [f"ca[{i}] += {pulled};"]
            across = f"(m > 1 ? F[2] * lv{i} + q[2] * ov{i} : (real)0)"
            lines += [f"const real ta{i} = {across} + (m > 4 ? F[5] * lm[{i}] + q[5] * om[{i}] : (real)0);"]
        for i, j, k in TWICE:
            turned = f"(m > 3 ? F[3] * lm[{i}] + q[3] * om[{i}] : (real)0)"
            lines += [
                f"ca[{3 + i}] += F[0] * lv{i} + q[0] * ov{i} + c[{6 + j}] * ta{k} - c[{6 + k}] * ta{j} + {turned};"
            ]
            along = f"(m > 1 ? F[1] * lv{i} + q[1] * ov{i} : (real)0)"
            along += f" + (m > 4 ? F[4] * lm[{i}] + q[4] * om[{i}] : (real)0)"
            lines += [f"ca[{6 + i}] += {along} + ta{j} * c[{3 + k}] - ta{k} * c[{3 + j}];"]
        return "\n".join(lines)

    def _tables(self) -> str:
        """Return code that declares joints, signs, sizes and the entries of H of the groups."""
        groups = self._groups
        places = [[self._entry[i, j] for i in group.dofs for j in group.dofs if j <= i] for group in groups]
        tables = {
            "cdofs": [dof for group in groups for dof in group.dofs],
            "csign": [sign for group in groups for sign in group.signs],
            "cfirst": [sum(len(group.dofs) for group in groups[:g]) for g in range(len(groups))],
            "clength": [len(group.dofs) for group in groups],
            "crows": [group.dimension for group in groups],
            "cpoints": [group.contacts for group in groups],
            "cstart": list(self._at.first_cones),
            "cplace": [place for own in places for place in own],
            "cph": [sum(map(len, places[:g])) for g in range(len(groups))],
        }
        return " ".join(f"const int {name}[] = {{{', '.join(map(str, row))}}};" for name, row in tables.items())

    def _each(self, *body: str) -> str:
        if not self._groups:
            return ""
        lines = "\n".join(body)
        return f"""for (int i = 0; i < ccount; ++i) {{
const int n = clength[cof[i]]; const int m = crows[cof[i]]; const int* dofs = cdofs + cfirst[cof[i]];
const real* Jn = cJ + cwhere[i]; const real* en = ce + {_MOST} * i; real* yn = cy + {2 * _MOST} * i;
const real D = cD[i]; const real mu = in[cstart[cof[i]]]; (void)n; (void)dofs; (void)Jn; (void)en; (void)yn; (void)mu;
{lines}
}}"""

    def _cost(self) -> str:
        """Return code that declares force F and stiffness at residuals Y: W00, W0, Wd and B U U^T; see `_stiffness`."""
        declared = (
            f"real F[{_MOST}]; real W0[{_MOST}]; real Wd[{_MOST}]; real U[{_MOST}]; real B = (real)0;"
            " real W00 = SELECT(Y[0] < (real)0, D, (real)0); F[0] = -W00 * Y[0];"
            " for (int r = 1; r < m; ++r) { W0[r] = (real)0; Wd[r] = (real)0; U[r] = (real)0; }"
            " (void)W0; (void)Wd; (void)U; (void)B;"
        )
        return f"{declared} if (m > 1) {{ {self._ellipse() if self._elliptic else self._pyramid()} }}"

    def _pyramid(self) -> str:
        return (
            "F[0] = (real)0; W00 = (real)0; for (int r = 1; r < m; ++r) { const real y = mu * Y[r];"
            " const real up = SELECT(Y[0] + y < (real)0, (real)1, (real)0);"
            " const real down = SELECT(Y[0] - y < (real)0, (real)1, (real)0);"
            " const real qu = up * (Y[0] + y); const real qd = down * (Y[0] - y); F[0] -= D * (qu + qd);"
            " F[r] = -D * mu * (qu - qd); W00 += D * (up + down); W0[r] = D * mu * (up - down);"
            " Wd[r] = D * mu * mu * (up + down); }"
        )

    def _ellipse(self) -> str:
        return (
            f"const real share = (real){1.0 / self._impratio!r} * mu * mu;"
            " const real per = (real)1 / ((real)1 + share); real square = (real)0;"
            " for (int r = 1; r < m; ++r) square += Y[r] * Y[r];"
            " const real tau = ::wp::sqrt(SELECT(square > (real)1e-30, square, (real)1e-30));"
            " const real inverse = (real)1 / tau; const real gap = Y[0] - mu * tau; const real stiff = D * per;"
            " const mask sticking = share * Y[0] + mu * tau <= (real)0;"
            " const mask sliding = (gap < (real)0) & NOT(sticking);"
            f" const real Dt = (real){self._impratio!r} * D; const real slid = -stiff * gap;"
            " const real curve = slid * mu * inverse;"
            " F[0] = SELECT(sticking, -D * Y[0], SELECT(sliding, slid, (real)0));"
            " W00 = SELECT(sticking, D, SELECT(sliding, stiff, (real)0));"
            " B = SELECT(sliding, stiff * mu * mu - curve, (real)0);"
            " for (int r = 1; r < m; ++r) { U[r] = Y[r] * inverse;"
            " F[r] = SELECT(sticking, -Dt * Y[r], SELECT(sliding, -slid * mu * U[r], (real)0));"
            " W0[r] = SELECT(sliding, -stiff * mu * U[r], (real)0);"
            " Wd[r] = SELECT(sticking, Dt, SELECT(sliding, curve, (real)0)); }"
        )

    def _friction_slope(self) -> str:
        """Return code, to follow `_cost`, that declares P: the derivative of the force by the friction."""
        start = f"real P[{_MOST}]; for (int r = 0; r < m; ++r) P[r] = (real)0;"
        if not self._elliptic:
            return (
                f"{start} for (int r = 1; r < m; ++r) {{ const real y = mu * Y[r];"
                " const real up = SELECT(Y[0] + y < (real)0, (real)1, (real)0);"
                " const real down = SELECT(Y[0] - y < (real)0, (real)1, (real)0);"
                " P[0] -= D * (up - down) * Y[r];"
                " P[r] = -D * (up * (Y[0] + y) - down * (Y[0] - y) + mu * (up + down) * Y[r]); }"
            )
        return (
            f"{start} if (m > 1) {{ const real share = (real){1.0 / self._impratio!r} * mu * mu;"
            " const real per = (real)1 / ((real)1 + share); real square = (real)0;"
            " for (int r = 1; r < m; ++r) square += Y[r] * Y[r];"
            " const real tau = ::wp::sqrt(SELECT(square > (real)1e-30, square, (real)1e-30));"
            " const real gap = Y[0] - mu * tau; const real stiff = D * per;"
            " const mask sliding = (gap < (real)0) & NOT(share * Y[0] + mu * tau <= (real)0);"
            f" P[0] = SELECT(sliding, (real){2.0 / self._impratio!r} * mu * stiff * per * gap + stiff * tau, (real)0);"
            " const real change = -(P[0] * mu + F[0]) / tau;"
            " for (int r = 1; r < m; ++r) P[r] = SELECT(sliding, change * Y[r], (real)0); }"
        )


def _stiffness_times(x: str, u: str) -> str:
    """Return code that fills the array `u` with the stiffness times the array `x`."""
    return (
        f"{{ real along = (real)0; {u}[0] = W00 * {x}[0];"
        f" for (int r = 1; r < m; ++r) {{ along += U[r] * {x}[r]; {u}[0] += W0[r] * {x}[r]; }}"
        f" for (int r = 1; r < m; ++r) {u}[r] = W0[r] * {x}[0] + Wd[r] * {x}[r] + B * U[r] * along; }}"
    )


def _along() -> str:
    """Return code that adds a contact's slope and curvature along a step dy."""
    return (
        f"real bent[{_MOST}]; {_stiffness_times('dy', 'bent')}"
        " for (int r = 0; r < m; ++r) { slope -= F[r] * dy[r]; bend += dy[r] * bent[r]; }"
    )


def second_tangent() -> str:
    """Return code that declares the second tangent of a contact at c: normal x first tangent."""
    return " ".join(f"const real t{i} = c[{3 + j}] * c[{6 + k}] - c[{3 + k}] * c[{6 + j}];" for i, j, k in TWICE)
