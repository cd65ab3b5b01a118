# SPDX-License-Identifier: Apache-2.0
"""One frame of a traced step as an ONNX graph: a node for each operation, in the loop over the steps of the frame."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from neurodyn.core.errors import InputError
from neurodyn.multibody.trace.expression import Graph
from neurodyn.multibody.trace.onnx_nodes import OnnxNodes
from neurodyn.multibody.trace.recurrence import Inputs, Sizes, Step
from neurodyn.multibody.trace.text import live_nodes

_OPERATORS = {
    "add": "Add", "sub": "Sub", "mul": "Mul", "div": "Div", "neg": "Neg", "sqrt": "Sqrt", "sin": "Sin", "cos": "Cos",
    "exp": "Exp", "log": "Log", "tanh": "Tanh", "min": "Min", "max": "Max",
}  # fmt: skip


def frame_graph(
    sizes: Sizes,
    step: Step,
    substeps: int,
    nq: int,
    *,
    held: Sequence[float] = (),
    parameters: Sequence[float] = (),
    dtype: np.dtype | type = np.float32,
) -> Any:
    """Return a graph from `q`, `qd` and `control` to `q_ahead` and `qd_ahead`, each of shape [worlds, width].

    Args:
        sizes: Lengths of the arrays of the step, whose state is [q, qd]; it has no weights.
        step: The step.
        substeps: Steps in the frame.
        nq: Number of positions.
        held: What is held over the frame, as numbers.
        parameters: The parameters, likewise.
        dtype: Precision of all numbers.

    Raises:
        InputError: A loop of the step has no nodes in ONNX.
        ValueError: The step has weights, or an operation that ONNX has no operator for.
    """
    if sizes.weights:
        raise ValueError("a step with weights has no ONNX graph")
    graph, nodes = Graph(), OnnxNodes(dtype, "ahead/")
    inputs = Inputs(
        graph, graph.inputs("x", sizes.state), graph.inputs("u", sizes.control),
        [graph.constant(x) for x in held], [graph.constant(x) for x in parameters],
    )  # fmt: skip
    after = [graph.lift(x).index for x in step(inputs)]
    controls = _split(nodes, "control", sizes.control)

    def once(inner: OnnxNodes, given: list[str]) -> list[str]:
        return [_Writer(inner, graph, _split(inner, given[0], sizes.state), controls).joined(after)]

    state = nodes.repeat(substeps, [nodes("Concat", "q", "qd", axis=1)], once)[0]
    widths = {"q": nq, "qd": sizes.state - nq, "control": sizes.control}
    q, qd = nodes.part(state, 0, nq), nodes.part(state, nq, sizes.state)
    return nodes.graph("ahead", widths, {"q_ahead": (q, nq), "qd_ahead": (qd, sizes.state - nq)})


def _split(nodes: OnnxNodes, value: str, width: int) -> list[str]:
    """Return the columns of a value, each of shape [worlds, 1]."""
    return nodes.several(width, "Split", value, axis=1, num_outputs=width) if width > 1 else [value] * width


class _Writer:
    """Nodes of a graph of scalars, each of which is a column of worlds."""

    def __init__(self, nodes: OnnxNodes, graph: Graph, state: list[str], control: list[str]) -> None:
        self._nodes, self._graph = nodes, graph
        self._inputs = {"x": state, "u": control}
        self._names: dict[int, str] = {}
        self._loops: dict[int, list[str]] = {}
        self._zeros = nodes("Expand", nodes.reals([[0.0]]), nodes("Shape", state[0]))

    def joined(self, indices: Sequence[int]) -> str:
        """Return the columns of these nodes side by side, shape [worlds, nodes]."""
        for index in live_nodes(self._graph, indices):
            if self._graph.nodes[index][0] != "loop":
                self._names[index] = self._node(index)
        return self._side_by_side(indices)

    def _side_by_side(self, indices: Sequence[int]) -> str:
        columns = [
            self._nodes("Add", self._zeros, name) if self._graph.nodes[i][0] == "constant" else name
            for i, name in ((i, self._names[i]) for i in indices)
        ]
        return self._nodes("Concat", *columns, axis=1)

    def _node(self, index: int) -> str:
        kind, *rest = self._graph.nodes[index]
        if kind == "constant":
            return self._nodes.reals([[rest[0]]])
        if kind == "input":
            return self._inputs[rest[0]][rest[1]]
        if kind == "result":
            return self._result(*rest)
        names = [self._names[i] for i in rest]
        if kind == "less":
            return self._nodes("Where", self._nodes("Less", *names[:2]), *names[2:])
        if kind not in _OPERATORS:
            raise ValueError(f"there is no ONNX operator for {kind!r}")
        return self._nodes(_OPERATORS[kind], *names)

    def _result(self, index: int, number: int) -> str:
        if index not in self._loops:
            loop, *given = self._graph.nodes[index][1:]
            if loop.onnx is None:
                raise InputError(f"{loop.name} have no ONNX graph; valid: soft constraints, or a base `free`")
            found: tuple[str, int] = loop.onnx(self._nodes, self._side_by_side(given))
            self._loops[index] = _split(self._nodes, *found)
        return self._loops[index][number]
