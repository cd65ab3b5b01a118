# SPDX-License-Identifier: Apache-2.0
r"""The native loop that solves MuJoCo's convex problem of soft constraints, and its implicit adjoint.

In the accelerations a of a mechanism (MuJoCo's documentation, "Computation: primal problem"):

$$a = \arg\min \tfrac{1}{2} |a - a_s|^2_M + s(J a - a_{ref})$$

with the acceleration $a_s$ without constraints, and s the cost of contacts (`friction_cone`), joint limits
$\tfrac{D}{2} \min(0, y)^2$ and joint friction (Huber's function with slope at most the friction). The minimum is unique.
Newton's method with a line search finds it: $H = M + J^T W J$, $H \delta = -g$. A contact's row touches only the joints
that carry its link, so H has the zeros of M and is factored from the leaves, $H = L^T D L$, without fill-in. Costs are
quadratic but for switches: a step along which nothing switches ends in the minimum, and the loop with it.

The adjoint is that of the minimum (implicit function theorem), with one solve: for the seed $\bar a$,
$H \lambda = \bar a$, and every input θ gets $-\lambda^T \partial g/\partial \theta$. What is active is held: at a switch
the derivative is one-sided.

Where no row pushes, neither direction costs more than finding that out.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from neurodyn.core.soft_constraints import Cone
from neurodyn.multibody.friction_cone import FORCE, STIFFNESS, cone_text, friction_slope_text
from neurodyn.multibody.trace import Loop

PER_POINT = 13
"""Inputs of a contact point: place, normal and first tangent (3 each), depth, D, k d r, friction."""

PER_LIMIT = 4
"""Inputs of a limit: depth, side (1: lower), D, residual without the acceleration."""

PER_FRICTION = 3
"""Inputs of a joint's friction: D, residual without the acceleration, greatest friction."""

_ITERATIONS = 30
_SEARCHES = 12
_FLAT = 1e-3  # slope at the end of a line search, as a share of that at its start

_DIRECTIONS = (("c[3]", "c[4]", "c[5]"), ("c[6]", "c[7]", "c[8]"), ("t0", "t1", "t2"))
"""Normal and tangents of a contact in the texts."""


@dataclass(frozen=True)
class Group:
    """The contact points of a link.

    Attributes:
        chain: Velocity coordinates that move the link, ascending.
        points: Their number; points of groups follow each other.
    """

    chain: tuple[int, ...]
    points: int


@dataclass(frozen=True)
class Structure:
    """Structure of a problem.

    Attributes:
        chains: For each velocity coordinate those that carry it, itself last: where the mass matrix may not be zero.
        columns: For each velocity coordinate the six numbers of its motion (angular, linear); None where they are inputs.
        groups: Contact points by link.
        limits: Velocity coordinates that have limits.
        frictions: Velocity coordinates that have friction.
        cone: Friction cone.
        impratio: Ratio of the impedances of friction and normal force.
    """

    chains: tuple[tuple[int, ...], ...]
    columns: tuple[tuple[float | None, ...], ...]
    groups: tuple[Group, ...]
    limits: tuple[int, ...]
    frictions: tuple[int, ...]
    cone: Cone = "pyramidal"
    impratio: float = 1.0


def constraint_loop(structure: Structure) -> Loop:
    """Return the loop of a problem.

    Its inputs are the entries of M by rows as `chains` has them; a_s; the velocities; the entries of `columns` that are
    None; b of the contacts; and what `PER_POINT`, `PER_LIMIT` and `PER_FRICTION` say. Its outputs are the accelerations,
    and the force of each contact along its normal and two tangents.
    """
    writer = _Writer(structure)
    return Loop(
        name="soft constraints", inputs=writer.inputs, outputs=writer.nv + 3 * writer.points, saved=0,
        forward=writer.forward(), adjoint=writer.adjoint(),
    )  # fmt: skip


class _Writer:
    """The texts of a problem.

    The rows of a group's points that touch are J{g}, one after the other, with their residuals at rest e{g}, and
    D{g} (zero in the lanes of worlds where they do not touch), R{g} = 1/D, mu{g}.
    """

    def __init__(self, structure: Structure) -> None:
        self.structure = structure
        self.nv = len(structure.chains)
        self.points = sum(group.points for group in structure.groups)
        self._entries = [(i, j) for i, chain in enumerate(structure.chains) for j in chain]
        self._entry = {pair: k for k, pair in enumerate(self._entries)}
        self._smooth = len(self._entries)
        self._velocity = self._smooth + self.nv
        place = self._velocity + self.nv
        self._column: dict[tuple[int, int], int] = {}
        for dof, column in enumerate(structure.columns):
            for part, value in enumerate(column):
                if value is None:
                    self._column[dof, part] = place
                    place += 1
        self._damping = place
        self._first_point = place + 1
        self._first_limit = self._first_point + PER_POINT * self.points
        self._first_friction = self._first_limit + PER_LIMIT * len(structure.limits)
        self.inputs = self._first_friction + PER_FRICTION * len(structure.frictions)

    # --- forward -----------------------------------------------------------------------------------------------
    def forward(self) -> str:
        """Return the text that solves the problem."""
        dofs = range(self.nv)
        lines = [f"real a{i} = {self._free(i)};" for i in dofs]
        lines += [f"for (int i = 0; i < {3 * self.points}; ++i) out[{self.nv} + i] = (real)0;"]
        lines += [self._rows(), f"if ({self._may_push()}) {{"]
        lines += ["real live = (real)1; real scale = (real)0;"]
        lines += ["const real least = (real)(sizeof(number) == 8 ? 1e-20 : 1e-12);"]
        lines += [f"for (int iteration = 0; iteration < {_ITERATIONS}; ++iteration) {{"]
        lines += [self._gradient()]
        lines += ["if (iteration == 0) if (!ANY(pushed > (real)0)) break;"]
        lines += [self._factored(), self._solved("s", "-g")]
        slope = _sum(f"g{i} * s{i}" for i in dofs)
        lines += [f"const real fall = -({slope});"]
        lines += [self._product("Ms", "s"), f"const real curved = {_sum(f's{i} * Ms{i}' for i in dofs)};"]
        lines += [f"const real sloped = {_sum(f'm{i} * s{i}' for i in dofs)};"]
        lines += ["scale = SELECT(scale > fall, scale, fall);"]
        lines += [self._first_try()]
        lines += ["mask searching = (live > (real)0) & (missed > least * scale);"]
        lines += ["const real moving = live; live = SELECT(searching, live, (real)0);"]
        lines += [self._line_search()]
        lines += ["const real step = SELECT(moving > (real)0, reach, (real)0);"]
        lines += [f"a{i} += step * s{i};" for i in dofs]
        lines += ["if (!ANY(live > (real)0)) break;", "}", self._forces(), "}"]
        lines += [f"out[{i}] = a{i};" for i in dofs]
        return "\n".join(lines)

    def _free(self, i: int) -> str:
        return f"in[{self._smooth + i}]"

    def _v(self, i: int) -> str:
        return f"in[{self._velocity + i}]"

    def _col(self, dof: int, part: int) -> str | float:
        """Return an entry of a column: a number, or the text of an input."""
        value = self.structure.columns[dof][part]
        return f"in[{self._column[dof, part]}]" if value is None else value

    def _limit(self, number: int, what: int) -> str:
        return f"in[{self._first_limit + PER_LIMIT * number + what}]"

    def _friction(self, number: int, what: int) -> str:
        return f"in[{self._first_friction + PER_FRICTION * number + what}]"

    def _groups(self) -> Iterable[tuple[int, Group, int]]:
        """Return number, group and first input of the points of each group."""
        first = self._first_point
        for number, group in enumerate(self.structure.groups):
            yield number, group, first
            first += PER_POINT * group.points

    def _rows(self) -> str:
        """Return the text that finds the points that touch, and their rows."""
        lines = []
        for g, group, first in self._groups():
            n = len(group.chain)
            lines += [f"real J{g}[{3 * n * group.points}]; real e{g}[{3 * group.points}]; int at{g}[{group.points}];"]
            lines += [f"real D{g}[{group.points}]; real y{g}[{6 * group.points}]; int count{g} = 0;"]
            lines += [f"for (int point = 0; point < {group.points}; ++point) {{"]
            lines += [f"const real* c = in + {first} + {PER_POINT} * point; const mask touches = c[9] > (real)0;"]
            lines += ["if (ANY(touches)) {", f"real* Jn = J{g} + {3 * n} * count{g}; real* en = e{g} + 3 * count{g};"]
            lines += [_second_tangent("c")]
            for k, dof in enumerate(group.chain):
                lines += [f"{{ {self._velocity_of(dof)}"]
                lines += [
                    f"Jn[{row * n + k}] = {x} * px + {y} * py + {z} * pz;" for row, (x, y, z) in enumerate(_DIRECTIONS)
                ]
                lines += ["}"]
            for row in range(3):
                speed = _sum(f"Jn[{row * n + k}] * {self._v(dof)}" for k, dof in enumerate(group.chain))
                lines += [f"en[{row}] = in[{self._damping}] * ({speed}){' + c[11]' if row == 0 else ''};"]
            lines += [f"D{g}[count{g}] = SELECT(touches, c[10], (real)0); at{g}[count{g}++] = point;", "}", "}"]
        return "\n".join(lines)

    def _velocity_of(self, dof: int) -> str:
        """Return text that declares px, py, pz: the velocity of a point at c[0..2] per unit of a coordinate."""
        names = ("px", "py", "pz")
        text = ""
        for axis, name in enumerate(names):
            i, j = (axis + 1) % 3, (axis + 2) % 3
            terms = [(self._col(dof, 3 + axis), "")]
            terms += [(self._col(dof, i), f"c[{j}]"), (_minus(self._col(dof, j)), f"c[{i}]")]
            text += f"const real {name} = {_linear(terms)}; "
        return text

    def _may_push(self) -> str:
        """Return the condition that a row may push at all."""
        counts = " + ".join(f"count{g}" for g, *_ in self._groups())
        masks = [f"({self._limit(k, 0)} > (real)0)" for k in range(len(self.structure.limits))]
        masks += [f"({self._friction(k, 2)} > (real)0)" for k in range(len(self.structure.frictions))]
        parts = [f"{counts} > 0"] if counts else []
        return " || ".join([*parts, *([f"ANY({' | '.join(masks)})"] if masks else [])]) or "false"

    def _each_point(self, body: str, g: int) -> str:
        n = len(self.structure.groups[g].chain)
        first = next(first for number, _, first in self._groups() if number == g)
        return (
            f"for (int n = 0; n < count{g}; ++n) {{ const real* Jn = J{g} + {3 * n} * n; const real* en = e{g} + 3 * n;"
            f" real* yn = y{g} + 6 * n; const real D = D{g}[n];"
            f" const real mu = in[{first} + {PER_POINT} * at{g}[n] + 12]; (void)Jn; (void)en; (void)yn;\n{body}\n}}"
        )

    def _residual(self, chain: Sequence[int], x: str, names: Sequence[str], *, rest: bool) -> str:
        """Return text that declares J x, with the residual at rest added where `rest`."""
        n = len(chain)
        return " ".join(
            f"const real {name} = {f'en[{row}] + ' if rest else ''}"
            f"{_sum(f'Jn[{row * n + k}] * {x}{dof}' for k, dof in enumerate(chain))};"
            for row, name in enumerate(names)
        )

    def _cone(self, y: tuple[str, str, str], *, stiffness: bool = True) -> str:
        return cone_text(self.structure.cone, self.structure.impratio, y, stiffness=stiffness)

    def _gradient(self) -> str:
        """Return text that declares H, the gradient g, M (a - a_s) as m, and the size of what pushes."""
        dofs = range(self.nv)
        lines = ["real pushed = (real)0;"]
        lines += [f"real d{i} = a{i} - {self._free(i)};" for i in dofs]
        lines += [self._product("m", "d")]
        lines += [f"real g{i} = m{i};" for i in dofs]
        lines += [f"real {self._h(i, j)} = in[{k}];" for k, (i, j) in enumerate(self._entries)]
        for g, group, _ in self._groups():
            n = len(group.chain)
            body = [self._residual(group.chain, "a", ("yn0", "yn1", "yn2"), rest=True)]
            body += [self._cone(("yn0", "yn1", "yn2"))]
            body += ["yn[0] = yn0; yn[1] = yn1; yn[2] = yn2; pushed += F0;"]
            body += [
                f"g{dof} -= Jn[{k}] * F0 + Jn[{n + k}] * F1 + Jn[{2 * n + k}] * F2;"
                for k, dof in enumerate(group.chain)
            ]
            for k, i in enumerate(group.chain):
                body += [
                    f"{{ const real u0 = {_row_of_stiffness(0, k, n)}; const real u1 = {_row_of_stiffness(1, k, n)};"
                    f" const real u2 = {_row_of_stiffness(2, k, n)};"
                ]
                body += [
                    f"{self._h(i, j)} += Jn[{m}] * u0 + Jn[{n + m}] * u1 + Jn[{2 * n + m}] * u2;"
                    for m, j in enumerate(group.chain[: k + 1])
                ]
                body += ["}"]
            lines += [self._each_point("\n".join(body), g)]
        for k, dof in enumerate(self.structure.limits):
            lines += [self._limit_cost(k, "r", f"a{dof}"), f"pushed += r{k}_F;"]
            lines += [f"g{dof} -= {self._limit(k, 1)} * r{k}_F; {self._h(dof, dof)} += r{k}_W;"]
        for k, dof in enumerate(self.structure.frictions):
            lines += [self._friction_cost(k, "h", f"a{dof}"), f"pushed += h{k}_F * h{k}_F;"]
            lines += [f"g{dof} -= h{k}_F; {self._h(dof, dof)} += h{k}_W;"]
        return "\n".join(lines)

    def _limit_cost(self, k: int, name: str, a: str) -> str:
        """Return text that declares a limit's force and stiffness at an acceleration."""
        return (
            f"const real {name}{k} = {self._limit(k, 1)} * ({a}) + {self._limit(k, 3)};"
            f" const real {name}{k}_W = SELECT(({self._limit(k, 0)} > (real)0) & ({name}{k} < (real)0),"
            f" {self._limit(k, 2)}, (real)0); const real {name}{k}_F = -{name}{k}_W * {name}{k};"
        )

    def _friction_cost(self, k: int, name: str, a: str) -> str:
        """Return text that declares the force and stiffness of a joint's friction at an acceleration."""
        weight, rest, most = (self._friction(k, what) for what in range(3))
        return (
            f"const real {name}{k} = {a} + {rest}; const real {name}{k}_q = -{weight} * {name}{k};"
            f" const mask {name}{k}_under = {name}{k}_q < -{most}; const mask {name}{k}_over = {name}{k}_q > {most};"
            f" const real {name}{k}_F = SELECT({name}{k}_under, -{most}, SELECT({name}{k}_over, {most}, {name}{k}_q));"
            f" const real {name}{k}_W = SELECT({name}{k}_under | {name}{k}_over, (real)0, {weight});"
        )

    def _h(self, i: int, j: int) -> str:
        return f"H{i}_{j}"

    def _product(self, name: str, x: str) -> str:
        """Return text that declares M x."""
        terms: list[list[str]] = [[] for _ in range(self.nv)]
        for k, (i, j) in enumerate(self._entries):
            terms[i].append(f"in[{k}] * {x}{j}")
            if i != j:
                terms[j].append(f"in[{k}] * {x}{i}")
        return "\n".join(f"const real {name}{i} = {_sum(own)};" for i, own in enumerate(terms))

    def _factored(self) -> str:
        """Return text that turns H into its factors: L beside the diagonal, 1 / D on it."""
        lines = []
        for k in range(self.nv - 1, -1, -1):
            others = self.structure.chains[k][:-1]
            lines.append(f"{self._h(k, k)} = (real)1 / {self._h(k, k)};")
            for i in reversed(others):
                lines.append(f"{{ const real l = {self._h(k, i)} * {self._h(k, k)};")
                lines += [f"{self._h(i, j)} -= l * {self._h(k, j)};" for j in self.structure.chains[i]]
                lines.append(f"{self._h(k, i)} = l; }}")
        return "\n".join(lines)

    def _solved(self, name: str, right: str) -> str:
        """Return text that declares the solution of H x = right with the factors of H."""
        lines = [f"real {name}{i} = {right}{i};" for i in range(self.nv)]
        for k in range(self.nv - 1, -1, -1):
            lines += [f"{name}{i} -= {self._h(k, i)} * {name}{k};" for i in self.structure.chains[k][:-1]]
        lines += [f"{name}{i} *= {self._h(i, i)};" for i in range(self.nv)]
        for k in range(self.nv):
            lines += [f"{name}{k} -= {self._h(k, i)} * {name}{i};" for i in self.structure.chains[k][:-1]]
        return "\n".join(lines)

    def _first_try(self) -> str:
        """Return text that goes the whole step: slope and curvature there, and how far it is from a minimum.

        That is measured by what the forces miss of their linear change along the step, squared and weighed by 1/D, so
        that it bounds the fall that is left.
        """
        lines = ["real missed = (real)0; real slope = sloped + curved; real steep = curved;"]
        for g, group, _ in self._groups():
            body = [self._residual(group.chain, "s", ("dy0", "dy1", "dy2"), rest=False)]
            body += ["yn[3] = dy0; yn[4] = dy1; yn[5] = dy2; real l0; real l1; real l2;"]
            body += ["{", self._cone(("yn[0]", "yn[1]", "yn[2]"))]
            body += [f"l{row} = {FORCE[row]} - ({_stiffness_times(row, 'dy')});" for row in range(3)]
            body += ["}", self._cone(("(yn[0] + dy0)", "(yn[1] + dy1)", "(yn[2] + dy2)"))]
            body += ["l0 -= F0; l1 -= F1; l2 -= F2;"]
            body += ["missed += SELECT(D > (real)0, (l0 * l0 + l1 * l1 + l2 * l2) / D, (real)0);"]
            body += [_along()]
            lines += [self._each_point("\n".join(body), g)]
        for k, dof in enumerate(self.structure.limits):
            lines += [f"{{ {self._limit_cost(k, 'x', f'a{dof} + s{dof}')}"]
            lines += [f"const real dy = {self._limit(k, 1)} * s{dof}; const real l = r{k}_F - r{k}_W * dy - x{k}_F;"]
            lines += [f"missed += l * l / {self._limit(k, 2)}; slope -= x{k}_F * dy; steep += x{k}_W * dy * dy; }}"]
        for k, dof in enumerate(self.structure.frictions):
            lines += [f"{{ {self._friction_cost(k, 'x', f'(a{dof} + s{dof})')}"]
            lines += [f"const real l = h{k}_F - h{k}_W * s{dof} - x{k}_F; missed += l * l / {self._friction(k, 0)};"]
            lines += [f"slope -= x{k}_F * s{dof}; steep += x{k}_W * s{dof} * s{dof}; }}"]
        return "\n".join(lines)

    def _line_search(self) -> str:
        """Return text that finds the length of the step, `reach`: 1 where nothing is to be searched."""
        lines = ["real low = (real)0; real high = (real)-1; real reach = (real)1;"]
        lines += [f"for (int search = 0; search < {_SEARCHES}; ++search) {{"]
        lines += [f"searching = searching & ((slope < -(real){_FLAT} * fall) | (slope > (real){_FLAT} * fall));"]
        lines += ["if (!ANY(searching)) break;"]
        lines += ["low = SELECT(slope < (real)0, reach, low); high = SELECT(slope < (real)0, high, reach);"]
        lines += ["real next = reach - slope / steep;"]
        lines += ["const mask outside = (high > (real)0) & ((next <= low) | (next >= high));"]
        lines += ["next = SELECT(outside, (real)0.5 * (low + high), next); reach = SELECT(searching, next, reach);"]
        lines += ["slope = sloped + reach * curved; steep = curved;"]
        for g, _, _ in self._groups():
            body = ["const real dy0 = yn[3]; const real dy1 = yn[4]; const real dy2 = yn[5];"]
            body += [self._cone(("(yn[0] + reach * dy0)", "(yn[1] + reach * dy1)", "(yn[2] + reach * dy2)")), _along()]
            lines += [self._each_point("\n".join(body), g)]
        for k, dof in enumerate(self.structure.limits):
            lines += [f"{{ {self._limit_cost(k, 'x', f'a{dof} + reach * s{dof}')}"]
            lines += [f"const real dy = {self._limit(k, 1)} * s{dof};"]
            lines += [f"slope -= x{k}_F * dy; steep += x{k}_W * dy * dy; }}"]
        for k, dof in enumerate(self.structure.frictions):
            lines += [f"{{ {self._friction_cost(k, 'x', f'(a{dof} + reach * s{dof})')}"]
            lines += [f"slope -= x{k}_F * s{dof}; steep += x{k}_W * s{dof} * s{dof}; }}"]
        return "\n".join([*lines, "}"])

    def _forces(self) -> str:
        """Return text that writes the contact forces."""
        lines, first = [], self.nv
        for g, group, _ in self._groups():
            body = [self._residual(group.chain, "a", ("yn0", "yn1", "yn2"), rest=True)]
            body += [self._cone(("yn0", "yn1", "yn2"), stiffness=False)]
            body += [f"real* f = out + {first} + 3 * at{g}[n]; f[0] = F0; f[1] = F1; f[2] = F2;"]
            lines += [self._each_point("\n".join(body), g)]
            first += 3 * group.points
        return "\n".join(lines)

    # --- adjoint -----------------------------------------------------------------------------------------------
    def adjoint(self) -> str:
        """Return the text that takes seeds back to the inputs."""
        dofs = range(self.nv)
        lines = [f"const real a{i} = out[{i}]; real b{i} = seed[{i}];" for i in dofs]
        lines += [self._rows(), "bool pushes = false;", f"if ({self._may_push()}) {{"]
        lines += [self._gradient(), "if (ANY(pushed > (real)0)) {", "pushes = true;"]
        lines += [self._seeded(), self._factored(), self._solved("s", "b"), self._product("Ms", "s")]
        lines += [f"adj[{self._smooth + i}] += Ms{i};" for i in dofs]
        for k, (i, j) in enumerate(self._entries):
            both = f"s{i} * d{j} + s{j} * d{i}" if i != j else f"s{i} * d{i}"
            lines += [f"adj[{k}] -= {both};"]
        lines += [self._points_pulled(), self._joints_pulled(), "}", "}"]
        lines += ["if (!pushes) {", *(f"adj[{self._smooth + i}] += b{i};" for i in dofs), "}"]
        return "\n".join(lines)

    def _seed(self, g: int, first: int) -> str:
        return f"const real* f = seed + {first} + 3 * at{g}[n];"

    def _seeded(self) -> str:
        """Return text that adds to the accelerations' adjoints those of the forces at the solution."""
        lines, first = [], self.nv
        for g, group, _ in self._groups():
            n = len(group.chain)
            body = [self._seed(g, first), self._cone(("yn[0]", "yn[1]", "yn[2]"))]
            body += [f"const real h{row} = {_stiffness_times(row, 'f', index=True)};" for row in range(3)]
            body += [
                f"b{dof} -= Jn[{k}] * h0 + Jn[{n + k}] * h1 + Jn[{2 * n + k}] * h2;"
                for k, dof in enumerate(group.chain)
            ]
            lines += [self._each_point("\n".join(body), g)]
            first += 3 * group.points
        return "\n".join(lines)

    def _points_pulled(self) -> str:
        """Return text that takes the adjoints back to the inputs of contact points and to the columns.

        A row's adjoint is F lambda + q omega, with omega = a + b v: two forces at the point, F and q along the rows,
        that work on the motions lambda and omega.
        """
        lines, seeds = [], self.nv
        used = sorted({dof for group in self.structure.groups for dof in group.chain})
        damping = f"in[{self._damping}]"
        lines += [f"const real o{i} = a{i} + {damping} * {self._v(i)};" for i in used]
        for g, group, first in self._groups():
            lines += [f"if (count{g} > 0) {{"]
            for motion, rate in (("l", "s"), ("o", "o")):
                for part in range(6):
                    terms = [(self._col(dof, part), f"{rate}{dof}") for dof in group.chain]
                    lines += [f"const real {motion}m{part} = {_linear(terms)};"]
            lines += [
                "real f[6] = {}; real q[6] = {};".replace(
                    "{}", "{(real)0, (real)0, (real)0, (real)0, (real)0, (real)0}"
                )
            ]
            lines += [self._each_point(self._point_pulled(g, group, first, seeds), g)]
            for dof in group.chain:
                lines += [
                    f"adj[{self._column[dof, part]}] += f[{part}] * s{dof} + q[{part}] * o{dof};"
                    for part in range(6)
                    if (dof, part) in self._column
                ]
                work = _linear([(self._col(dof, part), f"q[{part}]") for part in range(6)])
                lines += [f"{{ const real work = {work};"]
                lines += [
                    f"adj[{self._velocity + dof}] += {damping} * work; adj[{self._damping}] += {self._v(dof)} * work; }}"
                ]
            lines += ["}"]
            seeds += 3 * group.points
        return "\n".join(lines)

    def _point_pulled(self, g: int, group: Group, first: int, seeds: int) -> str:
        lines = [
            f"const real* c = in + {first} + {PER_POINT} * at{g}[n]; real* ca = adj + {first} + {PER_POINT} * at{g}[n];"
        ]
        lines += [f"const real* sf = seed + {seeds} + 3 * at{g}[n];", _second_tangent("c")]
        lines += [self._cone(("yn[0]", "yn[1]", "yn[2]"))]
        lines += [friction_slope_text(self.structure.cone, self.structure.impratio)]
        lines += [self._residual(group.chain, "s", ("w0", "w1", "w2"), rest=False)]
        lines += [f"const real z{row} = w{row} + sf[{row}];" for row in range(3)]
        lines += [f"const real q{row} = -({_stiffness_times(row, 'z')});" for row in range(3)]
        for name, amounts in (("f", FORCE), ("q", ("q0", "q1", "q2"))):
            for axis in range(3):
                along = f"{amounts[0]} * c[{3 + axis}] + {amounts[1]} * c[{6 + axis}] + {amounts[2]} * t{axis}"
                lines += [f"const real {name}w{axis} = {along}; {name}[{3 + axis}] += {name}w{axis};"]
            for axis in range(3):
                i, j = (axis + 1) % 3, (axis + 2) % 3
                lines += [f"{name}[{axis}] += c[{i}] * {name}w{j} - c[{j}] * {name}w{i};"]
        for motion in "lo":
            for axis in range(3):
                i, j = (axis + 1) % 3, (axis + 2) % 3
                lines += [
                    f"const real {motion}v{axis} = {motion}m{3 + axis} + {motion}m{i} * c[{j}] - {motion}m{j} * c[{i}];"
                ]
        for axis in range(3):
            i, j = (axis + 1) % 3, (axis + 2) % 3
            lines += [f"ca[{axis}] += fw{i} * lm{j} - fw{j} * lm{i} + qw{i} * om{j} - qw{j} * om{i};"]
            lines += [f"const real ta{axis} = F2 * lv{axis} + q2 * ov{axis};"]
        for axis in range(3):
            i, j = (axis + 1) % 3, (axis + 2) % 3
            lines += [f"ca[{3 + axis}] += F0 * lv{axis} + q0 * ov{axis} + c[{6 + i}] * ta{j} - c[{6 + j}] * ta{i};"]
            lines += [f"ca[{6 + axis}] += F1 * lv{axis} + q1 * ov{axis} + ta{i} * c[{3 + j}] - ta{j} * c[{3 + i}];"]
        lines += ["ca[10] += SELECT(D > (real)0, (z0 * F0 + z1 * F1 + z2 * F2) / D, (real)0); ca[11] += q0;"]
        lines += ["ca[12] += z0 * P0 + z1 * P1 + z2 * P2;"]
        return "\n".join(lines)

    def _joints_pulled(self) -> str:
        """Return text that takes the adjoints back to the inputs of limits and joint friction."""
        lines = []
        for k, dof in enumerate(self.structure.limits):
            first = self._first_limit + PER_LIMIT * k
            lines += [f"{{ const real z = {self._limit(k, 1)} * s{dof};"]
            lines += [
                f"adj[{first + 2}] -= SELECT(r{k}_W > (real)0, z * r{k}, (real)0); adj[{first + 3}] -= z * r{k}_W; }}"
            ]
        for k, dof in enumerate(self.structure.frictions):
            first = self._first_friction + PER_FRICTION * k
            lines += [f"adj[{first}] -= SELECT(h{k}_under | h{k}_over, (real)0, s{dof} * h{k});"]
            lines += [f"adj[{first + 1}] -= s{dof} * h{k}_W;"]
            lines += [f"adj[{first + 2}] += SELECT(h{k}_under, -s{dof}, SELECT(h{k}_over, s{dof}, (real)0));"]
        return "\n".join(lines)


def _along() -> str:
    """Return text that adds to slope and curvature along a step dy those of a contact at its end."""
    curvature = " + ".join(f"dy{row} * ({_stiffness_times(row, 'dy')})" for row in range(3))
    return f"slope -= F0 * dy0 + F1 * dy1 + F2 * dy2; steep += {curvature};"


def _row_of_stiffness(row: int, k: int, n: int) -> str:
    return " + ".join(f"{STIFFNESS[row][other]} * Jn[{other * n + k}]" for other in range(3))


def _stiffness_times(row: int, x: str, *, index: bool = False) -> str:
    return " + ".join(f"{STIFFNESS[row][other]} * {f'{x}[{other}]' if index else f'{x}{other}'}" for other in range(3))


def _second_tangent(c: str) -> str:
    """Return text that declares the second tangent: normal x first tangent."""
    parts = []
    for axis in range(3):
        i, j = (axis + 1) % 3, (axis + 2) % 3
        parts.append(f"const real t{axis} = {c}[{3 + i}] * {c}[{6 + j}] - {c}[{3 + j}] * {c}[{6 + i}];")
    return " ".join(parts)


def _sum(terms: Iterable[str]) -> str:
    return " + ".join(terms) or "(real)0"


def _minus(x: str | float) -> str | float:
    return f"(-{x})" if isinstance(x, str) else -x


def _linear(terms: Iterable[tuple[str | float, str]]) -> str:
    """Return the text of a sum of products, of which those with zero are left out; an empty factor is 1."""
    parts = []
    for factor, x in terms:
        if isinstance(factor, str):
            parts.append(f"{factor} * {x}" if x else factor)
        elif factor == 1.0 and x:
            parts.append(x)
        elif factor != 0.0:
            literal = f"(real)({factor!r})"
            parts.append(f"{literal} * {x}" if x else literal)
    return _sum(parts)
