# SPDX-License-Identifier: Apache-2.0
"""Texts hold what is assigned and nothing else. That they compute the right thing is tested where they are compiled."""

import re

import pytest

from neurodyn.multibody import trace
from neurodyn.multibody.trace import Graph, Loop, apply_loop, pull_back
from neurodyn.multibody.trace.source import statements
from tests.multibody.trace.loops import dense, root

ARRAYS = {"x": "x_[{}]"}


def test_what_nothing_needs_is_not_written():
    graph = Graph()
    a, b, _ = graph.inputs("x", 3)
    _ = trace.exp(a) + b
    text = statements(graph, [("out[0] =", trace.sin(a)), ("out[1] +=", a)], ARRAYS)
    assert text.splitlines() == [
        f"const real v{a.index} = x_[0];",
        f"const real v{trace.sin(a).index} = ::wp::sin(v{a.index});",
        f"out[0] = v{trace.sin(a).index};",
        f"out[1] += v{a.index};",
    ]


def test_every_name_is_declared_once_and_before_it_is_used():
    graph = Graph()
    a, b = graph.inputs("x", 2)
    y, *_ = apply_loop(graph, root(), [a, trace.maximum(b, 1e-3)])
    z = apply_loop(graph, dense(2, 2), [y, b])
    gradient = pull_back([z[0] * a], [1.0], [a, b])
    known = set()
    for line in statements(graph, [(f"g[{i}] =", x) for i, x in enumerate(gradient)], ARRAYS).splitlines():
        declared = re.findall(r"\breal (\w+_?\d+)(?:\[\d+\])? =|\breal (\w+_\d+)\[\d+\];", line)
        used = set(re.findall(r"\b(?:v|in_|out_|saved_|seed_|adj_)\d+\b", line))
        names = {name for pair in declared for name in pair if name}
        assert not names & known
        assert used - names <= known
        known |= names
    assert len(known) > 10


def test_constants_are_written_in_full_and_signs_do_not_meet():
    graph = Graph()
    a = graph.input("x", 0)
    text = statements(graph, [("y =", a - -0.1), ("z =", graph.constant(-1e-300)), ("w =", 2.5)], ARRAYS)
    assert f"v{a.index} - ((real)-0.1)" in text or f"v{a.index} + (real)0.1" in text
    assert "z = ((real)-1e-300);" in text
    assert "w = (real)2.5;" in text


def test_numbers_alone_need_no_declarations():
    assert statements(Graph(), [("y =", 1.0)], ARRAYS) == "y = (real)1.0;"


def test_loops_are_written_where_they_are_needed():
    graph = Graph()
    a, b = graph.inputs("x", 2)
    used, unused = apply_loop(graph, root(5), [a, b]), apply_loop(graph, root(7), [a, b])
    text = statements(graph, [("y =", used[0])], ARRAYS)
    assert "i < 5" in text
    assert "i < 7" not in text
    assert "i < 7" in statements(graph, [("y =", unused[0])], ARRAYS)


def test_behind_the_gate_of_a_loop_stands_what_nothing_else_takes():
    graph = Graph()
    gate, a, b, c = graph.inputs("x", 4)
    alone, shared = trace.exp(trace.sin(a)), trace.cos(b)
    loop = Loop("gated", 4, 1, 0, "out[0] = in[0] > 0 ? in[1] + in[2] : in[3];", "", gates=((0, 0, 3),))
    (found,) = apply_loop(graph, loop, [gate, alone, shared, trace.exp(c)])
    text = statements(graph, [("y =", found + shared)], ARRAYS, in_rows=True)
    before, behind, after = re.split(r"if \(in_\d+\[0\] > \(real\)0\) \{|\n\}\n", text, maxsplit=2)
    assert [len(re.findall(r"::wp::(?:sin|exp)|\[1\] =", part)) for part in (before, behind, after)] == [1, 3, 0]
    assert before.count("::wp::cos") == 1
    assert re.findall(r"in_\d+\[(\d)\] =", before) == ["0", "2", "3"]
    assert "in[1] + in[2]" in after


def test_the_adjoint_of_a_loop_with_weights_is_written_for_its_effect():
    graph = Graph()
    a, b = graph.inputs("x", 2)
    for_weights = apply_loop(graph, dense(1, 1), [1.0])[0]  # depends on no input, but its weights learn
    without = apply_loop(graph, root(), [4.0, 1.0])[0]  # neither
    gradient = pull_back([for_weights + without * a], [1.0], [b])
    text = statements(graph, [("g =", gradient[0])], ARRAYS, effects=True)
    assert "weight_adj[" in text
    assert "saved[i]" not in text


def test_loops_whose_outputs_are_unused_have_no_adjoint():
    graph = Graph()
    a, b = graph.inputs("x", 2)
    apply_loop(graph, dense(2, 2), [a, b])
    text = statements(graph, [("g =", pull_back([a * b], [1.0], [a])[0])], ARRAYS)
    assert "weight" not in text


def test_an_unknown_operation_raises():
    graph = Graph()
    graph.node("gamma", graph.input("x", 0).index)
    with pytest.raises(ValueError, match="gamma"):
        statements(graph, [("y =", trace.Expression(graph, 1))], ARRAYS)
