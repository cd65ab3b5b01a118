# SPDX-License-Identifier: Apache-2.0
"""Texts of a recurrence and of its adjoint: a traced step with the loop over time around it.

What depends on parameters alone is computed once, before the loop. The adjoint gathers the gradients by those values
over the loop, and takes them back to the parameters after it. It computes a step anew from its state before it goes
back through it, but for what takes long: sines, quotients and their like are read from a tape that the forward loop
wrote.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from neurodyn.multibody.trace.expression import Expression, Graph, Scalar
from neurodyn.multibody.trace.reverse import pull_back
from neurodyn.multibody.trace.text import live_nodes, statements


@dataclass(frozen=True)
class Sizes:
    """Lengths of the arrays of a program.

    Attributes:
        state: Length of the state x.
        control: Length of the control u, one for each frame.
        held: Length of what is held over a frame, h.
        parameters: Length of p.
        weights: Length of w, which all worlds share.
    """

    state: int
    control: int = 0
    held: int = 0
    parameters: int = 0
    weights: int = 0


@dataclass(frozen=True)
class Inputs:
    """Expressions that a traced step is given; lists as long as `Sizes` says."""

    graph: Graph
    state: list[Expression]
    control: list[Expression]
    held: list[Expression]
    parameters: list[Expression]


Step = Callable[[Inputs], list[Scalar]]
"""A step: from inputs to the next state."""

FORWARD_ROWS = ("x0", "u", "h", "p", "x")
"""Arrays of the forward kernel by world: first state, control, held, parameters, path."""

FORWARD_PLAIN = ("w", "t")
"""Other arrays of it: weights, tape (address 0 for none)."""

ADJOINT_ROWS = ("u", "h", "p", "gx", "gx0", "gu", "gh", "gp")
"""Arrays of the adjoint by world: control, held, parameters; seeds of the path; gradients by x0, u, h and p."""

ADJOINT_PLAIN = ("w", "t", "gw")
"""Other arrays of it: weights, tape, gradients by weights."""

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
real* weights_adj = (real*)gw + (long long)(block / group) * {nw}; (void)weights_adj;
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


@dataclass(frozen=True)
class Texts:
    """Texts of the forward loop and of its adjoint, and how many values a step puts on the tape, its state first."""

    forward: str
    adjoint: str
    taped: int


def recurrence_texts(sizes: Sizes, step: Step) -> Texts:
    """Return the texts of a traced step.

    Raises:
        ValueError: The step returns another number of values than the state has.
    """
    graph = Graph()
    inputs = Inputs(
        graph,
        graph.inputs("x", sizes.state),
        graph.inputs("u", sizes.control),
        graph.inputs("h", sizes.held),
        graph.inputs("p", sizes.parameters),
    )
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
    taped = {index: sizes.state + i for i, index in enumerate(_taped(graph, after, [value for _, value in changes]))}
    lengths["nk"] = sizes.state + len(taped)
    numbers = {**lengths, **{f"{name}_": max(length, 1) for name, length in lengths.items()}, "nw": sizes.weights}
    # The new state replaces the old one only when all of it is computed.
    assigned = [(f"after[{i}] =", x) for i, x in enumerate(after)]
    before, body, _ = _around(graph, assigned, _FORWARD_ELEMENTS, keep=taped)
    forward = _FORWARD.format(before=before, body=body, **numbers)
    reading = "\n".join(f"const real v{index} = KEPT({place});" for index, place in taped.items())
    before, body, known = _around(graph, changes, _ADJOINT_ELEMENTS, taped, effects=True)
    ends = pull_back(frontier, graph.inputs("f", len(frontier)), inputs.parameters)
    last = statements(graph, [(f"gp_[{i}] =", x) for i, x in enumerate(ends)], _ADJOINT_ELEMENTS, known)
    adjoint = _ADJOINT.format(before=before, body=f"{reading}\n{body}", after=last, **numbers)
    return Texts(forward, adjoint, lengths["nk"])


def _around(
    graph: Graph,
    assignments: Sequence[tuple[str, Scalar]],
    arrays: Mapping[str, str],
    given: Collection[int] = (),
    *,
    keep: Mapping[int, int] | None = None,
    effects: bool = False,
) -> tuple[str, str, frozenset[int]]:
    """Return the texts before and inside of a loop for what is assigned in it, and the nodes of the former.

    Nodes that are `given` come from elsewhere; those to `keep` go to these places of the tape.
    """
    frontier = _frontier(graph, [value for _, value in assignments])
    before = statements(graph, [("(void)", x) for x in frontier], arrays)
    known = frozenset(live_nodes(graph, [x.index for x in frontier]))
    after = {index: f"KEEP({place}, v{index});" for index, place in (keep or {}).items()}
    body = statements(graph, assignments, arrays, known | set(given), effects=effects, after=after)
    return before, body, known


def _taped(graph: Graph, step: Sequence[Scalar], adjoint: Sequence[Scalar]) -> list[int]:
    """Return the nodes of a step that take long and that its adjoint needs as well."""
    still = live_nodes(graph, [x.index for x in _frontier(graph, [*step, *adjoint])])
    forward = live_nodes(graph, [graph.lift(x).index for x in step], still)
    slow = {i for i in forward if graph.nodes[i][0] in _TAPED and i not in still}
    # Down from the adjoint, past what is on the tape already: only what is still needed then is taped.
    needed = live_nodes(graph, [graph.lift(x).index for x in adjoint], slow | set(still))
    return [i for i in needed if i in slow]


def _frontier(graph: Graph, outputs: Sequence[Scalar]) -> list[Expression]:
    """Return the values that depend on parameters alone and that others, or the outputs, are computed from."""
    still: set[int] = set()
    for index, (kind, *rest) in enumerate(graph.nodes):
        arguments = graph.arguments(index)
        constant = all(i in still or graph.nodes[i][0] == "constant" for i in arguments)
        if (kind == "input" and rest[0] == "p") or (arguments and constant and kind not in {"loop", "reverse"}):
            still.add(index)
    roots = [graph.lift(x).index for x in outputs]
    users = [i for i in live_nodes(graph, roots) if i not in still]
    used = {i for user in users for i in graph.arguments(user)} | set(roots)
    return [Expression(graph, i) for i in sorted(used & still)]
