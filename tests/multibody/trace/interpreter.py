# SPDX-License-Identifier: Apache-2.0
"""Graphs, computed by a second reading of what the operations mean; and derivatives by differences."""

import math
import operator

from neurodyn.multibody.trace import Graph, pull_back

OPERATIONS = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": operator.truediv,
    "neg": operator.neg,
    "sqrt": math.sqrt,
    "sin": math.sin,
    "cos": math.cos,
    "exp": math.exp,
    "log": math.log,
    "tanh": math.tanh,
    "atan2": math.atan2,
    "min": lambda a, b: a if not b < a else b,
    "max": lambda a, b: a if not b > a else b,
    "less": lambda a, b, then, otherwise: then if a < b else otherwise,
}


def evaluate(outputs, arrays, number=float):
    """Return the values of expressions where `arrays` names the numbers of each input array."""
    graph = outputs[0].graph
    values = []
    for name, *rest in graph.nodes:
        if name == "constant":
            values.append(number(rest[0]))
        elif name == "input":
            array, index = rest
            values.append(arrays[array][index] if array in arrays else math.nan)
        else:
            try:
                values.append(OPERATIONS[name](*(values[i] for i in rest)))
            except (ArithmeticError, ValueError):  # a node of another branch, or without a number yet
                values.append(math.nan)
    return [values[x.index] for x in outputs]


def traced_gradient(function, point):
    """Return the value of a traced function and its gradient at a point."""
    graph = Graph()
    inputs = graph.inputs("x", len(point))
    output = function(*inputs)
    return evaluate([graph.lift(output), *pull_back([output], [1.0], inputs)], {"x": point})


def differences(function, point, step=1e-6):
    """Return the gradient of a function of numbers by central differences."""
    found = []
    for index in range(len(point)):
        ahead, behind = list(point), list(point)
        ahead[index] += step
        behind[index] -= step
        found.append((function(*ahead) - function(*behind)) / (2 * step))
    return found
