# SPDX-License-Identifier: Apache-2.0
"""Texts of a recurrence and of its adjoint: a traced step with the loop over time around it.

What depends on parameters alone is computed once, before the loop. The adjoint gathers the gradients by those values
over the loop, and takes them back to the parameters after it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from neurodyn.rigid.trace.expression import Expression, Graph, Scalar
from neurodyn.rigid.trace.reverse import pull_back
from neurodyn.rigid.trace.text import live_nodes, statements


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

FORWARD_ARRAYS = ("x", "u", "h", "p", "w")
"""Arrays of the forward kernel: path, control, held, parameters, weights."""

ADJOINT_ARRAYS = (*FORWARD_ARRAYS, "gx", "gx0", "gu", "gh", "gp", "gw")
"""Arrays of the adjoint: besides those, seeds of the path, and gradients by first state, u, h, p and w."""

NUMBERS = ("frames", "substeps", "p_stride")
"""Numbers that come before the arrays in a kernel's table."""

_ELEMENTS = {"x": "x_[{}]", "u": "u_[{}]", "h": "h_[{}]", "p": "p_[{}]", "a": "a[{}]", "f": "gf_[{}]"}

_FORWARD = """
const real* weights = w; (void)weights;
const real* p_ = p + (long long)world * p_stride; (void)p_;
{before}
real* path = x + (long long)world * (frames * substeps + 1) * {nx};
real s[{nx_}];
for (int i = 0; i < {nx}; ++i) s[i] = path[i];
for (int frame = 0; frame < frames; ++frame) {{
const real* u_ = u + ((long long)world * frames + frame) * {nu}; (void)u_;
const real* h_ = h + ((long long)world * frames + frame) * {nh}; (void)h_;
for (int substep = 0; substep < substeps; ++substep) {{
const real* x_ = s; (void)x_;
{body}
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


def recurrence_texts(sizes: Sizes, step: Step) -> tuple[str, str]:
    """Return the texts of the forward loop and of its adjoint, without what `head` writes.

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
    # The new state replaces the old one only when all of it is computed.
    forward = _around(graph, [(f"path[{sizes.state} + {i}] =", x) for i, x in enumerate(after)])

    by = [*inputs.state, *inputs.control, *inputs.held, *frontier]
    gradients = pull_back(after, graph.inputs("a", sizes.state), by)
    lefts = [f"a[{i}] =" for i in range(sizes.state)]
    for name, count in (("gu_", sizes.control), ("gh_", sizes.held), ("gf_", len(frontier))):
        lefts += [f"{name}[{i}] +=" for i in range(count)]
    zero = graph.constant(0.0).index
    pairs = zip(lefts, gradients, strict=True)
    changes = [(left, gradient) for left, gradient in pairs if gradient.index != zero or left.endswith(" =")]
    before, body, known = _around(graph, changes, effects=True)
    ends = pull_back(frontier, graph.inputs("f", len(frontier)), inputs.parameters)
    target = f"gp[(long long)world * {sizes.parameters} + {{}}] ="
    last = statements(graph, [(target.format(i), x) for i, x in enumerate(ends)], _ELEMENTS, known)
    return (
        _FORWARD.format(before=forward[0], body=forward[1], **numbers),
        _ADJOINT.format(before=before, body=body, after=last, **numbers),
    )


def _around(
    graph: Graph, assignments: Sequence[tuple[str, Scalar]], *, effects: bool = False
) -> tuple[str, str, frozenset[int]]:
    """Return the texts before and inside of a loop for what is assigned in it, and the nodes of the former."""
    frontier = _frontier(graph, [value for _, value in assignments])
    before = statements(graph, [("(void)", x) for x in frontier], _ELEMENTS)
    known = frozenset(live_nodes(graph, [x.index for x in frontier]))
    return before, statements(graph, assignments, _ELEMENTS, known, effects=effects), known


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
