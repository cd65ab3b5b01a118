# SPDX-License-Identifier: Apache-2.0
"""A task's observations, rewards and failures as one compiled program, traced from its torch code.

A window of few worlds spends more time in the calls of a hundred small torch operations than in the robot's dynamics.
Tasks are written once, in torch; what their functions do with one world is compiled, with its gradients. Quantities
that kernels measure (contacts) and the memory of the task are inputs.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

import torch
from torch import Tensor

from neurodyn.core.errors import InputError
from neurodyn.dynamics.batch import State
from neurodyn.dynamics.quantities import Quantities
from neurodyn.multibody.trace import Graph, Scalar
from neurodyn.multibody.trace.expression import Expression
from neurodyn.multibody.trace.function import CompiledFunction
from neurodyn.tasks import Memory, Task
from neurodyn.tasks.observations import CRITIC

_ALIKE = 1e-3
"""Tolerance of the check that a world's values do not depend on the others."""


@dataclass(frozen=True)
class TaskView:
    """What a task says of the worlds at the end of a frame.

    Attributes:
        reading: The policy's observations without errors, shape [worlds, observations].
        judged: What a critic sees of sensed tasks, shape [worlds, columns]; the same otherwise.
        parts: Reward terms, shape [terms, worlds].
        failed: Whether the robot failed, shape [worlds], bool.
    """

    reading: Tensor
    judged: Tensor
    parts: Tensor
    failed: Tensor


def look(task: Task, now: Quantities, before: Memory, after: Memory, action: Tensor) -> TaskView:
    """Return what a task says of a frame, by torch.

    Args:
        task: The task.
        now: Quantities at the end of the frame.
        before: Task memory at its start.
        after: Task memory at its end.
        action: Actions during the frame, shape [worlds, actions].
    """
    reading = task.observe(now, after)
    judged = task.groups[CRITIC](now, after) if CRITIC in task.groups else reading
    parts = torch.stack(list(task.reward(now, before, action).values()))
    return TaskView(reading, judged, parts, task.terminated(now, before))


class _Reader(dict[str, Tensor]):
    """Quantities that are inputs of a program, by name; records which are read."""

    def __init__(self, now: Quantities) -> None:
        super().__init__()
        self._now = now

    def __missing__(self, name: str) -> Tensor:
        self[name] = self._now[name]
        return self[name]


class TaskProgram:
    """A compiled `look`, for one task and one robot on a CPU.

    Attributes:
        names: Names of the reward terms.
    """

    def __init__(
        self, task: Task, read: Callable[[State], Quantities], measured: Sequence[str], now: Quantities,
        before: Memory, after: Memory, action: Tensor,
    ) -> None:  # fmt: skip
        """Trace a task.

        Args:
            task: The task.
            read: Returns the quantities of states.
            measured: Names of quantities that are inputs, where the task reads them.
            now: Quantities at the end of an example of a frame.
            before: Task memory at its start.
            after: Task memory at its end.
            action: Actions during the frame, shape [worlds, actions].

        Raises:
            InputError: The task uses an operation that cannot be traced, or its worlds depend on each other.
        """
        self._task, self._read = task, read
        known = _Reader(now)
        offered = [name for name in measured if name in now]
        example = look(task, now.replacing({name: partial(_given, known, name) for name in offered}), before, after,
                       action)  # fmt: skip
        self.names = tuple(task.reward(now, before, action))
        self._measured = {name: tuple(known[name].shape[1:]) for name in list(known)}
        self._apart = CRITIC in task.groups
        self._sizes = (example.reading.shape[1], example.judged.shape[1] * self._apart, len(example.parts), 1)
        parts = self._gather(now, before, after, action)
        widths = {name: part.shape[1] for name, part in parts.items()}
        graph = Graph()
        outputs = self._trace(graph, list(widths), [graph.inputs(name, width) for name, width in widths.items()])
        used = _arrays(graph, [graph.lift(x).index for x in outputs])
        self._used = [name for name in widths if name in used]
        self._function = CompiledFunction(
            [widths[name] for name in self._used], len(outputs), partial(self._trace_used, widths)
        )
        with torch.no_grad():
            self._require_equal(self(now, before, after, action), example)

    def __call__(self, now: Quantities, before: Memory, after: Memory, action: Tensor) -> TaskView:
        """Return what the task says of a frame; arguments: see `look`."""
        parts = self._gather(now, before, after, action)
        table = self._function(*(parts[name] for name in self._used))
        reading, judged, terms, failed = table.split(self._sizes, 1)
        return TaskView(reading, judged if self._apart else reading, terms.t(), failed.detach()[:, 0] > 0.5)

    def _require_equal(self, found: TaskView, example: TaskView) -> None:
        for name in ("reading", "judged", "parts"):
            one, other = getattr(found, name), getattr(example, name)
            if not torch.allclose(one, other, rtol=_ALIKE, atol=_ALIKE, equal_nan=True):
                raise InputError(f"task {self._task.name!r}: one world alone is not what it is among others")

    def _gather(self, now: Quantities, before: Memory, after: Memory, action: Tensor) -> dict[str, Tensor]:
        """Return the inputs by name, shape [worlds, width] each."""
        state = now.state
        parts = {"q": state.q, "qd": state.qd, "action": action}
        if state.channels is not None:
            parts["channels"] = state.channels
        for name in self._measured:
            parts[f"quantity {name}"] = now[name].flatten(1)
        for when, memory in (("before", before), ("after", after)):
            for field in fields(memory):
                values = getattr(memory, field.name)
                parts[f"{when} {field.name}"] = values if values.ndim == 2 else values[:, None].to(action.dtype)
        return {name: part for name, part in parts.items() if part.shape[1]}

    def _trace_used(self, widths: dict[str, int], graph: Graph, given: list[list[Expression]]) -> list[Scalar]:
        known = dict(zip(self._used, given, strict=True))
        zero = graph.constant(0.0)
        return self._trace(graph, list(widths), [known.get(name, [zero] * width) for name, width in widths.items()])

    def _trace(self, graph: Graph, names: list[str], given: list[list[Expression]]) -> list[Scalar]:
        from neurodyn.multibody.trace.tensors import trace  # imports torch.fx

        try:
            results = trace(graph, partial(self._tensors, names), given, f"task {self._task.name!r}")
        except (ValueError, RuntimeError, KeyError, NotImplementedError, TypeError) as error:
            raise InputError(f"task {self._task.name!r}: cannot be compiled: {error}") from None
        return [x for result in results for x in result]

    def _tensors(self, names: list[str], *given: Tensor) -> tuple[Tensor, ...]:
        """Compute the outputs from the inputs, shape [1, width] each, in torch."""
        parts = dict(zip(names, given, strict=True))
        state = State.make_unchecked(q=parts["q"], qd=parts["qd"], channels=parts.get("channels"))
        makers = {
            name: partial(_value, parts[f"quantity {name}"].reshape(1, *shape))
            for name, shape in self._measured.items()
        }
        now = self._read(state).replacing(makers)
        before, after = (self._memory(parts, when) for when in ("before", "after"))
        seen = look(self._task, now, before, after, parts["action"])
        judged = (seen.judged,) if self._apart else ()
        return (seen.reading, *judged, seen.parts.t(), seen.failed.to(seen.reading)[:, None])

    @staticmethod
    def _memory(parts: dict[str, Tensor], when: str) -> Memory:
        like = parts["action"]
        values: dict[str, Any] = {}
        for field in fields(Memory):
            value = parts.get(f"{when} {field.name}", like[:, :0])
            values[field.name] = value[:, 0] if field.name == "frame" else value
        return Memory(**values)


def _given(known: _Reader, name: str, _: Quantities) -> Tensor:
    return known[name]


def _value(value: Tensor, _: Quantities) -> Tensor:
    return value


def _arrays(graph: Graph, outputs: list[int]) -> set[str]:
    """Return the input arrays that nodes depend on."""
    waiting, seen, found = list(outputs), set[int](), set[str]()
    while waiting:
        index = waiting.pop()
        if index in seen:
            continue
        seen.add(index)
        node = graph.nodes[index]
        if node[0] == "input":
            found.add(node[1])
        waiting += graph.arguments(index)
    return found
