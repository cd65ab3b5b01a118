# SPDX-License-Identifier: Apache-2.0
"""The soft-constraint solver as nodes of an ONNX graph: the method of `constraint_loop` on matrices of all worlds.

A friction pyramid is four one-sided rows, like joint limits. Values have the axes [worlds, rows, columns]; a
vector is one column.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby

import numpy as np

from neurodyn.core.errors import InputError
from neurodyn.multibody.constraints.layout import (
    PER_POINT,
    ConstraintLayout,
    ConstraintStructure,
    RowGroup,
    RowKind,
)
from neurodyn.multibody.trace.onnx import OnnxNodes

_ITERATIONS = 30
_SEARCHES = 12
_FLAT = 1e-3
_NEXT, _LAST = (1, 2, 0), (2, 0, 1)
_NORMAL = ((1.0, 1.0, 1.0, 1.0), (0.0, 0.0, 0.0, 0.0), (0.0, 0.0, 0.0, 0.0))
_TANGENTS = ((0.0, 0.0, 0.0, 0.0), (1.0, -1.0, 0.0, 0.0), (0.0, 0.0, 1.0, -1.0))


def add_solution(structure: ConstraintStructure, nodes: OnnxNodes, given: str) -> tuple[str, int]:
    """Add the nodes that solve a problem; return the name of the accelerations, shape [worlds, nv], and nv.

    `given` is the name of the inputs (see `constraint_loop`), shape [worlds, inputs].

    Raises:
        InputError: The friction cones are elliptic, or there are contacts of shapes.
    """
    if structure.cones:
        raise InputError("soft contacts of shapes have no ONNX graph; valid: contacts of points with the ground")
    if structure.groups and structure.cone != "pyramidal":
        raise InputError(
            "soft contacts with elliptic cones of friction have no ONNX graph; valid: pyramidal cones, or a base `free`"
        )
    problem = _OnnxProblem(structure, nodes, given)
    each = nodes("Shape", nodes.part(problem.free, 0, 1))
    one, zero = (nodes("Expand", nodes.reals([[[x]]]), each) for x in (1.0, 0.0))
    start = [problem.free, one, zero]
    results = nodes.repeat(
        _ITERATIONS, start, problem.iteration, lambda inner, x: inner("Greater", _greatest(inner, x[1]), _zero(inner))
    )
    return nodes.reshape(results[0], -1, problem.nv), problem.nv


def _likeness(numbered: tuple[int, tuple[RowGroup, int]]) -> tuple[RowKind, int]:
    """Return the kind of a group, and its number unless it is one row over one joint."""
    number, (group, _) = numbered
    return group.kind, -1 if len(group.dofs) == group.rows == 1 else number


def _zero(nodes: OnnxNodes) -> str:
    return nodes.reals(0.0)


def _greatest(nodes: OnnxNodes, value: str) -> str:
    return nodes("ReduceMax", value, keepdims=0)


class _OnnxProblem:
    """The matrices of a problem, by name."""

    def __init__(self, structure: ConstraintStructure, nodes: OnnxNodes, given: str) -> None:
        at = ConstraintLayout(structure)
        self.nv, self._nodes, self._structure = at.nv, nodes, structure
        self._tiny = 1e-20 if nodes.dtype == np.float64 else 1e-12
        self._mass = self._mass_matrix(at, given)
        self.free = nodes.reshape(nodes.part(given, at.free, at.velocity), -1, at.nv, 1)
        self._pushes = self._pushing(at, given)
        self._others: list[tuple[str, str, str, str | None, RowKind]] = []
        for groups, first in self._groups(at):
            if groups[0].kind != "limit":
                rows, weight, rest, most = self._group(given, groups, first)
                self._others.append((rows, rest, weight, most, groups[0].kind))

    def _group(self, given: str, groups: Sequence[RowGroup], first: int) -> tuple[str, str, str, str | None]:
        """Return rows, D, residuals without acceleration, and any trailing inputs of a group, or of several alike."""
        nodes, one = self._nodes, groups[0]
        n, count, width = len(one.dofs), sum(group.rows for group in groups), one.width
        inputs = nodes.reshape(nodes.part(given, first, first + count * width), -1, count, width)
        places = nodes.reals(_one_hot([dof for group in groups for dof in group.dofs], self.nv))
        rows = nodes("Mul" if len(groups) > 1 else "MatMul", nodes.part(inputs, 0, n, 2), places)
        weight, rest = (nodes.part(inputs, i, i + 1, 2) for i in (n, n + 1))
        return rows, weight, rest, None if one.kind == "equality" else nodes.part(inputs, n + 2, n + 3, 2)

    def _groups(self, at: ConstraintLayout) -> Iterator[tuple[list[RowGroup], int]]:
        """Yield groups and their first input; those of one row over one joint together, as they follow each other."""
        numbered = enumerate(zip(self._structure.rows, at.first_rows, strict=True))
        for _, run in groupby(numbered, _likeness):
            alike = [one for _, one in run]
            yield [group for group, _ in alike], alike[0][1]

    def _mass_matrix(self, at: ConstraintLayout, given: str) -> str:
        nodes, nv = self._nodes, at.nv
        place, there = np.zeros((nv, nv), dtype=np.int64), np.zeros((nv, nv))
        for number, (i, j) in enumerate(at.entries):
            place[i, j] = place[j, i] = number
            there[i, j] = there[j, i] = 1.0
        entries = nodes("Gather", given, nodes.integers(place.ravel()), axis=1)
        return nodes("Mul", nodes.reshape(entries, -1, nv, nv), nodes.reals(there))

    def _pushing(self, at: ConstraintLayout, given: str) -> tuple[str, str, str, None, RowKind] | None:
        """Return the one-sided rows, their residuals without acceleration, and their D; None without rows."""
        nodes = self._nodes
        parts = [self._edges(at, given)] if at.points else []
        for groups, first in self._groups(at):
            if groups[0].kind == "limit":
                rows, weight, rest, violation = self._group(given, groups, first)
                beyond = nodes("Greater", str(violation), _zero(nodes))
                parts.append((rows, rest, nodes("Where", beyond, weight, _zero(nodes))))
        if not parts:
            return None
        rows, rest, weights = (nodes("Concat", *column, axis=1) for column in zip(*parts, strict=True))
        return rows, rest, weights, None, "limit"

    def _edges(self, at: ConstraintLayout, given: str) -> tuple[str, str, str]:
        """Return rows, residuals and D of the edges of all friction pyramids."""
        nodes, nv, count = self._nodes, at.nv, at.points
        points = nodes.reshape(nodes.part(given, at.first_point, at.first_row), -1, count, PER_POINT)
        columns = nodes.reshape(nodes.part(given, at.columns, at.damping), -1, 1, nv, 6)
        place = nodes("Unsqueeze", nodes.part(points, 0, 3, 2), nodes.integers([2]))
        turned = self._cross(nodes.part(columns, 0, 3, 3), place)
        motion = nodes("Add", nodes.part(columns, 3, 6, 3), turned)
        normal, first = nodes.part(points, 3, 6, 2), nodes.part(points, 6, 9, 2)
        axes = [normal, first, self._cross(normal, first)]
        frame = nodes("Concat", *(nodes("Unsqueeze", x, nodes.integers([3])) for x in axes), axis=3)
        friction = nodes("Unsqueeze", nodes.part(points, 12, 13, 2), nodes.integers([3]))
        edges = nodes("Add", nodes.reals(_NORMAL), nodes("Mul", friction, nodes.reals(_TANGENTS)))
        moved = [group.chain for group in self._structure.groups for _ in range(group.points)]
        mask = np.zeros((count, nv, 1))
        for row, chain in enumerate(moved):
            mask[row, list(chain)] = 1.0
        along = nodes("MatMul", nodes("Mul", motion, nodes.reals(mask)), nodes("MatMul", frame, edges))
        rows = nodes.reshape(nodes("Transpose", along, perm=[0, 1, 3, 2]), -1, 4 * count, nv)
        velocity = nodes.reshape(nodes.part(given, at.velocity, at.columns), -1, nv, 1)
        damping = nodes.reshape(nodes.part(given, at.damping, at.first_point), -1, 1, 1)
        reference, weight = (self._four(nodes.part(points, i, i + 1, 2), count) for i in (11, 10))
        rest = nodes("Add", nodes("Mul", damping, nodes("MatMul", rows, velocity)), reference)
        touches = nodes("Greater", self._four(nodes.part(points, 9, 10, 2), count), _zero(nodes))
        return rows, rest, nodes("Where", touches, weight, _zero(nodes))

    def _four(self, value: str, count: int) -> str:
        """Repeat a number of each point for its four edges."""
        return self._nodes.reshape(self._nodes("Tile", value, self._nodes.integers([1, 1, 4])), -1, 4 * count, 1)

    def _cross(self, a: str, b: str) -> str:
        """Return cross products over the last axis."""
        nodes = self._nodes
        (a1, b1), (a2, b2) = (
            [nodes("Gather", x, nodes.integers(turn), axis=-1) for x in (a, b)] for turn in (_NEXT, _LAST)
        )
        return nodes("Sub", nodes("Mul", a1, b2), nodes("Mul", a2, b1))

    def iteration(self, nodes: OnnxNodes, given: list[str]) -> list[str]:
        """Add one Newton step on accelerations, active worlds and the greatest decrease so far."""
        a, live, scale = given
        apart = nodes("Sub", a, self.free)
        gradient = inert = nodes("MatMul", self._mass, apart)
        stiffness, costs = self._mass, self._costs(nodes, a)
        for cost in costs:
            gradient = nodes("Sub", gradient, cost.gather(cost.force))
            stiffness = nodes("Add", stiffness, cost.curvature())
        s = _solution(nodes, stiffness, nodes("Neg", gradient), self.nv)
        missed = _zero(nodes)
        for cost in costs:
            cost.go(s)
            missed = nodes("Add", missed, cost.deviation())
        fall = nodes("Neg", _dot(nodes, gradient, s))
        curved, sloped = _dot(nodes, s, nodes("MatMul", self._mass, s)), _dot(nodes, inert, s)
        scale = nodes("Max", scale, fall)
        searching = nodes("Greater", missed, nodes("Mul", nodes.reals(self._tiny), scale))
        searching = nodes("And", searching, nodes("Greater", live, _zero(nodes)))
        onward = nodes("Cast", searching, to=nodes.kind)
        zero, one, none = (nodes("Expand", nodes.reals([[[x]]]), nodes("Shape", live)) for x in (0.0, 1.0, -1.0))

        def search(inner: OnnxNodes, state: list[str]) -> list[str]:
            reach, low, high, still = state
            slope, bend = inner("Add", sloped, inner("Mul", reach, curved)), curved
            for cost in costs:
                falls, bends = cost.along(inner, reach)
                slope, bend = inner("Sub", slope, falls), inner("Add", bend, bends)
            steep = inner("Greater", inner("Abs", slope), inner("Mul", inner.reals(_FLAT), fall))
            steep = inner("And", steep, inner("Greater", still, _zero(inner)))
            ahead = inner("Less", slope, _zero(inner))
            low, high = inner("Where", ahead, reach, low), inner("Where", ahead, high, reach)
            following = inner("Sub", reach, inner("Div", slope, bend))
            outside = inner("Or", inner("LessOrEqual", following, low), inner("GreaterOrEqual", following, high))
            outside = inner("And", outside, inner("Greater", high, _zero(inner)))
            middle = inner("Mul", inner.reals(0.5), inner("Add", low, high))
            following = inner("Where", outside, middle, following)
            return [inner("Where", steep, following, reach), low, high, inner("Cast", steep, to=inner.kind)]

        begin = [one, zero, none, onward]
        reach = nodes.repeat(
            _SEARCHES, begin, search, lambda inner, x: inner("Greater", _greatest(inner, x[3]), _zero(inner))
        )[0]
        return [nodes("Add", a, nodes("Mul", nodes("Mul", live, reach), s)), onward, scale]

    def _costs(self, nodes: OnnxNodes, a: str) -> "list[_Cost]":
        return [_Cost(nodes, *rows, a) for rows in (self._pushes, *self._others) if rows]


class _Cost:
    """A cost of the rows y = R a + rest at given accelerations.

    The cost of limits is D / 2 min(0, y)^2, that of equalities D / 2 y^2. That of friction is Huber's function, whose
    slope is at most `most`.
    """

    def __init__(
        self, nodes: OnnxNodes, rows: str, rest: str, weights: str, most: str | None, kind: RowKind, a: str
    ) -> None:
        self._nodes, self._rows, self._weights, self._most, self._kind = nodes, rows, weights, most, kind
        self._turned = nodes("Transpose", rows, perm=[0, 2, 1])
        self._y = nodes("Add", nodes("MatMul", rows, a), rest)
        self.force, self._active = self.at(nodes, self._y)  # the force is minus the derivative by y
        self._step = ""

    def at(self, nodes: OnnxNodes, y: str) -> tuple[str, str]:
        """Return force and stiffness at a residual."""
        if self._kind == "equality":
            return nodes("Neg", nodes("Mul", self._weights, y)), self._weights
        if self._most is None:
            active = nodes("Where", nodes("Less", y, _zero(nodes)), self._weights, _zero(nodes))
            return nodes("Neg", nodes("Mul", active, y)), active
        whole = nodes("Neg", nodes("Mul", self._weights, y))
        force = nodes("Max", nodes("Min", whole, self._most), nodes("Neg", self._most))
        sliding = nodes("Greater", nodes("Abs", whole), self._most)
        return force, nodes("Where", sliding, _zero(nodes), self._weights)

    def gather(self, value: str) -> str:
        """Return R^T times a value of each row."""
        return self._nodes("MatMul", self._turned, value)

    def curvature(self) -> str:
        """Return R^T W R."""
        return self.gather(self._nodes("Mul", self._active, self._rows))

    def go(self, s: str) -> None:
        """Set the step of the accelerations."""
        self._step = self._nodes("MatMul", self._rows, s)

    def deviation(self) -> str:
        """Return how far the force after the step deviates from its linear prediction, squared, weighted by 1 / D."""
        nodes = self._nodes
        after, _ = self.at(nodes, nodes("Add", self._y, self._step))
        linear = nodes("Sub", self.force, nodes("Mul", self._active, self._step))
        lost = nodes("Sub", linear, after)
        least = nodes.reals(np.finfo(nodes.dtype).tiny)
        return nodes.sum(nodes("Div", nodes("Mul", lost, lost), nodes("Max", self._weights, least)), 1, keep=True)

    def along(self, nodes: OnnxNodes, reach: str) -> tuple[str, str]:
        """Return force and stiffness along the step, at the fraction `reach` of it."""
        force, active = self.at(nodes, nodes("Add", self._y, nodes("Mul", reach, self._step)))
        bends = nodes("Mul", active, nodes("Mul", self._step, self._step))
        return _dot(nodes, force, self._step), nodes.sum(bends, 1, keep=True)


def _one_hot(dofs: Sequence[int], nv: int) -> np.ndarray:
    rows = np.zeros((len(dofs), nv))
    rows[np.arange(len(dofs)), list(dofs)] = 1.0
    return rows


def _dot(nodes: OnnxNodes, a: str, b: str) -> str:
    return nodes.sum(nodes("Mul", a, b), 1, keep=True)


def _solution(nodes: OnnxNodes, matrix: str, right: str, size: int) -> str:
    """Solve a symmetric positive definite system by elimination from the last row to the first."""
    both = nodes("Concat", matrix, right, axis=2)
    for k in range(size - 1, -1, -1):
        row, column = nodes.part(both, k, k + 1, 1), nodes.part(both, k, k + 1, 2)
        unit = np.zeros((size, 1))
        unit[k] = 1.0
        row = nodes("Div", row, nodes.part(row, k, k + 1, 2))
        both = nodes("Sub", both, nodes("Mul", nodes("Sub", column, nodes.reals(unit)), row))
    return nodes.part(both, size, size + 1, 2)
