# SPDX-License-Identifier: Apache-2.0
"""The state of a step beyond positions and velocities: delay lines, motors behind springs, hidden states.

It starts at zero. Its first number is 0 before the first step and 1 afterwards. The first step assumes that every
quantity has always been constant, and that motors are where their joints are.
"""

from typing import Any

from neurodyn.multibody.trace import Graph, Scalar, maximum, minimum, select_less


class StepMemory:
    """The memory of a traced step: numbers by name, in order of first use."""

    def __init__(self, graph: Graph, first: int) -> None:
        """Begin a step; `first` is the index at which the memory begins in the state."""
        self._graph, self._first = graph, first
        self.names: list[str] = []
        self._after: dict[str, Scalar] = {}

    @property
    def size(self) -> int:
        """Number of numbers."""
        return len(self.names)

    def after(self) -> list[Scalar]:
        """Return the memory after the step."""
        return [self._after[name] for name in self.names]

    def recall(self, name: str, otherwise: Scalar) -> Any:
        """Return a number that the previous step kept; `otherwise` in the first step."""
        started = self._slot("started")
        self._after["started"] = 1.0
        return select_less(started, 0.5, otherwise, self._slot(name))

    def keep(self, name: str, value: Scalar) -> None:
        """Keep a number for the next step, under a name that has been recalled."""
        self._after[name] = value

    def line(self, name: str, value: Scalar, length: int) -> list[Any]:
        """Return a quantity now, one step ago, ..., `length - 1` steps ago."""
        past = [self.recall(f"{name} {age} steps ago", value) for age in range(1, length)]
        whole = [value, *past]
        for age in range(1, length):
            self.keep(f"{name} {age} steps ago", whole[age - 1])
        return whole

    def _slot(self, name: str) -> Scalar:
        if name not in self.names:
            self.names.append(name)
        return self._graph.input("x", self._first + self.names.index(name))


def delayed(line: list[Any], age: Any) -> Any:
    r"""Return a value of a delay line, newest first, at an age in steps, by linear interpolation.

    $$x(a) = \sum_j \left(c(a - j + 1) - c(a - j)\right) x_j, \qquad c(y) = \min(1, \max(y, 0))$$

    For a signal that is constant over steps, this is the mean over a step of the signal delayed by a; the derivative
    with respect to a is taken from the right. The age is clamped to the length of the line.
    """
    last = len(line) - 1
    age = minimum(age, float(last))
    shares = [minimum(1.0, maximum(age - j, 0.0)) for j in range(last + 1)]
    value = line[0] * (1.0 - shares[0])
    for j in range(1, last + 1):
        value = value + line[j] * (shares[j - 1] - shares[j])
    return value
