# SPDX-License-Identifier: Apache-2.0
"""What tracing leaves in a graph: folded constants, equal nodes once, and nothing that Python decided for it."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neurodyn.multibody import trace
from neurodyn.multibody.trace import Expression, Graph
from tests.multibody.trace.interpreter import evaluate

FUNCTIONS = {
    "sin": (trace.sin, math.sin),
    "cos": (trace.cos, math.cos),
    "exp": (trace.exp, math.exp),
    "tanh": (trace.tanh, math.tanh),
    "absolute": (trace.absolute, abs),
    "log": (trace.log, lambda x: math.log(max(x, 1e-12))),
    "safe_sqrt": (trace.safe_sqrt, lambda x: math.sqrt(max(x, 1e-12))),
    "softplus": (trace.softplus, lambda x: math.log1p(math.exp(-abs(x))) + max(x, 0.0)),
}
TWO = {
    "arctan2": (trace.arctan2, math.atan2),
    "minimum": (trace.minimum, min),
    "maximum": (trace.maximum, max),
    "select_less": (lambda a, b: trace.select_less(a, b, 3.0 * a, b), lambda a, b: 3 * a if a < b else b),
}
POINTS = (-2.5, -1.0, -1e-7, 0.0, 1e-7, 0.3, 1.0, 7.0)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_one_argument_mean_the_same_on_numbers_constants_and_inputs(name):
    function, meaning = FUNCTIONS[name]
    for x in POINTS:
        graph = Graph()
        assert function(x) == pytest.approx(meaning(x), rel=1e-14, abs=1e-16)
        assert function(graph.constant(x)).value == function(x)
        assert evaluate([function(graph.input("x", 0))], {"x": [x]}) == [function(x)]


@pytest.mark.parametrize("name", TWO)
def test_functions_of_two_arguments_mean_the_same_on_numbers_constants_and_inputs(name):
    function, meaning = TWO[name]
    for x in POINTS:
        for y in POINTS:
            graph = Graph()
            assert function(x, y) == pytest.approx(meaning(x, y), rel=1e-14, abs=1e-16)
            assert function(graph.constant(x), y).value == function(x, y)
            assert evaluate([function(graph.input("x", 0), y)], {"x": [x]}) == [function(x, y)]
            assert evaluate([function(x, graph.input("x", 0))], {"x": [y]}) == [function(x, y)]


def test_numbers_stay_numbers():
    for function, _ in FUNCTIONS.values():
        assert type(function(1)) is float
    assert type(trace.maximum(1, 2)) is float


def test_softplus_neither_overflows_nor_loses_large_values():
    assert trace.softplus(800.0) == 800.0
    assert trace.softplus(-800.0) == 0.0


def test_a_value_that_is_not_a_number_passes_the_guards():
    graph = Graph()
    x = graph.input("x", 0)
    for function in (trace.safe_sqrt, trace.absolute, lambda x: trace.minimum(x, 1.0), lambda x: trace.maximum(x, 1.0)):
        assert math.isnan(function(math.nan))
        assert math.isnan(evaluate([function(x)], {"x": [math.nan]})[0])


def test_constants_fold():
    graph = Graph()
    two, three = graph.constant(2.0), graph.constant(3)
    assert (two * three + 1 - three / two).value == 5.5
    assert (-two).value == -2.0
    assert (2.0**3 - two**3).value == 0.0
    assert (1 - two).value == -1.0
    assert (1 / two).value == 0.5
    assert trace.sin(two).value == math.sin(2.0)
    assert float(two) == 2.0
    assert two.value == 2.0
    assert graph.input("x", 0).value is None


def test_equal_nodes_are_one():
    graph = Graph()
    a, b = graph.inputs("x", 2)
    for one, other in (
        (a + b, b + a), (a * b, b * a), (trace.sin(a), trace.sin(a)), (a - b, -(b - a)), (2 * a, a * 2.0),
        (a + -b, a - b), (graph.constant(0.0), graph.constant(-0.0)), (graph.input("x", 0), a), (2 * (3 * a), 6 * a),
        (a - 0, a), (0 - a, -a), (0 - (0 - a), a), (a * 1, a), (a * -1, -a), (a**3, a * a * a), (a / 4, 0.25 * a),
    ):  # fmt: skip
        assert one.index == other.index
    assert len({x.index for x in (a - b, a / b, b / a, graph.input("y", 0), graph.input("x", 1), a)}) == 6
    before = len(graph.nodes)
    _ = trace.sin(a) + a * b
    assert len(graph.nodes) == before + 1


def test_zero_vanishes_and_has_no_sign():
    graph = Graph()
    a = graph.input("x", 0)
    for expression in (a * 0, 0.0 * a, a - a, 0 / a, a * -0.0):
        assert expression.value == 0.0
        assert math.copysign(1.0, expression.value) == 1.0


def test_folding_neither_overflows_nor_underflows():
    graph = Graph()
    a = graph.input("x", 0)
    assert evaluate([1e200 * (1e200 * a)], {"x": [1e-150]}) == [pytest.approx(1e250)]
    assert evaluate([1e-200 * (1e-200 * a)], {"x": [1e250]}) == [pytest.approx(1e-150)]


LEAVES = st.sampled_from(["x", "y", "z", 0.0, -0.0, 1.0, -1.0, 2.0, -0.5, 3.0])
TREES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.tuples(st.sampled_from("+-*"), inner, inner),
        st.tuples(st.just("neg"), inner),
        st.tuples(st.just("/"), inner, st.sampled_from([2.0, -4.0, 0.5, 1.0, -1.0])),
    ),
    max_leaves=12,
)


def compute(tree, leaf):
    if not isinstance(tree, tuple):
        return leaf(tree)
    name, *parts = tree
    values = [compute(part, leaf) for part in parts]
    if name == "neg":
        return -values[0]
    a, b = values
    return {"+": lambda: a + b, "-": lambda: a - b, "*": lambda: a * b, "/": lambda: a / b}[name]()


@settings(derandomize=True, max_examples=150, deadline=None)
@given(TREES)
def test_simplification_changes_no_value(tree):
    graph = Graph()
    numbers = {"x": Fraction(3, 7), "y": Fraction(-11, 5), "z": Fraction(1, 3)}
    inputs = {name: graph.input(name, 0) for name in numbers}
    traced = graph.lift(compute(tree, lambda leaf: inputs[leaf] if isinstance(leaf, str) else leaf))
    exact = compute(tree, lambda leaf: numbers[leaf] if isinstance(leaf, str) else Fraction(leaf))
    arrays = {name: [value] for name, value in numbers.items()}
    assert evaluate([traced], arrays, Fraction) == [exact]


@pytest.mark.parametrize(
    "use",
    [
        lambda x: 1 if x else 2,
        lambda x: x and 1,
        lambda x: not x,
        lambda x: x < 1.0,
        lambda x: x >= 1.0,
        lambda x: x == 0.0,
        lambda x: x != 0.0,
        lambda x: x == x,
        lambda x: min(x, 1.0),
        lambda x: max(0.0, x),
        lambda x: sorted([x, 1.0]),
        lambda x: [1.0, 2.0].index(x),
        float,
        int,
        abs,
        round,
        math.sin,
        np.sin,
        lambda x: x**0.5,
        lambda x: x**0,
        lambda x: x**-1,
        lambda x: x % 2,
        lambda x: x // 2,
        lambda x: 2**x,
    ],
)
def test_what_would_fix_a_branch_or_lose_the_trace_raises(use):
    with pytest.raises((TypeError, ValueError)):
        use(Graph().input("x", 0))


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_constant_is_finite(value):
    graph = Graph()
    with pytest.raises(ValueError, match="constant"):
        graph.constant(value)
    with pytest.raises(ValueError, match="constant"):
        graph.input("x", 0) + value


def test_a_division_by_the_constant_zero_raises():
    with pytest.raises(ZeroDivisionError):
        Graph().input("x", 0) / 0.0


def test_graphs_do_not_mix():
    with pytest.raises(ValueError, match="another graph"):
        Graph().input("x", 0) + Graph().input("x", 0)


def test_numbers_of_numpy_are_numbers():
    graph = Graph()
    x = graph.input("x", 0)
    for number in (np.float64(2.0), np.float32(2.0), np.int64(2)):
        for expression in (number * x, x * number, number + x - number, number / (1 / x)):
            assert isinstance(expression, Expression)
        assert (number * x).index == (2 * x).index
        assert (number - x).index == (2 - x).index
        assert (number / x).index == (2 / x).index
