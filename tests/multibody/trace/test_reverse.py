# SPDX-License-Identifier: Apache-2.0
"""Derivatives of every operation against differences, at ties by the declared rule, and finite wherever values are."""

import math

import pytest

from neurodyn.multibody import trace
from neurodyn.multibody.trace import Graph, pull_back
from tests.multibody.trace.interpreter import differences, evaluate, traced_gradient

ONE = (-3.0, -0.7, 0.2, 1.3, 4.0)
POSITIVE = (0.05, 0.4, 1.0, 9.0)
PAIRS = ((0.3, 1.7), (1.7, 0.3), (-0.4, 2.0), (-1.2, -0.1), (2.0, -3.0))
CASES = {
    "add": (lambda a, b: a + 2 * b + a, PAIRS),
    "sub": (lambda a, b: a - b * 3 - (b - a), PAIRS),
    "mul": (lambda a, b: a * b * a, PAIRS),
    "div": (lambda a, b: a / b + 1 / a, PAIRS),
    "neg": (lambda a: -(a * a), [(x,) for x in ONE]),
    "pow": (lambda a: a**3, [(x,) for x in ONE]),
    "safe_sqrt": (trace.safe_sqrt, [(x,) for x in POSITIVE]),
    "sin": (trace.sin, [(x,) for x in ONE]),
    "cos": (trace.cos, [(x,) for x in ONE]),
    "exp": (trace.exp, [(x,) for x in ONE]),
    "log": (trace.log, [(x,) for x in POSITIVE]),
    "tanh": (trace.tanh, [(x,) for x in ONE]),
    "arctan2": (trace.arctan2, PAIRS),
    "minimum": (lambda a, b: trace.minimum(2 * a, b), PAIRS),
    "maximum": (lambda a, b: trace.maximum(2 * a, b), PAIRS),
    "select_less": (lambda a, b: trace.select_less(a, b, a * a * b, trace.sin(a) - b), PAIRS),
    "absolute": (trace.absolute, [(x,) for x in ONE]),
    "softplus": (trace.softplus, [(x,) for x in (*ONE, 0.0, 30.0, -30.0)]),
    "composed": (lambda a, b: trace.exp(trace.sin(a * b) / (1 + b * b)) * trace.tanh(a - trace.cos(a * b)), PAIRS),
}


@pytest.mark.parametrize("name", CASES)
def test_derivatives_are_those_of_differences(name):
    function, points = CASES[name]
    for point in points:
        value, *gradient = traced_gradient(function, point)
        assert value == pytest.approx(function(*point), rel=1e-14)
        assert gradient == pytest.approx(differences(function, point), rel=1e-7, abs=1e-8)


@pytest.mark.parametrize(
    ("function", "point", "expected"),
    [
        (trace.minimum, (1.5, 1.5), [1.0, 0.0]),
        (trace.maximum, (1.5, 1.5), [1.0, 0.0]),
        (trace.minimum, (0.0, -0.0), [1.0, 0.0]),
        (trace.absolute, (0.0,), [0.0]),
        (trace.absolute, (-0.0,), [0.0]),
        (lambda a, b: trace.select_less(a, b, 5 * a, 7 * b), (2.0, 2.0), [0.0, 7.0]),
        (lambda x: trace.maximum(x, 0.0), (0.0,), [1.0]),
        (lambda x: trace.maximum(0.0, x), (0.0,), [0.0]),
    ],
)
def test_a_tie_follows_the_declared_rule(function, point, expected):
    assert traced_gradient(function, point)[1:] == expected


@pytest.mark.parametrize(
    ("function", "point", "expected"),
    [
        (trace.safe_sqrt, (0.0,), [0.0]),
        (trace.safe_sqrt, (-1.0,), [0.0]),
        (lambda x, y: trace.safe_sqrt(x * x + y * y), (0.0, 0.0), [0.0, 0.0]),
        (trace.log, (0.0,), [0.0]),
        (trace.log, (-1.0,), [0.0]),
        (trace.arctan2, (0.0, 0.0), [0.0, 0.0]),
        (lambda x: trace.tanh(x), (500.0,), [0.0]),
        (trace.softplus, (0.0,), [0.5]),
        (trace.softplus, (700.0,), [1.0]),
        (trace.softplus, (-700.0,), [0.0]),
    ],
)
def test_slopes_are_finite_where_a_formula_has_a_hole(function, point, expected):
    assert traced_gradient(function, point)[1:] == pytest.approx(expected, abs=1e-300)


def test_the_slope_of_an_angle_is_bounded_near_the_origin():
    for size in (1e-5, 1e-6, 1e-7, 1e-9, 1e-30):
        gradient = traced_gradient(trace.arctan2, (0.6 * size, 0.8 * size))[1:]
        assert all(math.isfinite(x) and abs(x) <= 1e6 for x in gradient)


def test_the_condition_of_a_choice_has_no_gradient():
    value, *gradient = traced_gradient(lambda a, b, x, y: trace.select_less(a, b, x, y), (1.0, 2.0, 3.0, 4.0))
    assert value == 3.0
    assert gradient == [0.0, 0.0, 1.0, 0.0]


def test_seeds_weigh_outputs_and_may_be_expressions():
    graph = Graph()
    a, b, s = (graph.input("x", i) for i in range(3))
    outputs = [a * b, trace.sin(a), a * b, 4.0, graph.constant(2.0)]
    gradient = pull_back(outputs, [2.0, s, 1.0, 9.0, 9.0], [a, b, s])
    x, y, w = 0.3, -0.8, 5.0
    found = evaluate(gradient, {"x": [x, y, w]})
    assert found == pytest.approx([3 * y + w * math.cos(x), 3 * x, 0.0])
    assert gradient[2].value == 0.0


def test_nodes_between_count_as_independent():
    graph = Graph()
    a, b = graph.inputs("x", 2)
    middle = a * b
    by_middle, by_a = pull_back([middle * middle + 3 * a], [1.0], [middle, a])
    assert evaluate([by_middle, by_a], {"x": [2.0, 5.0]}) == [20.0, 3.0]


def test_nothing_to_differentiate_by_or_no_dependence():
    graph = Graph()
    a, b = graph.inputs("x", 2)
    assert pull_back([a], [1.0], []) == []
    assert [x.value for x in pull_back([trace.sin(a)], [1.0], [b])] == [0.0]
    assert [x.value for x in pull_back([1.0], [1.0], [b])] == [0.0]
    assert [x.value for x in pull_back([a], [1.0], [a, b])] == [1.0, 0.0]


def test_an_argument_in_both_places_counts_twice():
    assert traced_gradient(lambda a: a * a, (3.0,))[1:] == [6.0]
    assert traced_gradient(lambda a: a + a, (3.0,))[1:] == [2.0]
    assert traced_gradient(lambda a: a * a / a, (3.0,))[1:] == [1.0]
    assert traced_gradient(lambda a: trace.arctan2(a, a), (3.0,))[1:] == pytest.approx([0.0], abs=1e-15)


def test_derivatives_can_be_differentiated_again():
    def slope(x):
        graph = x.graph
        return pull_back([trace.sin(x) * x], [graph.constant(1.0)], [x])[0]

    value, second = traced_gradient(slope, (0.7,))
    assert value == pytest.approx(math.cos(0.7) * 0.7 + math.sin(0.7))
    assert second == pytest.approx(2 * math.cos(0.7) - 0.7 * math.sin(0.7))


def test_seeds_and_outputs_pair_up():
    a = Graph().input("x", 0)
    with pytest.raises(ValueError, match="zip"):
        pull_back([a, a], [1.0], [a])
