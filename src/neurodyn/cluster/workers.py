# SPDX-License-Identifier: Apache-2.0
"""Function calls on the workers of a Ray cluster: results in order, calls of lost workers repeated.

A worker is one process on one core for as long as the cluster is open. It keeps its last function, with anything the
function builds in its first call. Results do not depend on the worker that makes a call.
"""

import contextlib
import os
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from neurodyn.cluster.connection import connected, require_ray
from neurodyn.core.errors import InputError, notice
from neurodyn.core.provenance import __version__
from neurodyn.core.workers import AHEAD, outcome_of

T = TypeVar("T")
R = TypeVar("R")

_QUEUED = 2
"""Maximum calls per worker: the current one and the next."""
_TRIES = 3
"""Number of workers lost at one call after which the call is to blame."""
_SILENCE = 30.0
"""Time without any worker after which a notice is issued [s]."""


class Cluster:
    """The workers of a Ray cluster; a context manager, and an executor for `generate` and `identify`.

    Example:
        `with Cluster("local", workers=4) as cluster: generate(robot, ..., executor=cluster)`

    Attributes:
        count: Number of workers.
    """

    def __init__(self, address: str = "auto", *, workers: int | None = None, memory: float | None = None) -> None:
        """Describe a cluster; entering the context connects to it.

        Args:
            address: "local" to start Ray on this machine, "auto" for the cluster of this machine, or HOST:PORT of a
                head.
            workers: Workers, each on one core; None for one per core of the cluster.
            memory: Memory limit of a worker [GB]; None for none.

        Raises:
            InputError: Ray is not installed, or a number is out of range.
        """
        if workers is not None and workers < 1:
            raise InputError(f"workers is {workers}; valid: at least 1")
        if memory is not None and not 0 < memory < float("inf"):
            raise InputError(f"worker memory is {memory:g} GB; valid: a finite number above 0")
        self._ray = require_ray()
        self._address, self._asked, self._memory = address, workers, memory
        self._context = contextlib.ExitStack()
        self._crew: list[_Worker] = []
        self._keys = count()
        self.count = workers or 1

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as context:
            context.enter_context(connected(self._address, self._asked))
            context.callback(self._dismiss)
            self._enlist()
            self._context = context.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._context.__exit__(kind, error, trace)

    def workers(self, function: Callable[[T], R]) -> "ClusterCalls[T, R]":
        """Return calls of a module-level function or of a picklable object, copied to each worker."""
        return ClusterCalls(self, next(self._keys), self._ray.put(function), self.count)

    def _enlist(self) -> None:
        there = self._ray.cluster_resources()
        cores, free = int(there.get("CPU", 0)), there.get("memory", 0.0)
        if self._asked is not None and self._asked > cores:
            raise InputError(f"workers is {self._asked}, and the cluster has {cores} cores; valid: at most that many")
        if self._memory is not None and self._memory * 1e9 > free:
            raise InputError(
                f"worker memory is {self._memory:g} GB, and the cluster has {free / 1e9:.1f} GB for workers; valid: "
                "less than that"
            )
        if not cores:
            raise InputError("the cluster has no cores for workers; valid: `ray start` with --num-cpus above 0")
        self.count = self._asked or cores
        self._crew = [self._hire() for _ in range(self.count)]

    def _hire(self) -> "_Worker":
        """Start a worker, which takes calls once it has replied."""
        ray = self._ray
        options: dict[str, Any] = {"num_cpus": 1, "max_restarts": 0, "max_task_retries": 0}
        if self._memory is not None:
            options["memory"] = int(self._memory * 1e9)
        actor = ray.remote(**options)(Server).remote(self._memory)
        return _Worker(actor, actor.hello.remote())

    def replace(self, worker: "_Worker") -> None:
        """Start a worker in place of a lost one."""
        if worker in self._crew:
            self._crew[self._crew.index(worker)] = self._hire()

    def ready(self) -> list["_Worker"]:
        """Return the workers that are ready for a call, least busy first."""
        return sorted((w for w in self._crew if w.answered and w.calls < _QUEUED), key=lambda worker: worker.calls)

    def starting(self) -> dict[Any, "_Worker"]:
        """Return the workers that have not replied yet, by Ray's reference to the reply."""
        return {worker.answer: worker for worker in self._crew if not worker.answered}

    def _dismiss(self) -> None:
        crew, self._crew = self._crew, []
        for worker in crew:
            with contextlib.suppress(Exception):  # the worker or the head is gone
                self._ray.kill(worker.actor)


@dataclass(eq=False)
class _Worker:
    """A worker, as seen by its caller.

    Attributes:
        actor: Ray's handle.
        answer: Ray's reference to the first reply.
        answered: Whether the first reply has arrived.
        calls: Unfinished calls.
    """

    actor: Any
    answer: Any
    answered: bool = False
    calls: int = 0


class Server:
    """The object in a worker process."""

    def __init__(self, memory: float | None) -> None:
        """Limit the process memory [GB], before anything large is imported; None for no limit."""
        limit_process(memory)
        self._key: int | None = None
        self._function: Any = None

    def hello(self) -> str:
        """Return this process's version of neurodyn."""
        return __version__

    def call(self, key: int, function: list[Any], argument: Any) -> tuple[bool, Any]:
        """Return whether a call succeeded, and its result or its error.

        `key` is the number of the function, and `function` holds Ray's reference to it.
        """
        if key != self._key:
            self._function = require_ray().get(function[0])
            self._key = key
        return outcome_of(self._function, argument)


def limit_process(memory: float | None, cores: int = 1) -> None:
    """Limit this process's tensor-operation threads, and its memory [GB]."""
    os.environ["OMP_NUM_THREADS"] = str(cores)
    if memory is not None:
        with contextlib.suppress(ImportError):  # Windows
            import resource

            _, hard = resource.getrlimit(resource.RLIMIT_DATA)
            wanted = int(memory * 1e9)
            resource.setrlimit(resource.RLIMIT_DATA, (wanted if hard < 0 else min(wanted, hard), hard))


class ClusterCalls(Generic[T, R]):
    """Calls of one function on the workers of a cluster; a context manager, like `core.workers.Workers`.

    Attributes:
        count: Number of workers.
    """

    def __init__(self, cluster: Cluster, key: int, function: Any, workers: int) -> None:
        self.count = workers
        self._cluster, self._key, self._function = cluster, key, function

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._function = None

    def map(self, arguments: Sequence[T]) -> Iterator[R]:
        """Return an iterator over the results, in argument order; the first calls start now.

        Raises:
            InputError: Several workers were lost at one call, a worker cannot run this package, or the head is dead.
        """
        run = _Run(self._cluster, self._key, self._function, arguments)
        run.hand_out()
        return run.results()


class _Run(Generic[T, R]):
    """Calls for some arguments: those in progress, lost workers, and results that wait for earlier ones."""

    def __init__(self, cluster: Cluster, key: int, function: Any, arguments: Sequence[T]) -> None:
        self._cluster, self._key, self._function, self._arguments = cluster, key, function, arguments
        self._ray = require_ray()
        self._left = deque(range(len(arguments)))
        self._given = 0
        self._running: dict[Any, tuple[int, _Worker]] = {}
        self._outcomes: dict[int, tuple[bool, Any]] = {}
        self._losses: Counter[int] = Counter()
        self._failed_starts = 0

    def results(self) -> Iterator[R]:
        """Yield all results in order."""
        while self._given < len(self._arguments):
            self.hand_out()
            if self._given not in self._outcomes:
                self._wait()
                continue
            fine, value = self._outcomes.pop(self._given)
            self._given += 1
            if not fine:
                raise value
            yield value

    def hand_out(self) -> None:
        """Give calls to the workers that can take one."""
        ahead = self._given + AHEAD * self._cluster.count
        while self._left and self._left[0] < ahead and (ready := self._cluster.ready()):
            worker, number = ready[0], self._left.popleft()
            worker.calls += 1
            argument = self._arguments[number]
            self._running[worker.actor.call.remote(self._key, [self._function], argument)] = number, worker

    def _wait(self) -> None:
        """Wait until a call is done, or a worker has started or is lost."""
        starting, begin = self._cluster.starting(), time.monotonic()
        done, _ = self._ray.wait([*self._running, *starting], num_returns=1, timeout=_SILENCE)
        if not done and not self._running and time.monotonic() - begin >= _SILENCE:
            notice(
                f"no worker has started after {_SILENCE:.0f} s: other jobs hold the cluster's cores or memory (see "
                "`ray status`); this one goes on as soon as some are free"
            )
        for reference in done:
            if reference in starting:
                self._admit(starting[reference])
            else:
                self._collect(reference)

    def _admit(self, worker: _Worker) -> None:
        try:
            version = self._ray.get(worker.answer)
        except self._ray.exceptions.RayError as error:
            self._failed_starts += 1
            if self._failed_starts >= _TRIES:
                last = (str(error).strip().splitlines() or ["no reason given"])[-1]
                raise InputError(
                    f"workers of the cluster do not start ({last}); valid: neurodyn installed on each machine, and "
                    "memory for it"
                ) from None
            self._cluster.replace(worker)
            return
        if version != __version__:
            raise InputError(
                f"a worker of the cluster runs neurodyn {version}, and this is {__version__}; valid: the same version "
                "on each machine"
            )
        worker.answered = True

    def _collect(self, reference: Any) -> None:
        number, worker = self._running.pop(reference)
        worker.calls -= 1
        try:
            self._outcomes[number] = self._ray.get(reference)
        except self._ray.exceptions.RayTaskError:
            raise
        except self._ray.exceptions.RayError:
            self._record_loss(number, worker)

    def _record_loss(self, number: int, worker: _Worker) -> None:
        """Queue the call of a lost worker again, and start another worker."""
        self._losses[number] += 1
        if self._losses[number] >= _TRIES:
            raise InputError(
                f"{_TRIES} workers of the cluster ended at the same piece of work (number {number}), for lack of "
                "memory as a rule; valid: fewer workers on a machine, or smaller pieces"
            )
        notice("a worker of the cluster was lost; what it was at is done again")
        self._left = deque(sorted((number, *self._left)))
        self._cluster.replace(worker)
