# SPDX-License-Identifier: Apache-2.0
"""Calls in several processes give the results of one, in order; an error or an interruption ends all of them."""

import math
import os
import subprocess
import time
from functools import partial

import pytest

from neurodyn.core import workers
from neurodyn.core import workers as cores
from neurodyn.core.errors import InputError
from neurodyn.core.workers import Beside, Workers, available_cores, in_threads, resolve_threads


class Slow:
    """Says in which process it was called."""

    def __call__(self, seconds: float) -> tuple[float, int]:
        time.sleep(seconds)
        return seconds, os.getpid()


@pytest.fixture
def at_once(monkeypatch):
    monkeypatch.setattr(workers, "WORTHWHILE", 0.0)


def test_results_come_in_order_from_several_processes(at_once):
    waits = [0.4, 0.0, 0.3, 0.0, 0.2, 0.0, 0.1, 0.0] * 2
    with Workers(Slow(), 2) as pool:
        found = list(pool.map(waits))
        again = list(pool.map(waits[:4]))
    assert [seconds for seconds, _ in found] == waits
    assert [seconds for seconds, _ in again] == waits[:4]
    pids = {pid for _, pid in found}
    assert os.getpid() in pids
    assert len(pids) == 2
    assert {pid for _, pid in again} <= pids  # the same processes serve again
    for pid in pids - {os.getpid()}:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_where_calls_are_soon_done_there_is_one_process(monkeypatch):
    monkeypatch.setattr(subprocess, "Popen", None)
    with Workers(Slow(), 8) as pool:
        assert {pid for _, pid in pool.map([0.0] * 20)} == {os.getpid()}


@pytest.mark.parametrize("cores", [1, 2])
def test_a_call_beside_is_made_elsewhere_where_there_is_a_core(cores):
    with Beside(partial(Slow(), 0.0), cores) as call:
        assert call.elsewhere == (cores == 2)
        assert (call.result()[1] != os.getpid()) == call.elsewhere
        assert call.result()[0] == 0.0
        assert not call.elsewhere or call._process._process.poll() is not None  # it has nothing left to do
    with Beside(partial(math.sqrt, -1.0), cores) as call, pytest.raises(ValueError, match=r"math domain|nonnegative"):
        call.result()


def test_a_call_beside_that_nobody_asks_for_ends_with_the_work():
    begin = time.monotonic()
    with Beside(partial(Slow(), 60.0), 2) as call:
        process = call._process._process
    assert process.poll() is not None
    assert time.monotonic() - begin < 30.0


def test_an_error_comes_in_its_place_and_ends_all_processes(at_once):
    with Workers(math.sqrt, 3) as pool:
        results = pool.map([4.0, 9.0, 16.0, -1.0, 25.0])
        assert [next(results) for _ in range(3)] == [2.0, 3.0, 4.0]
        processes = [other._process for other in pool._others]
        with pytest.raises(ValueError, match=r"math domain error|nonnegative"):
            next(results)
    assert processes
    assert all(process.poll() is not None for process in processes)


def test_a_process_that_is_killed_is_one_line(at_once):
    with Workers(Slow(), 2) as pool:
        results = pool.map([0.0, 0.0, 0.0, *[0.2] * 30])
        next(results), next(results)
        pool._others[0].kill()
        with pytest.raises(InputError, match=r"ended by signal 9; valid: fewer --threads"):
            list(results)


def test_cores_are_those_of_affinity_quota_and_environment(monkeypatch, tmp_path):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    monkeypatch.setattr(cores, "_control_groups", lambda: [tmp_path])
    assert available_cores() == 8
    (tmp_path / "cpu.max").write_text("250000 100000\n")
    assert available_cores() == 3
    (tmp_path / "cpu.max").write_text("max 100000\n")
    assert available_cores() == 8
    (tmp_path / "cpu.max").unlink()
    (tmp_path / "cpu.cfs_quota_us").write_text("400000\n")
    (tmp_path / "cpu.cfs_period_us").write_text("100000\n")
    assert available_cores() == 4
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert available_cores() == 1
    assert resolve_threads(None) == 1
    with pytest.raises(InputError, match="threads is 0; valid: a whole number of at least 1"):
        resolve_threads(0)


def test_calls_in_threads_come_in_order_and_an_error_ends_them():
    assert in_threads(lambda number: number * number, 7, 3) == [0, 1, 4, 9, 16, 25, 36]
    assert in_threads(lambda number: number, 0, 3) == []

    def broken(number: int) -> int:
        raise InputError(f"call {number}")

    for threads in (1, 2):
        with pytest.raises(InputError, match="call "):
            in_threads(broken, 4, threads)
