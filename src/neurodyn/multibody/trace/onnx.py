# SPDX-License-Identifier: Apache-2.0
"""Traced functions and frames as ONNX graphs: one node per operation, in a loop over the substeps of a frame."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from neurodyn.core.errors import InputError
from neurodyn.multibody.trace.expression import Graph
from neurodyn.multibody.trace.recurrence import ConstantFrame
from neurodyn.multibody.trace.source import live_nodes


class OnnxNodes:
    """The nodes of an ONNX graph and its subgraphs.

    Values are referred to by name; subgraphs see the values of the graphs around them. `dtype` is the precision of all
    numbers, float32 or float64.
    """

    def __init__(self, dtype: np.dtype | type, prefix: str = "", parent: "OnnxNodes | None" = None) -> None:
        """Start an empty graph, whose names begin with `prefix`."""
        self.dtype = np.dtype(dtype)
        self._prefix, self._count = prefix, 0
        self._nodes: list[Any] = []
        self._constants: list[Any] = [] if parent is None else parent._constants
        self._known: dict[tuple[Any, ...], str] = {} if parent is None else parent._known

    @property
    def kind(self) -> int:
        """ONNX's code of the precision."""
        from onnx import helper

        return helper.np_dtype_to_tensor_dtype(self.dtype)

    def name(self) -> str:
        """Return a new name."""
        self._count += 1
        return f"{self._prefix}{self._count}"

    def __call__(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """Add a node with one output, and return its name."""
        return self.several(1, operator, *inputs, **attributes)[0]

    def several(self, outputs: int, operator: str, *inputs: str, **attributes: Any) -> list[str]:
        """Add a node, and return the names of its outputs."""
        from onnx import helper

        names = [self.name() for _ in range(outputs)]
        self._nodes.append(helper.make_node(operator, list(inputs), names, **attributes))
        return names

    def reals(self, values: Any) -> str:
        """Return a constant of real numbers."""
        return self._constant(np.asarray(values, dtype=self.dtype))

    def integers(self, values: Any) -> str:
        """Return a constant of whole numbers."""
        return self._constant(np.asarray(values, dtype=np.int64))

    def _constant(self, values: np.ndarray) -> str:
        from onnx import numpy_helper

        key = (values.dtype, values.shape, values.tobytes())
        if key not in self._known:
            self._known[key] = f"{self._prefix}constant_{len(self._constants)}"
            self._constants.append(numpy_helper.from_array(values, self._known[key]))
        return self._known[key]

    def reshape(self, value: str, *shape: int) -> str:
        """Reshape a value; -1 stands for the remaining axis."""
        return self("Reshape", value, self.integers(shape))

    def sum(self, value: str, axis: int, *, keep: bool = False) -> str:
        """Return the sum over an axis."""
        return self("ReduceSum", value, self.integers([axis]), keepdims=int(keep))

    def part(self, value: str, first: int, last: int, axis: int = 1) -> str:
        """Return the entries `first` to `last - 1` of an axis."""
        return self("Slice", value, *(self.integers([x]) for x in (first, last, axis)))

    def repeat(
        self,
        most: int,
        begin: Sequence[str],
        body: Callable[["OnnxNodes", list[str]], list[str]],
        until: Callable[["OnnxNodes", list[str]], str] | None = None,
    ) -> list[str]:
        """Add a loop of at most `most` iterations that maps values to the next values; return the final ones.

        `body` adds the nodes of an iteration. `until` adds nodes that decide from the next values whether to continue;
        None for always.
        """
        from onnx import TensorProto, helper

        inner = OnnxNodes(self.dtype, f"{self.name()}/", self)
        given = [inner.name() for _ in begin]
        results = body(inner, given)
        go_on = inner("Identity", inner._constant(np.asarray(True))) if until is None else until(inner, results)
        results = [inner("Identity", x) for x in results]  # a distinct name for each output
        number, before = inner.name(), inner.name()
        kind = self.kind
        untyped = [helper.make_tensor_value_info(name, kind, None) for name in given]
        graph = helper.make_graph(
            inner._nodes, "body",
            [
                helper.make_tensor_value_info(number, TensorProto.INT64, []),
                helper.make_tensor_value_info(before, TensorProto.BOOL, []), *untyped,
            ],
            [
                helper.make_tensor_value_info(go_on, TensorProto.BOOL, []),
                *(helper.make_tensor_value_info(name, kind, None) for name in results),
            ],
        )  # fmt: skip
        return self.several(len(begin), "Loop", self.integers(most), "", *begin, body=graph)

    def graph(self, name: str, inputs: dict[str, int], outputs: dict[str, tuple[str, int]]) -> Any:
        """Return the graph; `inputs` holds the width of each input, `outputs` value and width of each output.

        Inputs and outputs have the shape [worlds, width].
        """
        from onnx import helper

        kind = self.kind
        last = [helper.make_node("Identity", [value], [output]) for output, (value, _) in outputs.items()]
        return helper.make_graph(
            [*self._nodes, *last], name,
            [helper.make_tensor_value_info(x, kind, ["worlds", width]) for x, width in inputs.items()],
            [helper.make_tensor_value_info(x, kind, ["worlds", width]) for x, (_, width) in outputs.items()],
            initializer=self._constants,
        )  # fmt: skip


_OPERATORS = {
    "add": "Add", "sub": "Sub", "mul": "Mul", "div": "Div", "neg": "Neg", "sqrt": "Sqrt", "sin": "Sin", "cos": "Cos",
    "exp": "Exp", "log": "Log", "tanh": "Tanh", "min": "Min", "max": "Max",
}  # fmt: skip


def frame_graph(frame: ConstantFrame, nq: int, *, dtype: np.dtype | type = np.float32) -> Any:
    """Return a graph from `q`, `qd` and `control` to `q_ahead` and `qd_ahead`, each of shape [worlds, width].

    The state of the step is [q, qd], with `nq` positions.

    Raises:
        InputError: A loop of the step has no ONNX nodes.
        ValueError: The step has weights, or an operation without an ONNX operator.
    """
    sizes = frame.sizes
    if sizes.weights:
        raise ValueError("a step with weights has no ONNX graph")
    graph, nodes = Graph(), OnnxNodes(dtype, "ahead/")
    after = frame.trace(graph)
    controls = _split(nodes, "control", sizes.control)

    def once(inner: OnnxNodes, given: list[str]) -> list[str]:
        columns = {"x": _split(inner, given[0], sizes.state), "u": controls}
        return [_OnnxWriter(inner, graph, columns).concatenate(after)]

    state = nodes.repeat(frame.substeps, [nodes("Concat", "q", "qd", axis=1)], once)[0]
    widths = {"q": nq, "qd": sizes.state - nq, "control": sizes.control}
    q, qd = nodes.part(state, 0, nq), nodes.part(state, nq, sizes.state)
    return nodes.graph("ahead", widths, {"q_ahead": (q, nq), "qd_ahead": (qd, sizes.state - nq)})


def function_graph(traced: Graph, results: Sequence[int], widths: Mapping[str, int], prefix: str) -> Any:
    """Return a graph from the arrays of a traced function to its results, each of shape [worlds, width].

    Args:
        traced: The traced function.
        results: Its results.
        widths: Its arrays in the order of the graph's inputs, the first of at least one column.
        prefix: Beginning of all names of values.

    Raises:
        InputError: A loop of the function has no ONNX nodes.
        ValueError: An operation has no ONNX operator.
    """
    nodes = OnnxNodes(np.float32, prefix)
    columns = {name: _split(nodes, prefix + name, width) for name, width in widths.items()}
    value = _OnnxWriter(nodes, traced, columns).concatenate(results)
    given = {prefix + name: width for name, width in widths.items()}
    return nodes.graph("function", given, {f"{prefix}results": (value, len(results))})


def _split(nodes: OnnxNodes, value: str, width: int) -> list[str]:
    """Return the columns of a value, each of shape [worlds, 1]."""
    return nodes.several(width, "Split", value, axis=1, num_outputs=width) if width > 1 else [value] * width


class _OnnxWriter:
    """Writes a graph of scalars as nodes, one column of worlds per scalar; `inputs` holds the columns of each array."""

    def __init__(self, nodes: OnnxNodes, graph: Graph, inputs: Mapping[str, list[str]]) -> None:
        self._nodes, self._graph, self._inputs = nodes, graph, inputs
        self._names: dict[int, str] = {}
        self._loops: dict[int, list[str]] = {}
        self._zeros = nodes("Expand", nodes.reals([[0.0]]), nodes("Shape", next(iter(inputs.values()))[0]))

    def concatenate(self, indices: Sequence[int]) -> str:
        """Return these nodes concatenated as columns, shape [worlds, nodes]."""
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
            result: tuple[str, int] = loop.onnx(self._nodes, self._side_by_side(given))
            self._loops[index] = _split(self._nodes, *result)
        return self._loops[index][number]
