# SPDX-License-Identifier: Apache-2.0
"""Generated code for a recurrence and its adjoint: a traced step inside the loop over time.

Values that depend only on parameters are computed once, before the loop. The adjoint accumulates the gradients with
respect to these values over the loop, and propagates them to the parameters after it. It recomputes each step from its
state before going back through it. Expensive operations (sines, quotients and the like) are read from a tape that the
forward loop wrote.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from neurodyn.multibody.trace.expression import Expression, Graph, Scalar
from neurodyn.multibody.trace.reverse import pull_back
from neurodyn.multibody.trace.source import live_nodes, statements


@dataclass(frozen=True)
class ProgramInputs:
    """Expressions passed to a traced step, in lists of the lengths in `ProgramSizes`."""

    graph: Graph
    state: list[Expression]
    control: list[Expression]
    held: list[Expression]
    parameters: list[Expression]


@dataclass(frozen=True)
class ProgramSizes:
    """Lengths of the arrays of a program."""

    state: int  # x
    control: int = 0  # u, one per frame
    held: int = 0  # h, inputs held over a frame
    parameters: int = 0  # p
    weights: int = 0  # w, shared by all worlds

    def inputs(self, graph: Graph) -> ProgramInputs:
        """Return inputs of a graph with these lengths."""
        arrays = {"x": self.state, "u": self.control, "h": self.held, "p": self.parameters}
        return ProgramInputs(graph, *(graph.inputs(array, count) for array, count in arrays.items()))


Step = Callable[[ProgramInputs], list[Scalar]]
"""A step: returns the next state from its inputs."""


@dataclass(frozen=True)
class ConstantFrame:
    """A frame of a step whose held inputs and parameters are numbers, for export to other languages.

    Attributes:
        sizes: Lengths of its arrays.
        step: The step.
        substeps: Steps in the frame.
        held: Held inputs.
        parameters: Parameters.
    """

    sizes: ProgramSizes
    step: Step
    substeps: int
    held: tuple[float, ...] = ()
    parameters: tuple[float, ...] = ()

    def trace(self, graph: Graph) -> list[int]:
        """Trace the step, from elements of the inputs x and u, and return the nodes of the state after it."""
        inputs = ProgramInputs(
            graph, graph.inputs("x", self.sizes.state), graph.inputs("u", self.sizes.control),
            [graph.constant(x) for x in self.held], [graph.constant(x) for x in self.parameters],
        )  # fmt: skip
        return [graph.lift(x).index for x in self.step(inputs)]


FORWARD_ROWS = ("x0", "u", "h", "p", "x")
"""Arrays of the forward kernel by world: first state, control, held, parameters, path."""

FORWARD_PLAIN = ("w", "t")
"""Its other arrays: weights, tape (address 0 for none)."""

ADJOINT_ROWS = ("u", "h", "p", "gx", "gx0", "gu", "gh", "gp")
"""Arrays of the adjoint by world: control, held, parameters; seeds of the path; gradients by x0, u, h and p."""

ADJOINT_PLAIN = ("w", "t", "gw")
"""Its other arrays: weights, tape, gradients by weights."""

SEEDED_ROWS = ("u", "h", "p", "gx", "gx0", "gu")
"""Arrays of the seeded adjoint by world: control, held, parameters; and by seed: seeds, gradients by x0 and u."""

SEEDED_PLAIN = ("w", "t", "gw", "parts")
"""Its other arrays: weights, tape, (unused) sums of weight gradients, and scratch memory for the adjoints of a world's
seeds. It covers one frame; its number of frames is the number of worlds side by side on the tape."""

_TAPED = {"sin", "cos", "exp", "log", "tanh", "atan2", "sqrt", "div"}
_ELEMENTS = {"u": "u_[{}]", "h": "h_[{}]", "p": "p_.get({})", "a": "a[{}]", "f": "gf_[{}]"}
_FORWARD_ELEMENTS = {**_ELEMENTS, "x": "s[{}]"}
_ADJOINT_ELEMENTS = {**_ELEMENTS, "x": "KEPT({})"}

_FORWARD = """
const number* weights = w; (void)weights;
real none[{nk_}]; (void)none;
for (int block = begin; block < end; ++block) {{
FUSE
const Rows p_ = ROWS(p); (void)p_;
{before}
Rows path = ROWS(x); Rows control = ROWS(u); Rows held = ROWS(h);
real* tape = TAPE_OF(t, {nk}); (void)tape;
const long long onward = t ? (long long){nk} * STRIDE : 0; (void)onward;
real s[{nx_}]; real after[{nx_}]; real u_[{nu_}]; real h_[{nh_}]; (void)u_; (void)h_;
{{ const Rows first = ROWS(x0); for (int i = 0; i < {nx}; ++i) {{ s[i] = first.get(i); path.put(i, s[i]); }} }}
for (int frame = 0; frame < frames; ++frame) {{
for (int i = 0; i < {nu}; ++i) u_[i] = control.get(i);
for (int i = 0; i < {nh}; ++i) h_[i] = held.get(i);
control.step(u_frame); held.step(h_frame); path.step(x_frame);
for (int substep = 0; substep < substeps; ++substep) {{
for (int i = 0; i < {nx}; ++i) {{ KEEP(i, s[i]); }}
{body}
tape += onward;
for (int i = 0; i < {nx}; ++i) s[i] = after[i];
}}
for (int i = 0; i < {nx}; ++i) path.put(i, s[i]);
}}
}}
"""

_ADJOINT = """
const number* weights = w; (void)weights;
real none[1]; (void)none;
for (int block = begin; block < end; ++block) {{
FUSE
const Rows p_ = ROWS(p); (void)p_;
const Sums weights_adj = SUMS(gw, (long long)(block / group) * {nw}); (void)weights_adj;
{before}
const mask live = LIVE(worlds - block * LANES);
Rows given = ROWS(gx); Rows control = ROWS(u); Rows held = ROWS(h); Rows by_control = ROWS(gu); Rows by_held = ROWS(gh);
given.step(frames * gx_frame); control.step(frames * u_frame); held.step(frames * h_frame);
by_control.step(frames * gu_frame); by_held.step(frames * gh_frame);
real* tape = TAPE_OF(t, {nk}) + (long long)frames * substeps * {nk} * STRIDE;
real a[{nx_}]; real gf_[{nf_}]; real u_[{nu_}]; real h_[{nh_}]; real gu_[{nu_}]; real gh_[{nh_}]; real gp_[{np_}];
(void)gf_; (void)u_; (void)h_; (void)gp_;
for (int i = 0; i < {nf}; ++i) gf_[i] = 0;
for (int i = 0; i < {nx}; ++i) a[i] = SELECT(live, given.get(i), (real)0);
for (int frame = 0; frame < frames; ++frame) {{
given.step(-gx_frame); control.step(-u_frame); held.step(-h_frame);
by_control.step(-gu_frame); by_held.step(-gh_frame);
for (int i = 0; i < {nu}; ++i) {{ u_[i] = control.get(i); gu_[i] = 0; }}
for (int i = 0; i < {nh}; ++i) {{ h_[i] = held.get(i); gh_[i] = 0; }}
for (int substep = 0; substep < substeps; ++substep) {{
tape -= (long long){nk} * STRIDE;
{body}
}}
for (int i = 0; i < {nu}; ++i) by_control.put(i, gu_[i]);
for (int i = 0; i < {nh}; ++i) by_held.put(i, gh_[i]);
for (int i = 0; i < {nx}; ++i) a[i] += SELECT(live, given.get(i), (real)0);
}}
{{ const Rows by_first = ROWS(gx0); for (int i = 0; i < {nx}; ++i) by_first.put(i, a[i]); }}
{after}
{{ const Rows by_parameters = ROWS(gp); for (int i = 0; i < {np}; ++i) by_parameters.put(i, gp_[i]); }}
}}
"""


_SEEDED_ELEMENTS = {"u": "u_[{}]", "h": "h_[{}]", "p": "p_[{}]", "x": "tape[{} * wide]", "a": "a[{}]", "b": "b[{}]"}

_SEEDED = """
const number* weights = w; (void)weights;
number kept[{nq_}];
real slopes[{nr_} * {ns_parts_}]; (void)slopes;
const int parts_of = (group + LANES - 1) / LANES, wide = frames;
for (int world = begin; world < end; ++world) {{
FUSE
const number* p_ = p + (long long)world * p_world; (void)p_;
const number* u_ = u + (long long)world * u_world; (void)u_;
const number* h_ = h + (long long)world * h_world; (void)h_;
const Sums weights_adj = SUMS(gw, 0); (void)weights_adj;
real* rows = (real*)parts + (long long)world * parts_of * {nr};
for (int part = 0; part < parts_of; ++part) {{
const Rows given = Rows::of(gx, gx_world, (long long)world * group, part, group);
real* a = rows + part * {nr};
for (int i = 0; i < {nx}; ++i) a[i] = given.get(i);
for (int i = {nx}; i < {nr}; ++i) a[i] = 0;
}}
{before}
const number* tape = (const number*)t + (long long)(world / wide + 1) * substeps * {nk} * wide + world % wide;
for (int substep = 0; substep < substeps; ++substep) {{
tape -= {nk} * wide;
{alike}
for (int part = 0; part < {ns_parts}; ++part) {{
const number* same = kept; (void)same;
OPAQUE(same)
real b[{ns_}]; (void)b;
for (int i = 0; i < {ns}; ++i) b[i] = SELECT(LANE_IS(i - part * LANES), (real)1, (real)0);
real* found = slopes + part;
{slope}
}}
for (int part = 0; part < parts_of; ++part) {{
real* a = rows + part * {nr};
const number* same = kept; (void)same;
OPAQUE(same)
const number* by = (const number*)slopes; (void)by;
real past[{nr_}]; real inner[{ns_}]; (void)inner;
{direct}
for (int j = {nx}; j < {nr}; ++j) past[j] += a[j];
for (int j = 0; j < {nr}; ++j) {{
real even = past[j], odd = 0;
UNROLL
for (int i = 0; i < {ns} / 2; ++i) {{
even += (real)by[j * {ns_parts} * LANES + 2 * i] * inner[2 * i];
odd += (real)by[j * {ns_parts} * LANES + 2 * i + 1] * inner[2 * i + 1];
}}
if ({ns} % 2) odd += (real)by[j * {ns_parts} * LANES + {ns} - 1] * inner[{ns} - 1];
a[j] = even + odd;
}}
}}
}}
for (int part = 0; part < parts_of; ++part) {{
const real* a = rows + part * {nr};
const Rows by_first = Rows::of(gx0, gx0_world, (long long)world * group, part, group);
const Rows by_control = Rows::of(gu, gu_world, (long long)world * group, part, group);
for (int i = 0; i < {nx}; ++i) by_first.put(i, a[i]);
for (int i = 0; i < {nu}; ++i) by_control.put(i, a[{nx} + i]);
}}
}}
"""


@dataclass
class ProgramSource:
    """Code of the forward loop, of its adjoint, and of the adjoint with many seeds for the same states."""

    forward: str
    adjoint: str
    taped: int  # number of values that a step puts on the tape, its state first
    make_seeded: Callable[[], str]

    @cached_property
    def seeded(self) -> str:
        """Adjoint of one frame by state and control, with seeds instead of worlds in the lanes; slow to generate."""
        return self.make_seeded()


def recurrence_source(sizes: ProgramSizes, step: Step) -> ProgramSource:
    """Return the code of a traced step.

    Raises:
        ValueError: The step returns more or fewer values than the state has.
    """
    graph = Graph()
    inputs = sizes.inputs(graph)
    after = step(inputs)
    if len(after) != sizes.state:
        raise ValueError(f"the step returns {len(after)} values; valid: the {sizes.state} of the state")
    frontier = _frontier(graph, after)
    lengths = {
        "nx": sizes.state, "nu": sizes.control, "nh": sizes.held, "np": sizes.parameters, "nf": len(frontier),
    }  # fmt: skip
    by = [*inputs.state, *inputs.control, *inputs.held, *frontier]
    gradients = pull_back(after, graph.inputs("a", sizes.state), by)
    lefts = [f"a[{i}] =" for i in range(sizes.state)]
    for name, count in (("gu_", sizes.control), ("gh_", sizes.held), ("gf_", len(frontier))):
        lefts += [f"{name}[{i}] +=" for i in range(count)]
    zero = graph.constant(0.0).index
    pairs = zip(lefts, gradients, strict=True)
    changes = [(left, gradient) for left, gradient in pairs if gradient.index != zero or left.endswith(" =")]
    taped = {index: sizes.state + i for i, index in enumerate(_tape(graph, after, [value for _, value in changes]))}
    lengths["nk"] = sizes.state + len(taped)
    numbers = {**lengths, **{f"{name}_": max(length, 1) for name, length in lengths.items()}, "nw": sizes.weights}
    # The new state replaces the old one after all of it is computed.
    assigned = [(f"after[{i}] =", x) for i, x in enumerate(after)]
    whole = _in_a_row(graph, taped)
    single = {i: place for i, place in taped.items() if graph.nodes[i][0] != "result" or graph.nodes[i][1] not in whole}
    writing = {index: f"KEEP({place}, v{index});" for index, place in single.items()}
    writing |= {i: f"for (int i = 0; i < {n}; ++i) KEEP({at} + i, out_{i}[i]);" for i, (at, n) in whole.items()}
    before, body, _ = _around(graph, assigned, _FORWARD_ELEMENTS, after=writing)
    forward = _FORWARD.format(before=before, body=body, **numbers)
    kept = {i: f"for (int i = 0; i < {n}; ++i) out_{i}[i] = KEPT({at} + i);" for i, (at, n) in whole.items()}
    held = kept.keys() - {node[2] for node in graph.nodes if node[0] == "reverse"}  # those without a reverse pass
    reading = "\n".join(
        [f"const real v{index} = KEPT({place});" for index, place in single.items()]
        + [f"real out_{i}[{max(graph.nodes[i][1].outputs, 1)}]; {kept[i]}" for i in sorted(held)]
    )
    before, body, known = _around(graph, changes, _ADJOINT_ELEMENTS, {*single, *held}, effects=True, kept=kept)
    by_parameters = pull_back(frontier, graph.inputs("f", len(frontier)), inputs.parameters)
    last = statements(graph, [(f"gp_[{i}] =", x) for i, x in enumerate(by_parameters)], _ADJOINT_ELEMENTS, known)
    adjoint = _ADJOINT.format(before=before, body=f"{reading}\n{body}", after=last, **numbers)
    return ProgramSource(forward, adjoint, lengths["nk"], lambda: _seeded_source(inputs, after, taped, numbers))


def _seeded_source(
    inputs: ProgramInputs, after: Sequence[Scalar], taped: Mapping[int, int], numbers: Mapping[str, int]
) -> str:
    r"""Return the adjoint with seeds in the lanes: everything independent of the seeds is computed once for all.

    If the other outputs (positions) depend on the step only through some outputs s (velocities) and the inputs, only s
    is differentiated from the start of the step, $S = \partial s/\partial(x, u)$. The derivatives of all outputs are
    $a^T \partial x'/\partial (x, u) = d + S^T \lambda$ with gradients d and $\lambda$ by inputs and s as independent.
    """
    graph = inputs.graph
    by = [*inputs.state, *inputs.control]
    inner = _inner(graph, after)
    count = len(inner)
    slopes = pull_back(inner, graph.inputs("b", count), by)
    past = pull_back(after, graph.inputs("a", len(after)), [*by, *inner])
    one = [(f"found[{j} * {{ns_parts}}] =", x) for j, x in enumerate(slopes)]
    two = [(f"past[{j}] =", x) for j, x in enumerate(past[: len(by)])]
    two += [(f"inner[{i}] =", x) for i, x in enumerate(past[len(by) :])]
    roots = [graph.lift(x).index for _, x in [*one, *two]]
    live = live_nodes(graph, roots, taped)
    seeded: set[int] = set()
    for i in live:
        kind, *rest = graph.nodes[i]
        seed = kind == "reverse" or (kind == "input" and rest[0] in ("a", "b"))
        if i not in taped and (seed or not seeded.isdisjoint(graph.arguments(i))):
            seeded.add(i)
    used = {j for i in seeded for j in graph.arguments(i)} | set(roots)
    same = sorted(i for i in used - seeded if graph.nodes[i][0] not in {"constant", "loop"})
    places = {index: place for place, index in enumerate(same)}
    loops = sorted(i for i in live if i not in seeded and graph.nodes[i][0] == "loop")
    keep = [(f"kept[{place}] =", Expression(graph, i)) for i, place in places.items()]
    frontier = _frontier(graph, [x for _, x in keep] + [Expression(graph, i) for i in loops])
    before = statements(graph, [("(void)", x) for x in frontier], _SEEDED_ELEMENTS, single=True)
    known = set(live_nodes(graph, [x.index for x in frontier]))
    reading = [f"const number v{index} = tape[{place} * wide];" for index, place in taped.items() if index in live]
    alike = statements(graph, keep, _SEEDED_ELEMENTS, known | set(taped), single=True, also=loops)
    given = {*same, *loops, *taped, *known}
    texts = []
    for wanted in (one, two):
        needed = set(live_nodes(graph, [graph.lift(x).index for _, x in wanted], given))
        loaded = [f"const real v{index} = same[{place}];" for index, place in places.items() if index in needed]
        texts.append("\n".join([*loaded, statements(graph, wanted, _SEEDED_ELEMENTS, given)]))
    parts = f"(({count} + LANES - 1) / LANES)"
    return _SEEDED.format(
        before=before, alike="\n".join([*reading, alike]), slope=texts[0].replace("{ns_parts}", parts),
        direct=texts[1], nq_=max(len(same), 1), nr=len(by), nr_=max(len(by), 1), ns=count, ns_=max(count, 1),
        ns_parts=parts, ns_parts_=f"{parts} + 1", **numbers,
    )  # fmt: skip


def _inner(graph: Graph, after: Sequence[Scalar]) -> list[Expression]:
    """Return the outputs that determine the other outputs, if little else is needed for those; otherwise all."""
    outputs = sorted({x.index for x in map(graph.lift, after) if graph.nodes[x.index][0] not in {"constant", "input"}})
    needed = {j: set(live_nodes(graph, [j])) for j in outputs}
    inner = [i for i in outputs if any(i in needed[j] for j in outputs if j != i)]
    rest = live_nodes(graph, outputs, inner)
    if not inner or len(rest) > len(live_nodes(graph, outputs)) / 4:
        inner = outputs
    return [Expression(graph, i) for i in inner]


def _around(
    graph: Graph,
    assignments: Sequence[tuple[str, Scalar]],
    arrays: Mapping[str, str],
    given: Collection[int] = (),
    *,
    after: Mapping[int, str] | None = None,
    effects: bool = False,
    kept: Mapping[int, str] | None = None,
) -> tuple[str, str, frozenset[int]]:
    """Return the code before and inside a loop that assigns values, and the nodes computed before it.

    `given` nodes are computed elsewhere, `after` holds code to follow the declarations of nodes, and `kept` loops need
    not run.
    """
    frontier = _frontier(graph, [value for _, value in assignments])
    before = statements(graph, [("(void)", x) for x in frontier], arrays)
    known = frozenset(live_nodes(graph, [x.index for x in frontier]))
    body = statements(graph, assignments, arrays, known | set(given), effects=effects, after=after, kept=kept)
    return before, body, known


def _tape(graph: Graph, step: Sequence[Scalar], adjoint: Sequence[Scalar]) -> list[int]:
    """Return the expensive nodes of a step that its adjoint also needs."""
    still = live_nodes(graph, [x.index for x in _frontier(graph, [*step, *adjoint])])
    forward = live_nodes(graph, [graph.lift(x).index for x in step], still)
    slow = {i for i in forward if graph.nodes[i][0] in _TAPED and i not in still}
    # Walk down from the adjoint and stop at taped values: only nodes still needed then are taped.
    roots = [graph.lift(x).index for x in adjoint]
    present = set(forward)
    needed = live_nodes(graph, roots, slow | set(still))
    ends = [x for i, inputs in _sufficient(graph, present).items() if i in needed for x in inputs]
    needed = live_nodes(graph, roots, slow | set(still) | set(ends))
    return sorted({*(i for i in needed if i in slow), *ends})


def _in_a_row(graph: Graph, taped: Mapping[int, int]) -> dict[int, tuple[int, int]]:
    """Return the loops whose leading outputs are contiguous on the tape, with the first position and their number."""
    runs = {}
    for index, results in _sufficient(graph, taped).items():
        first = taped[results[0]]
        if [taped[x] for x in results] == list(range(first, first + len(results))):
            runs[index] = first, len(results)
    return runs


def _sufficient(graph: Graph, among: Collection[int]) -> dict[int, list[int]]:
    """Return the loops whose adjoints need only their leading outputs, if these are all among the given nodes."""
    sufficient: dict[int, list[int]] = {}
    for index, (kind, *rest) in enumerate(list(graph.nodes)):
        if kind == "loop" and rest[0].sufficient:
            results = [graph.node("result", index, number) for number in range(rest[0].sufficient)]
            if all(x in among for x in results):
                sufficient[index] = results
    return sufficient


def _frontier(graph: Graph, outputs: Sequence[Scalar]) -> list[Expression]:
    """Return the values that depend only on parameters and that other nodes, or the outputs, depend on directly."""
    still: set[int] = set()
    fixed: set[int] = set()  # values that depend only on parameters, and constants
    for index, (kind, *rest) in enumerate(graph.nodes):
        if kind == "input":
            at_frontier = rest[0] == "p"
        else:
            at_frontier = kind not in {"constant", "loop", "reverse"} and fixed.issuperset(graph.arguments(index))
        if at_frontier:
            still.add(index)
        if at_frontier or kind == "constant":
            fixed.add(index)
    roots = [graph.lift(x).index for x in outputs]
    users = [i for i in live_nodes(graph, roots) if i not in still]
    used = {i for user in users for i in graph.arguments(user)} | set(roots)
    return [Expression(graph, i) for i in sorted(used & still)]
