# SPDX-License-Identifier: Apache-2.0
"""Function calls on the workers of a Ray cluster: results in order, calls of lost workers repeated by Ray.

A worker is one process on one core for as long as the cluster is open. It keeps its last function, with anything the
function builds in its first call. Results do not depend on the worker that makes a call.
"""

import contextlib
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from neurodyn.cluster.connection import connect, require_ray
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
        crew: Ray's handles of them, while the cluster is open.
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
        self._keys = count()
        self.count = workers or 1
        self.crew: list[Any] = []

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as context:
            context.enter_context(connect(self._address, self._asked))
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
        return ClusterCalls(self, next(self._keys), self._ray.put(function))

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
        options: dict[str, Any] = {"num_cpus": 1, "max_restarts": -1, "max_task_retries": _TRIES - 1}
        if self._memory is not None:
            options["memory"] = int(self._memory * 1e9)
        server = self._ray.remote(**options)(Server)
        self.crew = [server.remote(self._memory) for _ in range(self.count)]

    def _dismiss(self) -> None:
        crew, self.crew = self.crew, []
        for worker in crew:
            with contextlib.suppress(Exception):  # the worker or the head is gone
                self._ray.kill(worker)


class Server:
    """The object in a worker process."""

    def __init__(self, memory: float | None) -> None:
        """Limit the process memory [GB], before anything large is imported; None for no limit."""
        limit_process(memory)
        self._key: int | None = None
        self._function: Any = None

    def call(self, key: int, function: list[Any], argument: Any) -> tuple[str, bool, Any]:
        """Return this process's version of neurodyn, whether a call succeeded, and its result or its error.

        `key` is the number of the function, and `function` holds Ray's reference to it.
        """
        if key != self._key:
            self._function = require_ray().get(function[0])
            self._key = key
        return __version__, *outcome_of(self._function, argument)


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

    def __init__(self, cluster: Cluster, key: int, function: Any) -> None:
        self.count = cluster.count
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
        results = self._results(arguments)
        next(results)
        return results

    def _results(self, arguments: Sequence[T]) -> Iterator[Any]:
        """Yield None once the first calls have started, then all results in order."""
        ray, crew = require_ray(), self._cluster.crew
        running: dict[Any, tuple[int, int]] = {}
        outcomes: dict[int, tuple[bool, Any]] = {}
        calls, begun, given, started = Counter(dict.fromkeys(range(len(crew)), 0)), 0, -1, False
        while given < len(arguments):
            ahead = min(len(arguments), given + AHEAD * self.count)
            while begun < ahead and calls[worker := min(calls, key=lambda one: calls[one])] < _QUEUED:
                call = crew[worker].call.remote(self._key, [self._function], arguments[begun])
                running[call] = begun, worker
                calls[worker] += 1
                begun += 1
            if given < 0:
                yield None
                given = 0
            elif given in outcomes:
                fine, value = outcomes.pop(given)
                given += 1
                if not fine:
                    raise value
                yield value
            else:
                done, _ = ray.wait(list(running), num_returns=1, timeout=_SILENCE)
                if not done and not started:
                    notice(
                        f"no worker has answered after {_SILENCE:.0f} s: its work is long, or other jobs hold the "
                        "cluster's cores or memory (see `ray status`); this one goes on as soon as some are free"
                    )
                for call in done:
                    started = True
                    number, worker = running.pop(call)
                    calls[worker] -= 1
                    outcomes[number] = self._outcome(ray, call, number)

    def _outcome(self, ray: Any, call: Any, number: int) -> tuple[bool, Any]:
        try:
            version, fine, value = ray.get(call)
        except ray.exceptions.RayTaskError:
            raise
        except ray.exceptions.RayError as error:
            last = (str(error).strip().splitlines() or ["no reason given"])[-1]
            raise InputError(
                f"{_TRIES} workers of the cluster ended at the same piece of work (number {number}), for lack of "
                f"memory as a rule ({last}); valid: fewer workers on a machine, smaller pieces"
            ) from None
        if version != __version__:
            raise InputError(
                f"a worker of the cluster runs neurodyn {version}, and this is {__version__}; valid: the same version "
                "on each machine"
            )
        return fine, value
