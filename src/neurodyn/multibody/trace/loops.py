# SPDX-License-Identifier: Apache-2.0
"""Nodes that are loops: native text with several inputs and outputs and an adjoint written by hand.

A solver of many sweeps, or a network of thousands of weights, would fill pages if it were unrolled into scalars.
It is one node instead. Where a graph is differentiated, the adjoint of a loop is one node more.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from neurodyn.multibody.trace.expression import Expression, Graph, Scalar


@dataclass(frozen=True)
class Loop:
    """A native loop.

    In the texts `in` and `out` are arrays of the loop's inputs and outputs, and `saved` an array that the forward text
    may fill for the adjoint. The adjoint text sees all of these, `seed` (adjoints of the outputs) and `adj` (adjoints
    of the inputs, zero at first, to be added to). Weights are read from the array `weight` and their gradients added to
    `weight_adj`.

    A `real` is a number of the working precision, or one for each of several worlds in the lanes of a vector, and a
    `mask` what a comparison of two gives. So the texts branch on values in these forms alone:

    * `SELECT(mask, a, b)` is a where the mask holds, else b; both are computed.
    * `if (ANY(mask))`, `if (ALL(mask))`: whether it holds in any, or in all, of the lanes. What such a block assigns
      must be right in lanes in which the mask does not hold.
    * Masks combine by `&`, `|` and `NOT(mask)`, never by `&&`, `||` and `!`.

    A `number` is one number of the working precision in either case: weights are numbers, all else is `real`. The
    gradients by weights are `Sums`: `weight_adj + i` is one again, and `weight_adj[i] += x` adds to it.

    Attributes:
        name: What it is, for messages.
        inputs: Number of inputs.
        outputs: Number of outputs.
        saved: Length of `saved`.
        forward: Text that fills `out` and `saved`.
        adjoint: Text that fills `adj`.
        weights: Number of weights it reads.
        first_weight: Where they begin in the program's weights.
        fixed: Number of inputs, the last ones, to which no derivative goes.
        onnx: Adds the same as nodes of an ONNX graph (`onnx_nodes`): from the inputs side by side, by name, to the
            first outputs side by side and their number; None where there is no such form.
    """

    name: str
    inputs: int
    outputs: int
    saved: int
    forward: str
    adjoint: str
    weights: int = 0
    first_weight: int = 0
    fixed: int = 0
    onnx: Callable[[Any, str], tuple[str, int]] | None = field(default=None, compare=False)


def apply_loop(graph: Graph, loop: Loop, inputs: Sequence[Scalar]) -> list[Expression]:
    """Return the outputs of a loop at these inputs."""
    if len(inputs) != loop.inputs:
        raise ValueError(f"loop {loop.name!r} takes {loop.inputs} inputs, not {len(inputs)}")
    node = graph.node("loop", loop, *(graph.lift(x).index for x in inputs))
    return [Expression(graph, graph.node("result", node, number)) for number in range(loop.outputs)]


def pull_back_loop(graph: Graph, index: int, seeds: dict[int, Expression]) -> list[tuple[int, Expression]]:
    """Return the contributions of a loop's outputs' adjoints to its inputs, as results of one more node."""
    _, loop, *inputs = graph.nodes[index]
    zero = graph.constant(0.0)
    given = [seeds.get(number, zero).index for number in range(loop.outputs)]
    node = graph.node("reverse", loop, index, *given)
    moving = inputs[: len(inputs) - loop.fixed]
    return [(x, Expression(graph, graph.node("result", node, number))) for number, x in enumerate(moving)]
