# SPDX-License-Identifier: Apache-2.0
"""A graph of scalar expressions: operations and loops are nodes, equal nodes are shared, constants are folded."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np

TINY = 1e-12
"""Least argument of a root or logarithm, and least squared radius of an angle."""

_FOLD: dict[str, Callable[..., float]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "neg": lambda a: -a,
    "sqrt": math.sqrt,
    "sin": math.sin,
    "cos": math.cos,
    "exp": math.exp,
    "log": math.log,
    "tanh": math.tanh,
    "atan2": math.atan2,
    "min": lambda a, b: b if b < a else a,
    "max": lambda a, b: b if a < b else a,
    "less": lambda a, b, x, y: x if a < b else y,
}
_COMMUTATIVE = frozenset({"add", "mul"})


class Expression:
    """One scalar of a graph, created by a `Graph` or by arithmetic."""

    __slots__ = ("graph", "index")

    def __init__(self, graph: "Graph", index: int) -> None:
        self.graph = graph
        self.index = index

    @property
    def value(self) -> float | None:
        """The number if the expression is a constant; None otherwise."""
        node = self.graph.nodes[self.index]
        return node[1] if node[0] == "constant" else None

    def __add__(self, other: "Scalar") -> "Expression":
        return self.graph.operation("add", self, other)

    def __radd__(self, other: "Scalar") -> "Expression":
        return self.graph.operation("add", other, self)

    def __sub__(self, other: "Scalar") -> "Expression":
        return self.graph.operation("sub", self, other)

    def __rsub__(self, other: "Scalar") -> "Expression":
        return self.graph.operation("sub", other, self)

    def __mul__(self, other: "Scalar") -> "Expression":
        return self.graph.operation("mul", self, other)

    def __rmul__(self, other: "Scalar") -> "Expression":
        return self.graph.operation("mul", other, self)

    def __truediv__(self, other: "Scalar") -> "Expression":
        return self.graph.operation("div", self, other)

    def __rtruediv__(self, other: "Scalar") -> "Expression":
        return self.graph.operation("div", other, self)

    def __neg__(self) -> "Expression":
        return self.graph.operation("neg", self)

    def __pow__(self, exponent: int) -> "Expression":
        if not isinstance(exponent, int) or exponent < 1:
            raise TypeError(f"a traced value to the power {exponent!r}; valid: whole numbers of at least 1")
        result = self
        for _ in range(exponent - 1):
            result = result * self
        return result

    def __bool__(self) -> NoReturn:
        raise TypeError(
            "a traced value has no truth: `if`, `and`, `min()` and comparisons would fix one branch for good; "
            "use select_less, minimum or maximum"
        )

    def _no_order(self, _other: object) -> NoReturn:
        raise TypeError("traced values cannot be compared; use select_less, minimum or maximum")

    __lt__ = __le__ = __gt__ = __ge__ = __eq__ = __ne__ = _no_order
    __hash__ = object.__hash__

    def __float__(self) -> float:
        value = self.value
        if value is None:
            raise TypeError("a traced value is no number while it is traced")
        return value

    def __repr__(self) -> str:
        return f"Expression({self.graph.nodes[self.index]})"


Scalar = Expression | float | int
"""Operands of traced arithmetic."""


class Graph:
    """Nodes in order of creation, which is an order of evaluation.

    Attributes:
        nodes: Tuples ("constant", value), ("input", array, index), ("loop", Loop, inputs...),
            ("reverse", Loop, loop node, seeds...), ("result", node, number) or (operation, argument, ...); nodes and
            arguments are indices.
    """

    def __init__(self) -> None:
        self.nodes: list[tuple[Any, ...]] = []
        self._known: dict[tuple[Any, ...], int] = {}
        self._arguments: list[tuple[int, ...]] = []

    def arguments(self, index: int) -> tuple[int, ...]:
        """Return the nodes that a node depends on directly."""
        return self._arguments[index]

    def node(self, *node: Any) -> int:
        """Return the index of a node; create it if it is new."""
        index = self._known.get(node)
        if index is None:
            index = self._known[node] = len(self.nodes)
            self.nodes.append(node)
            self._arguments.append(_arguments(*node))
        return index

    def constant(self, value: float) -> Expression:
        """Return a constant."""
        value = float(value)
        if not math.isfinite(value):
            raise ValueError(f"a traced constant is {value}")
        return Expression(self, self.node("constant", value + 0.0))

    def input(self, array: str, index: int) -> Expression:
        """Return element `index` of an input array."""
        return Expression(self, self.node("input", array, index))

    def inputs(self, array: str, count: int) -> list[Expression]:
        """Return the first `count` elements of an input array."""
        return [self.input(array, index) for index in range(count)]

    def lift(self, value: Scalar) -> Expression:
        """Return a number as a constant, an expression unchanged."""
        if not isinstance(value, Expression):
            return self.constant(value)
        if value.graph is not self:
            raise ValueError("an expression of another graph")
        return value

    def operation(self, name: str, *operands: Scalar) -> Expression:
        """Return the result of an operation, with simplifications that only affect rounding and the sign of zero.

        A product with the constant 0 is 0, even if the other factor may be infinite.
        """
        arguments: list[Expression] = []
        values: list[float | None] = []
        for operand in operands:
            if isinstance(operand, np.ndarray):
                return NotImplemented  # lets numpy apply the operator entry by entry
            argument = self.lift(operand)
            arguments.append(argument)
            node = self.nodes[argument.index]
            values.append(node[1] if node[0] == "constant" else None)
        if None not in values:
            return self.constant(_FOLD[name](*values))
        simple = self._simplify(name, arguments, values)
        if simple is not None:
            return simple
        indices = [argument.index for argument in arguments]
        if name in _COMMUTATIVE:
            indices.sort()
        return Expression(self, self.node(name, *indices))

    def _simplify(self, name: str, arguments: list[Expression], values: list[float | None]) -> Expression | None:
        if name == "neg":
            return self._negate(arguments[0])
        if name not in {"add", "sub", "mul", "div"}:
            return None
        (a, b), (x, y) = arguments, values
        if name == "add":
            return self._sum(a, b, x, y)
        if name == "sub":
            if y == 0.0:
                return a
            if x == 0.0:
                return -b
            return self.constant(0.0) if a.index == b.index else None
        if name == "div":
            if y is not None:
                return a * (1.0 / y)
            return self.constant(0.0) if x == 0.0 else None
        return self._product(a, b, x, y)

    def _sum(self, a: Expression, b: Expression, x: float | None, y: float | None) -> Expression | None:
        if x == 0.0:
            return b
        if y == 0.0:
            return a
        for one, other in ((a, b), (b, a)):
            node = self.nodes[other.index]
            if node[0] == "neg":
                return one - Expression(self, node[1])
        return None

    def _product(self, a: Expression, b: Expression, x: float | None, y: float | None) -> Expression | None:
        if x is None and y is not None:
            a, b, x, y = b, a, y, x
        if x is None:
            return None
        if x == 0.0:
            return self.constant(0.0)
        if x == 1.0:
            return b
        if x == -1.0:
            return -b
        node = self.nodes[b.index]
        for one, other in (node[1:], node[:0:-1]) if node[0] == "mul" else ():
            factor = self.nodes[one]
            # Constants are not merged if their product overflows or vanishes.
            if factor[0] == "constant" and 0.0 < abs(x * factor[1]) < math.inf:
                return self.constant(x * factor[1]) * Expression(self, other)
        return None

    def _negate(self, a: Expression) -> Expression | None:
        node = self.nodes[a.index]
        if node[0] == "neg":
            return Expression(self, node[1])
        if node[0] == "sub":
            return Expression(self, node[2]) - Expression(self, node[1])
        return None


def _arguments(name: str, *rest: Any) -> tuple[int, ...]:
    if name in {"constant", "input"}:
        return ()
    if name == "result":
        return (rest[0],)
    return rest[1:] if name in {"loop", "reverse"} else rest


def _apply(name: str, *values: Scalar) -> Any:
    """Trace an operation if an argument is traced; otherwise compute it."""
    graph = next((value.graph for value in values if isinstance(value, Expression)), None)
    return _FOLD[name](*map(float, values)) if graph is None else graph.operation(name, *values)


def sin(x: Any) -> Any:
    """Return the sine."""
    return _apply("sin", x)


def cos(x: Any) -> Any:
    """Return the cosine."""
    return _apply("cos", x)


def exp(x: Any) -> Any:
    """Return the exponential."""
    return _apply("exp", x)


def log(x: Any) -> Any:
    """Return the logarithm of `max(x, TINY)`."""
    return _apply("log", maximum(x, TINY))


def tanh(x: Any) -> Any:
    """Return the hyperbolic tangent."""
    return _apply("tanh", x)


def safe_sqrt(x: Any) -> Any:
    """Return the root of `max(x, TINY)`: 1e-6 with zero slope at 0, instead of infinite slope."""
    return _apply("sqrt", maximum(x, TINY))


def arctan2(y: Any, x: Any) -> Any:
    """Return the angle of (x, y); its derivative is bounded at the origin."""
    return _apply("atan2", y, x)


def minimum(a: Any, b: Any) -> Any:
    """Return the lesser value; on a tie, `a`."""
    return _apply("min", a, b)


def maximum(a: Any, b: Any) -> Any:
    """Return the greater value; on a tie, `a`."""
    return _apply("max", a, b)


def select_less(a: Any, b: Any, then: Any, otherwise: Any) -> Any:
    """Return `then` where a < b, else `otherwise`; both are computed and must be finite."""
    return _apply("less", a, b, then, otherwise)


def absolute(x: Any) -> Any:
    """Return |x|, with slope 0 at 0."""
    return x * select_less(x, 0.0, -1.0, select_less(0.0, x, 1.0, 0.0))


def softplus(x: Any) -> Any:
    """Return log(1 + exp(x)) without overflow."""
    # Both selections switch at the same side of 0, so that the slope there is 1/2; maximum and absolute would give 1.
    return select_less(x, 0.0, 0.0, x) + log(1.0 + exp(select_less(x, 0.0, x, -x)))


@dataclass(frozen=True)
class Loop:
    """A native loop.

    In the code, `in` and `out` are arrays of the loop's inputs and outputs, and `saved` is an array that the forward
    code may fill for the adjoint. The adjoint code sees all of these, `seed` (adjoints of the outputs) and `adj`
    (adjoints of the inputs, initially zero, to be added to). Weights are read from the array `weight`; their gradients
    are added to `weight_adj`.

    A `real` is a number in the working precision, or one number per world in the lanes of a vector. A `mask` is the
    result of comparing two reals. The code may therefore branch on values only as follows:

    * `SELECT(mask, a, b)` is a where the mask holds, else b; both are computed.
    * `if (ANY(mask))`, `if (ALL(mask))`: whether the mask holds in any, or in all, of the lanes. Assignments in such
      a block must also be right in lanes in which the mask does not hold.
    * `LANE(x, n)` is lane n of LANES of a real, a number to read or write: for a search that no other lane needs.
    * Masks combine by `&`, `|` and `NOT(mask)`, never by `&&`, `||` and `!`.

    Between `#if ROWS_IN_VECTORS`, `#else` and `#endif` code has two forms: the first is for one world, whose numbers
    a compiler may put into vectors. It may keep accelerations `last`, their `change`, and `warm` from one substep to
    the next.

    A `number` is always one number of the working precision: weights are numbers, everything else is `real`. The
    gradients of the weights are `Sums`: `weight_adj + i` is a `Sums` too, and `weight_adj[i] += x` adds to it.
    """

    name: str  # in messages
    inputs: int  # number of inputs
    outputs: int  # number of outputs
    saved: int  # length of `saved`
    forward: str  # code that fills `out` and `saved`
    adjoint: str  # code that adds to `adj`
    weights: int = 0  # number of weights it reads
    first_weight: int = 0  # index of the first in the program's weights
    # Number of leading outputs that suffice for the adjoint, without running the forward code again; 0 for none.
    sufficient: int = 0
    fixed: int = 0  # number of trailing inputs without derivative
    # (gate, first, end): the forward code reads inputs first to end - 1 only where input `gate` is above 0.
    gates: tuple[tuple[int, int, int], ...] = ()
    # Adds the loop to an ONNX graph: maps the name of the concatenated inputs to the name of the concatenated leading
    # outputs and their number; None if unsupported.
    onnx: Callable[[Any, str], tuple[str, int]] | None = field(default=None, compare=False)


def apply_loop(graph: Graph, loop: Loop, inputs: Sequence[Scalar]) -> list[Expression]:
    """Return the outputs of a loop for these inputs."""
    if len(inputs) != loop.inputs:
        raise ValueError(f"loop {loop.name!r} takes {loop.inputs} inputs, not {len(inputs)}")
    node = graph.node("loop", loop, *(graph.lift(x).index for x in inputs))
    return [Expression(graph, graph.node("result", node, number)) for number in range(loop.outputs)]


def pull_back_loop(graph: Graph, index: int, seeds: dict[int, Expression]) -> list[tuple[int, Expression]]:
    """Return the contributions of a loop's output adjoints to its inputs, as results of one more node."""
    _, loop, *inputs = graph.nodes[index]
    zero = graph.constant(0.0)
    given = [seeds.get(number, zero).index for number in range(loop.outputs)]
    node = graph.node("reverse", loop, index, *given)
    moving = inputs[: len(inputs) - loop.fixed]
    return [(x, Expression(graph, graph.node("result", node, number))) for number, x in enumerate(moving)]
