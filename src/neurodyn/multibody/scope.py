# SPDX-License-Identifier: Apache-2.0
r"""The named quantities of one traced step, and the networks that act on them.

The dynamics pass every quantity through `Scope.define` under its name and continue with the result. A blueprint can
therefore change the dynamics without changing their code.

A network with a memory of m numbers h takes them as further inputs. It has 2 m further outputs, candidates c and gates
g:

$$h_{t+1} = h_t + \min(1, dt/T)\ \sigma(g) (\tanh(c) - h_t)$$

with the shortest time constant T. The memory starts at zero. A delayed input comes from a delay line
(`StepMemory`).
"""

from collections.abc import Callable, Mapping
from typing import Any

from neurodyn.core.description.blueprint import Augmentation, Blueprint, split_age
from neurodyn.core.errors import InputError, among
from neurodyn.multibody.network import network_loop
from neurodyn.multibody.structures import FORMS, ActingNetwork, AddedInertia
from neurodyn.multibody.trace import Graph, Scalar, apply_loop, cos, maximum, minimum, select_less, sin, tanh

_DERIVED: dict[str, Callable[[Scalar], Scalar]] = {"sin": sin, "cos": cos}
"""Functions of a quantity that an input may name, e.g. "sin(q.elbow)"."""


class StepMemory:
    """The memory of a traced step: numbers by name, in order of first use."""

    def __init__(self, graph: Graph, first: int) -> None:
        """Begin a step; the memory starts at index `first` of the state."""
        self._graph, self._first = graph, first
        self.names: list[str] = []
        self._after: dict[str, Scalar] = {}

    @property
    def size(self) -> int:
        """Length of the memory."""
        return len(self.names)

    def after(self) -> list[Scalar]:
        """Return the memory after the step."""
        return [self._after[name] for name in self.names]

    def recall(self, name: str, otherwise: Scalar) -> Any:
        """Return a number kept by the previous step; `otherwise` in the first step."""
        started = self._slot("started")
        self._after["started"] = 1.0
        return select_less(started, 0.5, otherwise, self._slot(name))

    def keep(self, name: str, value: Scalar) -> None:
        """Keep a number for the next step, under a name that has been recalled."""
        self._after[name] = value

    def kept_now(self, name: str) -> Any:
        """Return what has been kept in this step."""
        return self._after[name]

    def delay_line(self, name: str, value: Scalar, length: int) -> list[Any]:
        """Return a delay line of a quantity: its values now, one step ago, ..., `length - 1` steps ago."""
        past = [self.recall(f"{name} {age} steps ago", value) for age in range(1, length)]
        whole = [value, *past]
        for age in range(1, length):
            self.keep(f"{name} {age} steps ago", whole[age - 1])
        return whole

    def _slot(self, name: str) -> Scalar:
        if name not in self.names:
            self.names.append(name)
        return self._graph.input("x", self._first + self.names.index(name))


def delay(line: list[Any], age: Any) -> Any:
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


class Scope:
    """The named quantities of a step.

    Attributes:
        inertias: Mass matrix contributions of networks so far.
        without_networks: Values of the quantities that networks act on, without the networks, so far.
    """

    def __init__(
        self, graph: Graph, constants: Mapping[str, Scalar], blueprint: Blueprint, memory: StepMemory, step: float
    ) -> None:
        """Begin a step of length `step` [s]; `constants` do not depend on the state and may be parameters."""
        self._graph, self._memory, self._step = graph, memory, step
        self._constants = constants
        self._values: dict[str, Scalar] = {}
        self._acting: dict[str, tuple[int, int]] = {}
        self.inertias: list[AddedInertia] = []
        self.without_networks: dict[str, Scalar] = {}
        for index, augmentation in enumerate(blueprint.augmentations):
            self._acting |= {name: (index, output) for output, name in enumerate(augmentation.quantities)}
        self._blueprint = blueprint
        self._outputs: dict[int, list[Scalar]] = {}
        self._past: dict[tuple[str, float], Scalar] = {}
        self._in_progress: list[int] = []  # networks whose inputs are being computed

    @property
    def computed(self) -> tuple[str, ...]:
        """Names of the quantities used so far, in order of use."""
        return tuple(self._values)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all known quantities: `computed`, then the remaining constants."""
        return (*self._values, *(name for name in self._constants if name not in self._values))

    def acted_on(self, name: str) -> bool:
        """Return whether a network acts on a quantity."""
        return name in self._acting

    def define(self, name: str, value: Scalar) -> Scalar:
        """Name a quantity; return its value with the effect of the blueprint's networks."""
        if name in self._acting:
            self.without_networks[name] = value
            value = self._augment(name, value)
        self._values[name] = value
        return value

    def __call__(self, name: str) -> Scalar:
        """Return a defined or constant quantity."""
        if name not in self._values:
            self.define(name, self._constants[name])
        return self._values[name]

    def require_acted(self) -> None:
        """Raise InputError if the blueprint acts on a quantity that the step has not used."""
        for name in self._acting:
            if name not in self._values:
                raise InputError(f"blueprint: there is no quantity {name!r} to act on{among(name, self.computed)}")

    def _augment(self, name: str, value: Scalar) -> Scalar:
        index, output = self._acting[name]
        augmentation = self._blueprint.augmentations[index]
        if index not in self._outputs:
            self._outputs[index] = self._network(index, augmentation, name)
        given = self._outputs[index][output]
        if augmentation.mode == "replace":
            return given
        return value + given if augmentation.mode == "add" else value * (1.0 + given)

    def _network(self, index: int, augmentation: Augmentation, name: str) -> list[Scalar]:
        """Return a network's effect on each of its quantities, and keep its memory."""
        scales = augmentation.input_scale or (1.0,) * len(augmentation.inputs)
        self._in_progress.append(index)
        inputs = [self._input(x, name, augmentation) / s for x, s in zip(augmentation.inputs, scales, strict=True)]
        self._in_progress.pop()
        names = [f"network {index} hidden {k}" for k in range(augmentation.memory)]
        hidden = [self._memory.recall(name, 0.0) for name in names]
        begin = self._blueprint.firsts[index]
        loop = network_loop(augmentation, begin, f"network of {', '.join(augmentation.quantities)}")
        outputs = apply_loop(self._graph, loop, [*inputs, *hidden])
        first = augmentation.outputs
        candidates, gates = outputs[first : first + len(hidden)], outputs[first + len(hidden) :]
        rate = min(1.0, self._step / augmentation.memory_time)
        for name, before, candidate, gate in zip(names, hidden, candidates, gates, strict=True):
            share = rate * 0.5 * (1.0 + tanh(0.5 * gate))
            self._memory.keep(name, before + share * (tanh(candidate) - before))
        net = ActingNetwork(augmentation, self._graph, begin, inputs, outputs[:first], self, self.inertias)
        return FORMS[augmentation.structure](net)

    def _input(self, name: str, of: str, augmentation: Augmentation) -> Scalar:
        function, inner, age = _parse(name)
        if inner in augmentation.quantities:
            raise InputError(f"blueprint: {inner!r} is an input of the network that acts on it; name other inputs")
        if self._forms_cycle(inner):
            raise InputError(f"blueprint: {of!r} and {inner!r} form a cycle: each would be computed from the other")
        if inner in self._values or inner in self._constants:
            return function(self._delay(inner, age))
        raise InputError(
            f"blueprint: input {name!r} of {of!r} is not known when {of!r} is computed"
            f"{among(inner, self.names)}, and sin() or cos() of one"
        )

    def _delay(self, name: str, age: float) -> Scalar:
        """Return a quantity delayed by `age` [s]."""
        if not age:
            return self(name)
        if (name, age) not in self._past:
            steps = age / self._step
            line = self._memory.delay_line(f"{name} for {age:g} s", self(name), int(steps - 1e-9) + 2)
            self._past[name, age] = delay(line, steps)
        return self._past[name, age]

    def _forms_cycle(self, name: str) -> bool:
        """Return whether computing a quantity would need one that is being computed."""
        seen: set[str] = set()
        waiting = [] if name in self._values else [name]
        while waiting:
            name = waiting.pop()
            if name in seen or name not in self._acting:
                continue
            seen.add(name)
            index, _ = self._acting[name]
            if index in self._in_progress:
                return True
            waiting += [_parse(x)[1] for x in self._blueprint.augmentations[index].inputs]
        return False


def _parse(name: str) -> tuple[Callable[[Scalar], Scalar], str, float]:
    """Return the function, the quantity and the age that an input names."""
    for function, apply in _DERIVED.items():
        if name.startswith(f"{function}(") and name.endswith(")"):
            return apply, *split_age(name[len(function) + 1 : -1])
    return lambda value: value, *split_age(name)
