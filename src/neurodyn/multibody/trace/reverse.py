# SPDX-License-Identifier: Apache-2.0
"""Reverse-mode differentiation of a graph: adjoints as further nodes of the same graph."""

from collections.abc import Sequence

from neurodyn.multibody.trace.expression import (
    TINY,
    Expression,
    Graph,
    Scalar,
    cos,
    maximum,
    pull_back_loop,
    select_less,
    sin,
)


def pull_back(outputs: Sequence[Scalar], seeds: Sequence[Scalar], inputs: Sequence[Expression]) -> list[Expression]:
    """Return the gradient of sum_i seeds_i outputs_i with respect to each input, with the seeds held fixed.

    The inputs are nodes of one graph and treated as independent: dependencies between them are not followed. As a side
    effect, the created nodes accumulate the gradients of the weights of loops.

    Raises:
        ValueError: An output depends on the derivative of a loop, which cannot be differentiated again.
    """
    if not inputs:
        return []
    graph = inputs[0].graph
    adjoint: dict[int, Expression] = {}
    for output, seed in zip(outputs, seeds, strict=True):
        if isinstance(output, Expression):
            _add(adjoint, output.index, graph.lift(seed))
    wanted = {x.index for x in inputs}
    depends = _dependents(graph, wanted, max(adjoint, default=-1))
    results: dict[int, dict[int, Expression]] = {}
    for index in range(max(adjoint, default=-1), -1, -1):
        if index not in depends:
            continue
        kind = graph.nodes[index][0]
        if kind == "loop":
            if index in results:
                for argument, value in pull_back_loop(graph, index, results[index]):
                    _add(adjoint, argument, value)
            continue
        if index not in adjoint or index in wanted:
            continue
        if kind == "result":
            loop, number = graph.nodes[index][1:]
            if graph.nodes[loop][0] == "reverse":
                name = graph.nodes[loop][1].name
                raise ValueError(f"an output depends on the derivative of loop {name!r}, which has none itself")
            results.setdefault(loop, {})[number] = adjoint[index]
        else:
            for argument, value in _local(graph, index, adjoint[index]):
                if argument in depends:
                    _add(adjoint, argument, value)
    zero = graph.constant(0.0)
    return [adjoint.get(x.index, zero) for x in inputs]


def _add(adjoint: dict[int, Expression], index: int, value: Expression) -> None:
    adjoint[index] = adjoint[index] + value if index in adjoint else value


def _dependents(graph: Graph, wanted: set[int], last: int) -> set[int]:
    """Return the nodes up to `last` that depend on a wanted node, wanted nodes included."""
    dependents = set(wanted)
    for index in range(last + 1):
        kind = graph.nodes[index][0]
        learns = kind == "loop" and graph.nodes[index][1].weights
        if learns or any(argument in dependents for argument in graph.arguments(index)):
            dependents.add(index)
    return dependents


def _local(graph: Graph, index: int, seed: Expression) -> list[tuple[int, Expression]]:
    """Return the contributions of a node's adjoint to its arguments."""
    name, *indices = graph.nodes[index]
    if name in {"constant", "input"}:
        return []
    arguments = [Expression(graph, i) for i in indices]
    result = Expression(graph, index)
    return [
        (i, value)
        for i, value in zip(indices, _RULES[name](seed, result, *arguments), strict=True)
        if value is not None
    ]


def _atan2(seed: Expression, _: Expression, y: Expression, x: Expression) -> list[Expression | None]:
    scale = seed / maximum(x * x + y * y, TINY)
    return [scale * x, -(scale * y)]


def _divide(seed: Expression, result: Expression, a: Expression, b: Expression) -> list[Expression | None]:
    if a.graph.nodes[a.index] == ("constant", 1.0):
        return [None, -(seed * result * result)]  # avoids a second division
    scale = seed / b
    return [scale, -(scale * result)]


def _less(seed: Expression, _: Expression, a: Expression, b: Expression, *__: Expression) -> list[Expression | None]:
    return [None, None, select_less(a, b, seed, 0.0), select_less(a, b, 0.0, seed)]


_RULES = {
    "add": lambda s, r, a, b: [s, s],
    "sub": lambda s, r, a, b: [s, -s],
    "mul": lambda s, r, a, b: [s * b, s * a],
    "div": _divide,
    "neg": lambda s, r, a: [-s],
    "sqrt": lambda s, r, a: [s * 0.5 / r],
    "sin": lambda s, r, a: [s * cos(a)],
    "cos": lambda s, r, a: [-(s * sin(a))],
    "exp": lambda s, r, a: [s * r],
    "log": lambda s, r, a: [s / a],
    "tanh": lambda s, r, a: [s * (1.0 - r * r)],
    "atan2": _atan2,
    "min": lambda s, r, a, b: [select_less(b, a, 0.0, s), select_less(b, a, s, 0.0)],
    "max": lambda s, r, a, b: [select_less(a, b, 0.0, s), select_less(a, b, s, 0.0)],
    "less": _less,
}
