# SPDX-License-Identifier: Apache-2.0
"""Parallel calls of one function in several processes, and the number of cores available to this process.

Simulators on a CPU share scratch memory within a process, so processes are used instead of threads. They are plain
Python processes that communicate through pipes, so calling scripts need no `if __name__ == "__main__"`.
"""

import contextlib
import math
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import traceback
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain, islice
from pathlib import Path
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Generic, Protocol, Self, TypeVar

from neurodyn.core.errors import InputError

WORTHWHILE = 10.0
"""Estimated remaining single-process time above which more processes are started [s]; starting one takes seconds."""

AHEAD = 4
"""Maximum number of unconsumed results per process, to bound memory."""

FORWARD_ONLY = "NEURODYN_FORWARD_ONLY"
"""Environment variable of processes that never differentiate through Newton, such as those of the command line."""

T = TypeVar("T")
R = TypeVar("R")
T_contra = TypeVar("T_contra", contravariant=True)
R_co = TypeVar("R_co", covariant=True)


def in_threads(call: Callable[[int], R], count: int, threads: int) -> list[R]:
    """Return call(0), ..., call(count - 1), computed on this and other threads; an idle thread takes the next call."""
    results: dict[int, R] = {}
    following = iter(range(count))  # next() of a range is atomic

    def work() -> None:
        for number in following:
            results[number] = call(number)

    others = min(threads, count) - 1
    if others < 1:
        work()
    else:
        with ThreadPoolExecutor(others) as pool:
            started = [pool.submit(work) for _ in range(others)]
            work()
            for one in started:
                one.result()
    return [results[number] for number in range(count)]


class Calls(Protocol[T_contra, R_co]):
    """Calls of one function in at most `count` processes: a context manager with the `map` of `Workers`."""

    count: int

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...

    def map(self, arguments: Sequence[T_contra], /) -> Iterator[R_co]:
        """Return an iterator over the results, in the order of the arguments."""
        ...


class Executor(Protocol):
    """Runs functions for many arguments, for example `neurodyn.cluster.Cluster`."""

    def workers(self, function: Callable[[T], R], /) -> Calls[T, R]:
        """Return calls of a module-level function or of a picklable object, copied to each process."""
        ...


class Workers(Generic[T, R]):
    """Calls a function for many arguments in this process and up to `count` - 1 others; a context manager.

    Results come in the order of the arguments, and do not depend on the number of processes if each depends on its
    argument alone. Leaving the context stops the other processes.
    """

    def __init__(self, function: Callable[[T], R], count: int) -> None:
        """Prepare calls of a module-level function or of a picklable object, copied to each process.

        `count` includes this process; `map` starts the others if that saves time.
        """
        self.count = count
        self._function = function
        self._others: list[_Process] = []
        self._pool: ThreadPoolExecutor | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def map(self, arguments: Sequence[T]) -> Iterator[R]:
        """Return an iterator over the results.

        The first call runs at once, to estimate the total time. Other processes start immediately; this one joins in
        when results are requested. All results must be consumed before the next `map`.

        Raises:
            InputError: A process was killed from outside, for example out of memory; or whatever the function raises.
        """
        first: list[R] = []
        if not self._others and arguments:
            begin, first = time.perf_counter(), [self._function(arguments[0])]
            seconds, arguments = time.perf_counter() - begin, arguments[1:]
            if min(self.count, len(arguments)) < 2 or seconds * len(arguments) <= WORTHWHILE:
                return chain(first, map(self._function, arguments))
        if not arguments:
            return iter(first)
        return chain(first, self._map_in_processes(arguments))

    def _map_in_processes(self, arguments: Sequence[T]) -> Iterator[R]:
        while len(self._others) < min(self.count, len(arguments)) - 1:
            self._others.append(_Process(self._function))
        free: SimpleQueue[_Process] = SimpleQueue()
        for process in self._others:
            free.put(process)

        def elsewhere(argument: T) -> R:
            process = free.get()  # there is one for each thread
            try:
                return process.call(argument)
            finally:
                free.put(process)

        pool = self._pool = ThreadPoolExecutor(len(self._others))
        submitted = ([argument, pool.submit(elsewhere, argument)] for argument in arguments)
        waiting = deque(islice(submitted, AHEAD * (1 + len(self._others))))
        return self._results(waiting, submitted)

    def _results(self, waiting: deque[list[Any]], submitted: Iterator[list[Any]]) -> Iterator[R]:
        """Yield the results of arguments and futures in order; call the function here while a result is missing."""
        try:
            while waiting:
                while not waiting[0][1].done():
                    mine = next((one for one in waiting if one[1].cancel()), None)
                    if mine is None:
                        waiting[0][1].exception()  # waits
                    else:
                        mine[1] = self._call_here(mine[0])
                _, result = waiting.popleft()
                waiting.extend(islice(submitted, 1))
                yield result.result()
        except BaseException:
            self._end()  # their current work is not needed
            raise

    def _call_here(self, argument: T) -> Future[R]:
        done: Future[R] = Future()
        try:
            done.set_result(self._function(argument))
        except Exception as error:
            done.set_exception(error)
        return done

    def _end(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
        others, self._others = self._others, []
        for process in others:
            process.kill()
        for process in others:
            process.close()


class Beside(Generic[R]):
    """One call in another process, beside the work of this one, until its result is taken; a context manager.

    Without a second core the call is made here, when its result is asked for.
    """

    def __init__(self, call: Callable[[], R], cores: int) -> None:
        """Start a call of a picklable function without arguments, such as a `functools.partial`, on one of `cores`."""
        self._call, self._process, self._result = call, None if cores < 2 else _Process(_called), None
        if self._process is not None:
            self._pool = ThreadPoolExecutor(1)
            self._result = self._pool.submit(self._process.call, call)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.close()
            self._pool.shutdown()

    @property
    def elsewhere(self) -> bool:
        """Whether another process makes the call, whose CPU time this one does not count."""
        return self._process is not None

    def result(self) -> R:
        """Return the result, once it is there.

        Raises:
            InputError: The process was killed from outside, for example out of memory; or whatever the call raises.
        """
        if self._result is None:
            return self._call()
        try:
            return self._result.result()
        finally:
            self._end()


def _called(call: Callable[[], Any]) -> Any:
    return call()


class _Process:
    """Another Python process that calls a function."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self._function: Callable[[Any], Any] | None = function  # until it is sent, which waits for the process
        path = os.pathsep.join(os.path.abspath(folder) for folder in sys.path)
        environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", "from neurodyn.core.workers import serve; serve()"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment,
        )  # fmt: skip
        self._called = threading.Lock()

    def call(self, argument: Any) -> Any:
        """Return the function's result for an argument."""
        try:
            assert self._process.stdout is not None
            with self._called:
                if self._function is not None:
                    self._send(self._function)
                    self._function = None
                self._send(argument)
                fine, value = pickle.load(self._process.stdout)
        except (EOFError, OSError, ValueError, pickle.UnpicklingError):
            code = self._process.wait()
            how = f"by signal {-code}" if code < 0 else f"with code {code}"
            raise InputError(f"a worker process ended {how}; valid: fewer --threads, if memory ran out") from None
        if not fine:
            raise value
        return value

    def kill(self) -> None:
        self._process.kill()

    def close(self) -> None:
        """Wait for a killed process, and for the thread that waits for its results."""
        self._process.wait()
        with self._called:
            for pipe in (self._process.stdin, self._process.stdout):
                with contextlib.suppress(OSError):  # unsent data
                    pipe.close()  # type: ignore[union-attr]

    def _send(self, what: Any) -> None:
        assert self._process.stdin is not None
        pickle.dump(what, self._process.stdin, protocol=pickle.HIGHEST_PROTOCOL)
        self._process.stdin.flush()


def serve() -> None:
    """Read a function and then arguments from standard input, and write results to standard output."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process stops this one
    warnings.simplefilter("ignore")  # the parent process shows them
    results = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # prints must not mix with results
    requests = sys.stdin.buffer
    try:
        function = pickle.load(requests)
        while True:
            argument = pickle.load(requests)
            pickle.dump(outcome_of(function, argument), results, protocol=pickle.HIGHEST_PROTOCOL)
            results.flush()
    except (EOFError, BrokenPipeError):
        os._exit(0)


def outcome_of(function: Callable[[Any], Any], argument: Any) -> tuple[bool, Any]:
    """Call a function; return whether it succeeded, and its result or its error in picklable form."""
    try:
        return True, function(argument)
    except Exception as error:
        try:
            pickle.loads(pickle.dumps(error))
        except Exception:
            error = RuntimeError(traceback.format_exc())
        return False, error


_CGROUPS = Path("/sys/fs/cgroup")


def available_cores() -> int:
    """Return the number of cores that this process may use, at least 1.

    Limited by CPU affinity, the control group's quota (as in containers), and OMP_NUM_THREADS if set.
    """
    bound = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    limits = (bound, _quota(), _omp_threads())
    return max(1, min(limit for limit in limits if limit is not None))


def resolve_threads(threads: int | None) -> int:
    """Return a valid number of threads or processes, or raise an InputError; None for all available cores."""
    if threads is None:
        return available_cores()
    if threads < 1:
        raise InputError(f"threads is {threads}; valid: a whole number of at least 1")
    return threads


def _omp_threads() -> int | None:
    given = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0]
    return int(given) if given.isdecimal() and int(given) > 0 else None


def _quota() -> int | None:
    """Return the cores allowed by the control group of this process, rounded up; None for no limit."""
    quotas = [cores for folder in _control_groups() if (cores := _cores_of(folder)) is not None]
    return math.ceil(min(quotas)) if quotas else None


def _control_groups() -> list[Path]:
    """Return the folders of this process's control groups, innermost first, for cgroup versions 1 and 2."""
    try:
        lines = Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    folders = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        root = _CGROUPS / "cpu" if controllers else _CGROUPS
        inner = root / path.lstrip("/")
        folders += [folder for folder in (inner, *inner.parents) if folder.is_relative_to(root)]
    return folders


def _cores_of(folder: Path) -> float | None:
    """Return quota over period of a control group; None for no limit."""
    try:
        if (folder / "cpu.max").exists():
            quota, period = (folder / "cpu.max").read_text(encoding="utf-8").split()
        else:
            quota, period = (
                (folder / f"cpu.cfs_{name}_us").read_text(encoding="utf-8") for name in ("quota", "period")
            )
        return int(quota) / int(period) if quota.strip() != "max" and int(quota) > 0 else None
    except (OSError, ValueError):
        return None
