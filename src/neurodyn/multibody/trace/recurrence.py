# SPDX-License-Identifier: Apache-2.0
"""Texts of a recurrence and of its adjoint: a traced step with the loop over time around it.

What depends on parameters alone is computed once, before the loop. The adjoint gathers the gradients by those values
over the loop, and takes them back to the parameters after it. It computes a step anew from its state before it goes
back through it, but for what takes long: sines, quotients and their like are read from a tape that the forward loop
wrote.
"""

from collections.abc import Callable, Sequence
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

FORWARD_ARRAYS = ("x", "u", "h", "p", "w", "t", "x0")
"""Arrays of the forward kernel: path, control, held, parameters, weights, tape (address 0 for none), first state."""

ADJOINT_ARRAYS = ("x", "u", "h", "p", "w", "t", "gx", "gx0", "gu", "gh", "gp", "gw")
"""Arrays of the adjoint: besides path to tape, seeds of the path, and gradients by first state, u, h, p and w."""

NUMBERS = ("frames", "substeps", "p_stride")
"""Numbers that come before the arrays in a kernel's table."""

_TAPED = {"sin", "cos", "exp", "log", "tanh", "atan2", "sqrt", "div"}
_ELEMENTS = {"x": "x_[{}]", "u": "u_[{}]", "h": "h_[{}]", "p": "p_[{}]", "a": "a[{}]", "f": "gf_[{}]"}

_FORWARD = """
const real* weights = w; (void)weights;
const real* p_ = p + (long long)world * p_stride; (void)p_;
{before}
real* path = x + (long long)world * (frames * substeps + 1) * {nx};
real* tape = t ? t + (long long)world * frames * substeps * {nt} : t;
real s[{nx_}];
for (int i = 0; i < {nx}; ++i) s[i] = path[i] = x0[(long long)world * {nx} + i];
for (int frame = 0; frame < frames; ++frame) {{
const real* u_ = u + ((long long)world * frames + frame) * {nu}; (void)u_;
const real* h_ = h + ((long long)world * frames + frame) * {nh}; (void)h_;
for (int substep = 0; substep < substeps; ++substep) {{
const real* x_ = s; (void)x_;
{body}
if (tape) {{
{taping}
tape += {nt};
}}
path += {nx};
for (int i = 0; i < {nx}; ++i) s[i] = path[i];
}}
}}
"""

_ADJOINT = """
const real* weights = w; (void)weights;
const real* p_ = p + (long long)world * p_stride; (void)p_;
real* weights_adj = gw + (long long)world * {nw}; (void)weights_adj;
{before}
const real* path = x + ((long long)world * (frames * substeps + 1) + frames * substeps) * {nx};
const real* tape = t + ((long long)world * frames * substeps + frames * substeps) * {nt};
const real* given = gx + ((long long)world * (frames + 1) + frames) * {nx};
real a[{nx_}];
real gf_[{nf_}];
for (int i = 0; i < {nf}; ++i) gf_[i] = 0;
for (int i = 0; i < {nx}; ++i) a[i] = given[i];
for (int frame = frames - 1; frame >= 0; --frame) {{
const real* u_ = u + ((long long)world * frames + frame) * {nu}; (void)u_;
const real* h_ = h + ((long long)world * frames + frame) * {nh}; (void)h_;
real gu_[{nu_}];
real gh_[{nh_}];
for (int i = 0; i < {nu}; ++i) gu_[i] = 0;
for (int i = 0; i < {nh}; ++i) gh_[i] = 0;
for (int substep = 0; substep < substeps; ++substep) {{
path -= {nx};
tape -= {nt};
const real* x_ = path; (void)x_;
{body}
}}
for (int i = 0; i < {nu}; ++i) gu[((long long)world * frames + frame) * {nu} + i] = gu_[i];
for (int i = 0; i < {nh}; ++i) gh[((long long)world * frames + frame) * {nh} + i] = gh_[i];
given -= {nx};
for (int i = 0; i < {nx}; ++i) a[i] += given[i];
}}
for (int i = 0; i < {nx}; ++i) gx0[(long long)world * {nx} + i] = a[i];
{after}
"""


@dataclass(frozen=True)
class Texts:
    """Texts of the forward loop and of its adjoint, and how many values a step puts on the tape."""

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
    lengths = {"nx": sizes.state, "nu": sizes.control, "nh": sizes.held, "nf": len(frontier)}
    numbers = {**lengths, **{f"{name}_": max(length, 1) for name, length in lengths.items()}, "nw": sizes.weights}
    by = [*inputs.state, *inputs.control, *inputs.held, *frontier]
    gradients = pull_back(after, graph.inputs("a", sizes.state), by)
    lefts = [f"a[{i}] =" for i in range(sizes.state)]
    for name, count in (("gu_", sizes.control), ("gh_", sizes.held), ("gf_", len(frontier))):
        lefts += [f"{name}[{i}] +=" for i in range(count)]
    zero = graph.constant(0.0).index
    pairs = zip(lefts, gradients, strict=True)
    changes = [(left, gradient) for left, gradient in pairs if gradient.index != zero or left.endswith(" =")]
    taped = _taped(graph, after, [value for _, value in changes])
    numbers["nt"] = len(taped)
    # The new state replaces the old one only when all of it is computed.
    forward = _around(graph, [(f"path[{sizes.state} + {i}] =", x) for i, x in enumerate(after)])
    taping = "\n".join(f"tape[{i}] = v{index};" for i, index in enumerate(taped))
    reading = "\n".join(f"const real v{index} = tape[{i}];" for i, index in enumerate(taped))
    before, body, known = _around(graph, changes, taped, effects=True)
    ends = pull_back(frontier, graph.inputs("f", len(frontier)), inputs.parameters)
    target = f"gp[(long long)world * {sizes.parameters} + {{}}] ="
    last = statements(graph, [(target.format(i), x) for i, x in enumerate(ends)], _ELEMENTS, known)
    return Texts(
        _FORWARD.format(before=forward[0], body=forward[1], taping=taping, **numbers),
        _ADJOINT.format(before=before, body=f"{reading}\n{body}", after=last, **numbers),
        len(taped),
    )


def _around(
    graph: Graph, assignments: Sequence[tuple[str, Scalar]], given: Sequence[int] = (), *, effects: bool = False
) -> tuple[str, str, frozenset[int]]:
    """Return the texts before and inside of a loop for what is assigned in it, and the nodes of the former.

    Nodes that are `given` come from elsewhere.
    """
    frontier = _frontier(graph, [value for _, value in assignments])
    before = statements(graph, [("(void)", x) for x in frontier], _ELEMENTS)
    known = frozenset(live_nodes(graph, [x.index for x in frontier]))
    return before, statements(graph, assignments, _ELEMENTS, known | set(given), effects=effects), known


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
