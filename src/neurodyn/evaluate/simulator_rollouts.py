# SPDX-License-Identifier: Apache-2.0
"""Roll-outs of a reference simulator in several processes: pieces of few worlds, whatever the number of processes.

Worlds of a simulator do not depend on each other, and 64 of them are simulated as fast, each, as 512.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from types import TracebackType
from typing import Any, Self

import torch
from torch import Tensor

from neurodyn.core.cores import resolve_threads
from neurodyn.core.progress import counted
from neurodyn.core.workers import Workers
from neurodyn.dynamics.analytic.model import AnalyticDynamics
from neurodyn.dynamics.interface import State, Trajectory, present_state
from neurodyn.evaluate.engine import Batch, Rolled, follow, roll_out
from neurodyn.learn.devices import threads
from neurodyn.robots import Robot

_PIECE, _FLOATING_PIECE = 128, 64
"""Worlds that are simulated at once, of robots on a fixed base and of slower ones."""


@dataclass(frozen=True)
class Asked:
    """Roll-outs that are asked for.

    Attributes:
        batch: Their starts.
        half_step: Whether the simulator takes steps of half the length.
    """

    batch: Batch
    half_step: bool = False


class SimulatorRollouts:
    """Rolls the simulator of a robot out, in one process or in several; a context manager.

    What is asked for is begun at once, and simulated in other processes while this one does something else.
    """

    def __init__(self, robot: Robot, threads: int | None = None) -> None:
        """Prepare roll-outs.

        Args:
            robot: The robot.
            threads: Processes; None for one on each available core. Results do not depend on it.

        Raises:
            InputError: `threads` is below 1.
        """
        self._size = _PIECE if robot.fixed_base else _FLOATING_PIECE
        self._workers = Workers(_Simulate(robot), resolve_threads(threads))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._workers.__exit__(kind, error, trace)

    def begin(self, asked: Mapping[str, Asked]) -> "Pending":
        """Begin roll-outs, each of which has a name."""
        pieces = {name: list(self._pieces(one)) for name, one in asked.items()}
        every = [piece for some in pieces.values() for piece in some]
        return Pending({name: len(some) for name, some in pieces.items()}, self._workers.map(every))

    def _pieces(self, asked: Asked) -> Iterator[Asked]:
        batch, size = asked.batch, self._size
        for begin in range(0, len(batch.past.q), size):
            yield replace(asked, batch=_rows(batch, slice(begin, begin + size)))


class Pending:
    """Roll-outs that were begun."""

    def __init__(self, counts: dict[str, int], results: Iterator[Rolled]) -> None:
        self._counts, self._results = counts, results

    def collect(self) -> dict[str, Rolled]:
        """Return all roll-outs by name; their times are those of all processes together."""
        found, results = {}, counted(self._results, sum(self._counts.values()))
        for name, count in self._counts.items():
            parts = [next(results) for _ in range(count)]
            path = Trajectory.joined([part.path for part in parts])
            found[name] = Rolled(path, sum(part.seconds for part in parts), sum(part.cpu_seconds for part in parts))
        return found


class _Simulate:
    """Rolls a simulator out; each process has worlds of its own, built when they are first needed."""

    def __init__(self, robot: Robot) -> None:
        self._robot = robot
        self._warm: set[tuple[int, bool]] = set()

    def __reduce__(self) -> tuple[Any, ...]:
        return _Simulate, (self._robot,)

    def __call__(self, asked: Asked) -> Rolled:
        dynamics = self._halved if asked.half_step else self._declared
        size = len(asked.batch.past.q), asked.half_step
        with threads(1), torch.no_grad():
            if size not in self._warm:  # compile kernels and fill caches before anything is timed
                self._warm.add(size)
                follow(dynamics, replace(asked.batch, drive=asked.batch.drive.until(2)))
            return roll_out(dynamics, [asked.batch])

    @cached_property
    def _declared(self) -> AnalyticDynamics:
        return AnalyticDynamics(self._robot)

    @cached_property
    def _halved(self) -> AnalyticDynamics:
        return AnalyticDynamics(self._robot, substeps=2 * self._robot.simulator.substeps)


def _rows(batch: Batch, rows: slice) -> Batch:
    """Return some of the starts, in memory of their own where that is less to send to another process."""
    environment = None if batch.environment is None else batch.environment.rows(rows)
    start = present_state(batch.past).rows(rows)
    own = State(*(_compact(x) for x in (start.q, start.qd)))
    drive = batch.drive.worlds(rows)
    return Batch(own, replace(drive, **{n: _compact(x) for n, x in vars(drive).items() if x is not None}), environment)


def _compact(values: Tensor) -> Tensor:
    """Return values without what lies beside them in memory; what is repeated in memory stays so."""
    held = values.untyped_storage().nbytes()
    return values.clone() if held > values.numel() * values.element_size() else values
