# SPDX-License-Identifier: Apache-2.0
r"""The native loop that solves MuJoCo's convex soft-constraint problem, and its implicit adjoint.

In the accelerations a of a mechanism (MuJoCo's documentation, "Computation: primal problem"):

$$a = \arg\min \tfrac{1}{2} |a - a_s|^2_M + s(J a - a_{ref})$$

with the acceleration $a_s$ without constraints, and s the cost of contacts (`layout.cone_text`), limits
$\tfrac{D}{2} \min(0, y)^2$, friction (Huber's function with slope at most the friction) and equalities
$\tfrac{D}{2} y^2$. The minimum is unique. Newton's method with a line search finds it: $H = M + J^T W J$,
$H \delta = -g$. A contact's row touches only the joints that carry its link, so H has the zeros of M and is factored
from the leaves, $H = L^T D L$, without fill-in. Rows over several branches add the entries of
`ConstraintStructure.filled`.
The costs are piecewise quadratic: a step that crosses no switch reaches the minimum and terminates the loop.

The adjoint differentiates the minimum (implicit function theorem) with one solve. For the seed $\bar a$,
$H \lambda = \bar a$, and every input θ receives $-\lambda^T \partial g/\partial \theta$. The active set is held, so the
derivative is one-sided at a switch.

If no row is active, both directions return right after that check.
"""

from functools import partial

from neurodyn.multibody.constraints.cones import TWICE, ConeWriter, second_tangent
from neurodyn.multibody.constraints.layout import (
    FORCES,
    PER_POINT,
    STIFFNESS_ENTRIES,
    ConstraintLayout,
    ConstraintStructure,
    cone_source,
    friction_slope_source,
    kept_stiffness_times,
    stiffness_times,
)
from neurodyn.multibody.constraints.onnx_solver import add_solution
from neurodyn.multibody.constraints.rows import RowWriter
from neurodyn.multibody.trace import Loop

_ITERATIONS = 30
_SEARCHES = 12
_FLAT = 1e-3  # a line search stops when the slope has fallen to this share


def constraint_loop(structure: ConstraintStructure) -> Loop:
    """Return the loop of a problem.

    Its inputs are the entries of M by rows, as in `chains`; a_s; the velocities; the link motions per unit of each
    velocity coordinate (angular, linear); b of the contacts; then `PER_POINT` inputs for each point, and those of the
    `rows`. Its outputs are the accelerations, and the force of each contact along its normal and tangents.
    """
    writer = _ConstraintWriter(structure)
    forward = writer.forward()
    if writer.plain:
        rows = _ConstraintWriter(structure, padded=True).forward()
        forward = f"#if ROWS_IN_VECTORS\n{rows}\n#else\n{forward}\n#endif"
    return Loop(
        name="soft constraints", inputs=writer.inputs, outputs=writer.outputs, saved=0,
        forward=forward, adjoint=writer.adjoint(), sufficient=writer.nv, onnx=partial(add_solution, structure),
        gates=writer.gates,
    )  # fmt: skip


_PER_CONTACT = 9 + len(STIFFNESS_ENTRIES)
"""Numbers that a contact keeps in `y`: its residual, the change along a step, force, and entries of the stiffness."""

_VECTOR = 4  # numbers to which rows are padded: doubles in the vectors of most processors

_REMEMBERED = "{ change[i] = warm ? a[i] - last[i] : (real)0; last[i] = a[i]; }"

_UNROLLED = 1000
"""Maximum number of products for which a factorisation of H is unrolled."""


class _ConstraintWriter:
    """Generates the code of a problem.

    Touching points (contacts) are numbered as they are found. Contact i belongs to group `of[i]`, its rows start at
    `where[i]` in J, its residual at rest is in `e`, and `weight[i]` is its D, which is zero in the lanes of worlds in
    which it does not touch. All points share the same code, with loops over the joints that carry them, so that its
    length does not grow with their number.

    With `padded`, rows of H and J are whole vectors of numbers of one world; past the end of a row, H is arbitrary and
    J is 0. The search then starts from the accelerations `last` of the previous substep and their `change`, if the
    frame has one (`warm`); all three are declared around the loop over substeps.
    """

    def __init__(self, structure: ConstraintStructure, *, padded: bool = False) -> None:
        self.structure = structure
        at = ConstraintLayout(structure)
        self.nv, self.points, self.inputs, self.outputs = at.nv, at.points, at.inputs, at.outputs
        self._entries, self.gates = at.entries, at.gates
        self._chains = structure.filled  # of H
        self._fills = self._chains != structure.chains  # entries of H that M does not have
        self._entry = {pair: k for k, pair in enumerate((i, j) for i, chain in enumerate(self._chains) for j in chain)}
        self._width, self._by = len(self._entry), "n"  # length of H, and stride between rows of J
        coupled = structure.cones or any(len(group.dofs) > 1 or group.kind == "equality" for group in structure.rows)
        self.plain = not (self._fills or self._many or coupled) and bool(structure.groups)
        self._row = 0
        if padded:
            self._row = -(-max(map(len, self._chains)) // _VECTOR) * _VECTOR
            self._width, self._by = self.nv * self._row, str(self._row)
            chains = enumerate(self._chains)
            self._entry = {(i, j): i * self._row + k for i, chain in chains for k, j in enumerate(chain)}
        self._rows = RowWriter(structure.rows, at.first_rows, self._entry)
        self._cones = ConeWriter(structure.cones, at, self._entry, structure.cone, structure.impratio)
        self._free, self._velocity, self._columns, self._damping = at.free, at.velocity, at.columns, at.damping
        self._first_point = at.first_point

    # --- forward -----------------------------------------------------------------------------------------------
    def forward(self) -> str:
        dofs = range(self.nv)
        eased = " + ".join(f"m[{i}] * (a[{i}] - in[{self._free + i}])" for i in dofs)
        slope, curved, sloped = (" + ".join(f"{x}[{i}] * s[{i}]" for i in dofs) for x in ("g", "Ms", "m"))
        return "\n".join(
            [
                f"real a[{self.nv}];",
                *(f"a[{i}] = in[{self._free + i}];" for i in dofs),
                f"for (int i = {self.nv}; i < {self.outputs}; ++i) out[i] = (real)0;\n{self._contacts()}",
                *self._row_tables(),
                f"if ({self._may_push()}) {{",
                f"if (warm) for (int i = 0; i < {self.nv}; ++i) a[i] = last[i] + change[i];" if self._row else "",
                "real live = (real)1, scale = (real)0; const real least = (real)(sizeof(number) == 8 ? 1e-20 : 1e-12);",
                self._begin(free=not self._row),
                f"for (int iteration = 0; iteration < {_ITERATIONS}; ++iteration) {{",
                self._gradient(),
                f"if (iteration == 0{' && !warm' if self._row else ''}) if (!ANY(pushed > (real)0)) break;",
                self._factorise(),
                self._solve("-g"),
                self._product("Ms", "s"),
                f"const real fall = -({slope}); const real curved = {curved}; const real sloped = {sloped};",
                "scale = SELECT(scale > fall, scale, fall);",
                f"const real eased = {eased}; scale = SELECT(scale > eased, scale, eased);" if self._row else "",
                self._whole_step(),
                "mask searching = (live > (real)0) & (missed > least * scale);",
                "const real moving = live; live = SELECT(searching, live, (real)0);",
                self._line_search(),
                "const real step = SELECT(moving > (real)0, reach, (real)0);",
                f"for (int i = 0; i < {self.nv}; ++i) {{ a[i] += step * s[i]; m[i] += step * Ms[i]; }}",
                self._each_contact("for (int row = 0; row < 3; ++row) yn[row] += step * yn[3 + row];"),
                "if (!ANY(live > (real)0)) break;",
                "}",
                self._forces(),
                *filter(None, [self._cones.forces()]),
                "}",
                *(f"out[{i}] = a[{i}];" for i in dofs),
                f"for (int i = 0; i < {self.nv}; ++i) {_REMEMBERED}\nwarm = true;" if self._row else "",
            ]
        )

    def _tables(self) -> str:
        """Return code that declares the chains of the groups, and the start of the rows of H."""
        groups, filled = self.structure.groups, self._fills
        chains = [dof for group in groups for dof in group.chain]
        first = [sum(len(group.chain) for group in groups[:g]) for g in range(len(groups))]
        start = [self._entry[i, chain[0]] for i, chain in enumerate(self._chains)]
        tables = {"chain": chains, "first": first, "length": [len(group.chain) for group in groups]}
        tables |= {"points": [group.points for group in groups], "start": start}
        if filled:  # a row of H has more entries than those of a contact's chain
            places = [[self._entry[i, j] for i in group.chain for j in group.chain if j <= i] for group in groups]
            tables["start"] = [sum(map(len, places[:g])) for g in range(len(groups))]
            tables["place"] = [place for own in places for place in own]
        text = " ".join(f"const int {name}[] = {{{', '.join(map(str, row))}}};" for name, row in tables.items())
        return f"{text} (void)start;"

    def _contacts(self) -> str:
        if not self.points:
            return ""
        rows = sum(3 * (self._row or len(group.chain)) * group.points for group in self.structure.groups)
        padding = f"for (int k = n; k < {self._row}; ++k) Jn[k] = Jn[by + k] = Jn[2 * by + k] = (real)0;"
        return f"""{self._tables()}
real J[{rows}]; real e[{3 * self.points}]; real y[{_PER_CONTACT * self.points}];
real weight[{self.points}]; real yields[{self.points}];
int at[{self.points}]; int of[{self.points}]; int where[{self.points}];
int count = 0; int room = 0; int number_of = 0; (void)y;
for (int group = 0; group < {len(self.structure.groups)}; ++group) {{
const int* dofs = chain + first[group]; const int n = length[group];
for (int point = 0; point < points[group]; ++point, ++number_of) {{
const real* c = in + {self._first_point} + {PER_POINT} * number_of; const mask touches = c[9] > (real)0;
if (ANY(touches)) {{
real* Jn = J + room; const int by = {self._by}; {padding if self._row else ""}
real v0 = (real)0, v1 = v0, v2 = v0;
{second_tangent()}
for (int k = 0; k < n; ++k) {{
const real* column = in + {self._columns} + 6 * dofs[k]; const real rate = in[{self._velocity} + dofs[k]];
{" ".join(f"const real p{i} = column[{3 + i}] + column[{j}] * c[{k}] - column[{k}] * c[{j}];" for i, j, k in TWICE)}
const real J0 = c[3] * p0 + c[4] * p1 + c[5] * p2; const real J1 = c[6] * p0 + c[7] * p1 + c[8] * p2;
const real J2 = t0 * p0 + t1 * p1 + t2 * p2;
Jn[k] = J0; Jn[by + k] = J1; Jn[2 * by + k] = J2; v0 += J0 * rate; v1 += J1 * rate; v2 += J2 * rate;
}}
const real b = in[{self._damping}];
e[3 * count] = b * v0 + c[11]; e[3 * count + 1] = b * v1; e[3 * count + 2] = b * v2;
weight[count] = SELECT(touches, c[10], (real)0); yields[count] = SELECT(touches, (real)1 / c[10], (real)0);
at[count] = number_of; of[count] = group; where[count] = room;
room += 3 * by; ++count;
}}
}}
}}"""

    def _row_tables(self) -> list[str]:
        """Return code that declares what the rows need, if there are any."""
        return list(filter(None, [self._rows.declarations(), self._cones.declarations()]))

    def _may_push(self) -> str:
        """Return the condition that any row may be active."""
        masks, always = self._rows.may_push()
        if always:
            return "true"
        parts = [*(["count > 0"] if self.points else []), *self._cones.may_push()]
        return " || ".join([*parts, *([f"ANY({' | '.join(masks)})"] if masks else [])]) or "false"

    def _each_contact(self, *body: str) -> str:
        if not self.points:
            return ""
        lines = "\n".join(body)
        return f"""for (int i = 0; i < count; ++i) {{
const int n = length[of[i]]; const int by = {self._by}; const int* dofs = chain + first[of[i]];
const real* Jn = J + where[i]; const real* en = e + 3 * i; real* yn = y + {_PER_CONTACT} * i; const real D = weight[i];
const real mu = in[{self._first_point + 12} + {PER_POINT} * at[i]]; (void)n; (void)by; (void)dofs; (void)Jn; (void)en;
(void)yn; (void)D; (void)mu;
{lines}
}}"""

    def _cone(self, y: tuple[str, str, str], *, stiffness: bool = True) -> str:
        return cone_source(self.structure.cone, self.structure.impratio, y, stiffness=stiffness)

    def _begin(self, *, free: bool = True) -> str:
        """Return code that declares M (a - a_s) as m and fills in the contacts' residuals.

        Both are linear in a, and later steps add to them. With `free`, a is a_s and m is 0.
        """
        first = f"real m[{self.nv}]; for (int i = 0; i < {self.nv}; ++i) m[i] = (real)0;"
        if not free:
            begun = f"real d[{self.nv}]; for (int i = 0; i < {self.nv}; ++i) d[i] = a[i] - in[{self._free} + i];"
            first = f"{begun}\n{self._product('m', 'd')}"
        rows = self._each_contact(_rows_times("a", "y", rest=True), "yn[0] = y0; yn[1] = y1; yn[2] = y2;")
        return f"{first}\n{rows}"

    def _gradient(self) -> str:
        """Return code that declares H, the gradient g, and `pushed` (above 0: a row acts); see `_begin`."""
        lines = [f"real pushed = (real)0; real g[{self.nv}]; real H[{self._width}];"]
        lines += [f"for (int i = 0; i < {self.nv}; ++i) g[i] = m[i];", self._from_mass_matrix()]
        lines += [
            self._each_contact(
                self._cone(("yn[0]", "yn[1]", "yn[2]")),
                "pushed += F0;",
                *(f"yn[{6 + k}] = {name};" for k, name in enumerate((*FORCES, *STIFFNESS_ENTRIES))),
                "for (int k = 0; k < n; ++k) {",
                "const real J0 = Jn[k]; const real J1 = Jn[by + k]; const real J2 = Jn[2 * by + k];",
                "g[dofs[k]] -= J0 * F0 + J1 * F1 + J2 * F2;",
                *(f"const real u{row} = {stiffness_times(row, 'J{}')};" for row in range(3)),
                *self._contact_stiffness(),
                "}",
            )
        ]
        lines += filter(None, [self._rows.gradient(), self._cones.gradient()])
        return "\n".join(lines)

    def _from_mass_matrix(self) -> str:
        """Return code that sets H to M."""
        if self._row:
            lines = (f"H[{self._entry[pair]}] = in[{k}];" for k, pair in enumerate(self._entries))
            return "\n".join([f"for (int i = 0; i < {self._width}; ++i) H[i] = (real)0;", *lines])
        if not self._fills:
            return f"for (int i = 0; i < {len(self._entries)}; ++i) H[i] = in[i];"
        places = ", ".join(str(self._entry[pair]) for pair in self._entries)
        return (
            f"{{ const int mass[] = {{{places}}}; for (int i = 0; i < {len(self._entry)}; ++i) H[i] = (real)0;"
            f" for (int i = 0; i < {len(self._entries)}; ++i) H[mass[i]] = in[i]; }}"
        )

    def _contact_stiffness(self) -> tuple[str, ...]:
        """Return code that adds a contact's stiffness to row k of H, of its chain."""
        term = "Jn[l] * u0 + Jn[by + l] * u1 + Jn[2 * by + l] * u2"
        if self._row:
            line = f"for (int l = 0; l < {self._row}; ++l) Hk[l] += {term};"
            return f"real* Hk = H + {self._row} * dofs[k];", line
        if not self._fills:
            return "real* Hk = H + start[dofs[k]];", f"for (int l = 0; l <= k; ++l) Hk[l] += {term};"
        return (
            "const int* row = place + start[of[i]] + k * (k + 1) / 2;",
            f"for (int l = 0; l <= k; ++l) H[row[l]] += {term};",
        )

    def _h(self, i: int, j: int) -> str:
        return f"H[{self._entry[i, j]}]"

    def _product(self, name: str, x: str) -> str:
        """Return code that declares M x."""
        terms: list[list[str]] = [[] for _ in range(self.nv)]
        for k, (i, j) in enumerate(self._entries):
            terms[i].append(f"in[{k}] * {x}[{j}]")
            if i != j:
                terms[j].append(f"in[{k}] * {x}[{i}]")
        lines = [f"{name}[{i}] = {' + '.join(own)};" for i, own in enumerate(terms)]
        return "\n".join([f"real {name}[{self.nv}];", *lines])

    def _factorise(self) -> str:
        """Return code that replaces H by its factors: L off the diagonal, 1 / D on it."""
        if self._many:
            return self._factorise_in_loops()
        if self._row:
            return self._factorise_in_rows()
        lines = []
        for k in range(self.nv - 1, -1, -1):
            others = self._chains[k][:-1]
            lines.append(f"{self._h(k, k)} = (real)1 / {self._h(k, k)};")
            for i in reversed(others):
                lines.append(f"{{ const real l = {self._h(k, i)} * {self._h(k, k)};")
                lines += [f"{self._h(i, j)} -= l * {self._h(k, j)};" for j in others if j <= i]
                lines.append(f"{self._h(k, i)} = l; }}")
        return "\n".join(lines)

    def _factorise_in_rows(self) -> str:
        """Return the same with the factors in L and N: reading a vector of H would wait for numbers written into it."""
        lines = [f"real L[{self._width}]; real N[{self.nv}];"]
        for k in range(self.nv - 1, -1, -1):
            lines.append(f"{{ const real* Hk = H + {self._row * k}; (void)Hk; N[{k}] = (real)1 / {self._h(k, k)};")
            for place, i in reversed([*enumerate(self._chains[k][:-1])]):
                lines.append(f"{{ const real l = Hk[{place}] * N[{k}]; real* Hi = H + {self._row * i};")
                lines.append(f"{self._factor(k, i)} = l;")
                lines.append(f"for (int j = 0; j < {self._row}; ++j) Hi[j] -= l * Hk[j];")
                lines.append("}")
            lines.append("}")
        return "\n".join(lines)

    def _factor(self, k: int, i: int) -> str:
        """Return the expression of an entry of L, or of the inverse of D, once H is factored."""
        if not self._row:
            return self._h(k, i)
        return f"N[{k}]" if k == i else f"L[{self._entry[k, i]}]"

    @property
    def _many(self) -> bool:
        """Whether factoring H takes so many operations, all on contiguous rows, that they are written as loops."""
        products = sum(len(chain) * (len(chain) - 1) // 2 for chain in self._chains)
        return products > _UNROLLED and all(chain == tuple(range(chain[0], chain[-1] + 1)) for chain in self._chains)

    def _row_loop(self, *, upwards: bool, body: str) -> str:
        """Return a loop over the rows of H: `Hk` is row k, whose first column is `low[k]`."""
        tables = {"first": [self._entry[k, chain[0]] for k, chain in enumerate(self._chains)],
                  "low": [chain[0] for chain in self._chains]}  # fmt: skip
        order = f"int k = 0; k < {self.nv}; ++k" if upwards else f"int k = {self.nv - 1}; k >= 0; --k"
        declared = " ".join(f"static const int {name}[] = {{{str(row)[1:-1]}}};" for name, row in tables.items())
        return f"{{ {declared} for ({order}) {{ const int from = low[k]; real* Hk = H + first[k]; {body} }} }}"

    def _factorise_in_loops(self) -> str:
        return self._row_loop(
            upwards=False,
            body="const real inverse = (real)1 / Hk[k - from]; Hk[k - from] = inverse;"
            " for (int i = k - 1; i >= from; --i) { const real l = Hk[i - from] * inverse;"
            " real* Hi = H + first[i] + (from - low[i]); for (int j = 0; j <= i - from; ++j) Hi[j] -= l * Hk[j];"
            " Hk[i - from] = l; }",
        )

    def _solve(self, right: str) -> str:
        """Return code that declares the solution s of H s = right, from the factors of H."""
        lines = [f"real s[{self.nv}];", *(f"s[{i}] = {right}[{i}];" for i in range(self.nv))]
        if self._many:
            down = "const real x = s[k]; for (int i = from; i < k; ++i) s[i] -= Hk[i - from] * x;"
            up = "real x = s[k]; for (int i = from; i < k; ++i) x -= Hk[i - from] * s[i]; s[k] = x;"
            scale = self._row_loop(upwards=True, body="s[k] *= Hk[k - from];")
            loops = (self._row_loop(upwards=False, body=down), scale, self._row_loop(upwards=True, body=up))
            return "\n".join([*lines, *loops])
        for k in range(self.nv - 1, -1, -1):
            lines += [f"s[{i}] -= {self._factor(k, i)} * s[{k}];" for i in self._chains[k][:-1]]
        lines += [f"s[{i}] *= {self._factor(i, i)};" for i in range(self.nv)]
        for k in range(self.nv):
            lines += [f"s[{k}] -= {self._factor(k, i)} * s[{i}];" for i in self._chains[k][:-1]]
        return "\n".join(lines)

    def _whole_step(self) -> str:
        """Return code that takes the whole step: slope and curvature there, and its distance from a minimum.

        The distance is the deviation of the forces from their linear prediction along the step, squared and weighted by
        1/D, which bounds the remaining decrease.
        """
        lines = ["real missed = (real)0; real slope = sloped + curved; real bend = curved;"]
        lines += [
            self._each_contact(
                _rows_times("s", "dy", rest=False),
                "yn[3] = dy0; yn[4] = dy1; yn[5] = dy2; real l0; real l1; real l2;",
                *(f"l{row} = yn[{6 + row}] - ({kept_stiffness_times(row)});" for row in range(3)),
                self._cone(("(yn[0] + dy0)", "(yn[1] + dy1)", "(yn[2] + dy2)")),
                "l0 -= F0; l1 -= F1; l2 -= F2;",
                "missed += (l0 * l0 + l1 * l1 + l2 * l2) * yields[i];",
                _along(),
            )
        ]
        lines += filter(None, [self._rows.whole_step(), self._cones.whole_step()])
        return "\n".join(lines)

    def _line_search(self) -> str:
        """Return code that finds the step length `reach`; 1 where no search is needed."""
        lines = ["real low = (real)0; real high = (real)-1; real reach = (real)1;"]
        lines += [f"for (int search = 0; search < {_SEARCHES}; ++search) {{"]
        lines += [f"searching = searching & ((slope < -(real){_FLAT} * fall) | (slope > (real){_FLAT} * fall));"]
        lines += ["if (!ANY(searching)) break;"]
        lines += ["low = SELECT(slope < (real)0, reach, low); high = SELECT(slope < (real)0, high, reach);"]
        lines += ["real next = reach - slope / bend;"]
        lines += ["const mask outside = (high > (real)0) & ((next <= low) | (next >= high));"]
        lines += ["next = SELECT(outside, (real)0.5 * (low + high), next); reach = SELECT(searching, next, reach);"]
        lines += ["slope = sloped + reach * curved; bend = curved;"]
        lines += [
            self._each_contact(
                "const real dy0 = yn[3]; const real dy1 = yn[4]; const real dy2 = yn[5];",
                self._cone(("(yn[0] + reach * dy0)", "(yn[1] + reach * dy1)", "(yn[2] + reach * dy2)")),
                _along(),
            )
        ]
        lines += filter(None, [self._rows.along(), self._cones.along()])
        return "\n".join([*lines, "}"])

    def _forces(self) -> str:
        return self._each_contact(
            self._cone(("yn[0]", "yn[1]", "yn[2]"), stiffness=False),
            f"real* f = out + {self.nv} + 3 * at[i]; f[0] = F0; f[1] = F1; f[2] = F2;",
        )

    # --- adjoint -----------------------------------------------------------------------------------------------
    def adjoint(self) -> str:
        """Return the code that propagates seeds back to the inputs."""
        dofs = range(self.nv)
        lines = [f"real a[{self.nv}]; real b[{self.nv}];", *(f"a[{i}] = out[{i}]; b[{i}] = seed[{i}];" for i in dofs)]
        lines += [self._contacts(), *self._row_tables(), f"bool pushes = false; if ({self._may_push()}) {{"]
        lines += [self._begin(free=False), self._gradient(), "if (ANY(pushed > (real)0)) {", "pushes = true;"]
        lines += [
            self._seed(),
            *filter(None, [self._cones.seed()]),
            self._factorise(),
            self._solve("b"),
            self._product("Ms", "s"),
        ]
        lines += [f"adj[{self._free + i}] += Ms[{i}];" for i in dofs]
        for k, (i, j) in enumerate(self._entries):
            both = f"s[{i}] * d[{j}] + s[{j}] * d[{i}]" if i != j else f"s[{i}] * d[{i}]"
            lines += [f"adj[{k}] -= {both};"]
        lines += [self._pull_back_contacts(), self._rows.pull_back(), self._cones.pull_back(), "}", "}"]
        lines += ["if (!pushes) {", *(f"adj[{self._free + i}] += b[{i}];" for i in dofs), "}"]
        return "\n".join(lines)

    def _seed(self) -> str:
        """Return code that adds the adjoints of the forces at the solution to the accelerations' adjoints."""
        return self._each_contact(
            f"const real* f = seed + {self.nv} + 3 * at[i];",
            self._cone(("yn[0]", "yn[1]", "yn[2]")),
            *(f"const real h{row} = {stiffness_times(row, 'f[{}]')};" for row in range(3)),
            "for (int k = 0; k < n; ++k) b[dofs[k]] -= Jn[k] * h0 + Jn[by + k] * h1 + Jn[2 * by + k] * h2;",
        )

    def _pull_back_contacts(self) -> str:
        """Return code that propagates the adjoints to the inputs of contacts and to the link motions.

        The adjoint of the rows is F lambda + q omega, with omega = a + b v: two forces at the point, F and q along the
        rows, that do work on the motions lambda and omega.
        """
        moved = " ".join(f"lm{part} += column[{part}] * s[j]; om{part} += column[{part}] * omega;" for part in range(6))
        declared = " ".join(f"real lm{part} = (real)0; real om{part} = (real)0;" for part in range(6))
        work = " + ".join(f"column[{part}] * q[{part}]" for part in range(6))
        return self._each_contact(
            f"const real b_ = in[{self._damping}]; {declared}",
            "for (int k = 0; k < n; ++k) {",
            f"const int j = dofs[k]; const real* column = in + {self._columns} + 6 * j;",
            f"const real omega = a[j] + b_ * in[{self._velocity} + j]; {moved}",
            "}",
            "real f[6]; real q[6]; for (int part = 0; part < 3; ++part) { f[part] = (real)0; q[part] = (real)0; }",
            self._pull_back_contact(),
            "for (int k = 0; k < n; ++k) {",
            f"const int j = dofs[k]; const real* column = in + {self._columns} + 6 * j;",
            f"const real rate = in[{self._velocity} + j]; const real omega = a[j] + b_ * rate;",
            f"real* back = adj + {self._columns} + 6 * j;",
            "for (int part = 0; part < 6; ++part) back[part] += f[part] * s[j] + q[part] * omega;",
            f"const real work = {work};",
            f"adj[{self._velocity} + j] += b_ * work; adj[{self._damping}] += rate * work;",
            "}",
        )

    def _pull_back_contact(self) -> str:
        place = f"{self._first_point} + {PER_POINT} * at[i]"
        lines = [f"const real* c = in + {place}; real* ca = adj + {place};"]
        lines += [f"const real* sf = seed + {self.nv} + 3 * at[i]; {second_tangent()}"]
        lines += [self._cone(("yn[0]", "yn[1]", "yn[2]"))]
        lines += [friction_slope_source(self.structure.cone, self.structure.impratio)]
        lines += [_rows_times("s", "w", rest=False)]
        lines += [f"const real z{row} = w{row} + sf[{row}];" for row in range(3)]
        lines += [f"const real q{row} = -({stiffness_times(row, 'z{}')});" for row in range(3)]
        for name, amounts in (("f", FORCES), ("q", ("q0", "q1", "q2"))):
            for i in range(3):
                along = f"{amounts[0]} * c[{3 + i}] + {amounts[1]} * c[{6 + i}] + {amounts[2]} * t{i}"
                lines += [f"const real {name}w{i} = {along}; {name}[{3 + i}] = {name}w{i};"]
            lines += [f"{name}[{i}] += c[{j}] * {name}w{k} - c[{k}] * {name}w{j};" for i, j, k in TWICE]
        for x in "lo":
            lines += [f"const real {x}v{i} = {x}m{3 + i} + {x}m{j} * c[{k}] - {x}m{k} * c[{j}];" for i, j, k in TWICE]
        for i, j, k in TWICE:
            lines += [f"ca[{i}] += fw{j} * lm{k} - fw{k} * lm{j} + qw{j} * om{k} - qw{k} * om{j};"]
            lines += [f"const real ta{i} = F2 * lv{i} + q2 * ov{i};"]
        for i, j, k in TWICE:
            lines += [f"ca[{3 + i}] += F0 * lv{i} + q0 * ov{i} + c[{6 + j}] * ta{k} - c[{6 + k}] * ta{j};"]
            lines += [f"ca[{6 + i}] += F1 * lv{i} + q1 * ov{i} + ta{j} * c[{3 + k}] - ta{k} * c[{3 + j}];"]
        lines += ["ca[10] += SELECT(D > (real)0, (z0 * F0 + z1 * F1 + z2 * F2) / D, (real)0); ca[11] += q0;"]
        lines += ["ca[12] += z0 * P0 + z1 * P1 + z2 * P2;"]
        return "\n".join(lines)


def _rows_times(x: str, name: str, *, rest: bool) -> str:
    """Return code that declares `name`0 to 2: J x of a contact, plus its residual at rest if `rest`."""
    declared = " ".join(f"real {name}{row} = {f'en[{row}]' if rest else '(real)0'};" for row in range(3))
    added = " ".join(f"{name}{row} += Jn[{f'{row} * by + ' if row else ''}k] * xk;" for row in range(3))
    return f"{declared} for (int k = 0; k < n; ++k) {{ const real xk = {x}[dofs[k]]; {added} }}"


def _along() -> str:
    """Return code that adds a contact's slope and curvature along a step dy."""
    curvature = " + ".join(f"dy{row} * ({stiffness_times(row, 'dy{}')})" for row in range(3))
    return f"slope -= F0 * dy0 + F1 * dy1 + F2 * dy2; bend += {curvature};"
