# SPDX-License-Identifier: Apache-2.0
"""A simulator's first launches say that kernels are compiled, and how long that takes; cached ones say nothing."""

import warnings

import pytest
import warp as wp

from neurodyn.core.errors import Notice
from neurodyn.geometry import compilation
from neurodyn.geometry.compilation import announcing
from neurodyn.geometry.launching import start_warp


def test_what_warp_compiles_is_announced_and_what_it_caches_is_not(tmp_path, monkeypatch):
    start_warp()
    monkeypatch.setattr(compilation, "_SILENCE", 0.0)
    monkeypatch.setattr(wp.config, "kernel_cache_dir", str(tmp_path))

    @wp.kernel(enable_backward=False, module="unique")
    def twice(numbers: wp.array(dtype=float)):  # type: ignore[valid-type]
        numbers[wp.tid()] = 2.0 * numbers[wp.tid()]

    numbers, before = wp.ones(1, dtype=float, device="cpu"), (wp.get_logger(), wp.config.log_level)
    with (
        pytest.warns(Notice, match=r"compiling the test for this machine, once: at most \d+ s left"),
        announcing("the test", 30.0),
    ):
        wp.launch(twice, 1, inputs=[numbers], device="cpu")
    assert numbers.numpy()[0] == 2.0
    assert (wp.get_logger(), wp.config.log_level) == before
    twice.module.unload()
    with warnings.catch_warnings(), announcing("the test again", 30.0):
        warnings.simplefilter("error")
        wp.launch(twice, 1, inputs=[numbers], device="cpu")


def test_time_left_is_printed_every_ten_seconds_except_for_short_compilations(monkeypatch):
    clock = {"cpu": 0.0, "wall": 0.0}
    monkeypatch.setattr("time.process_time", lambda: clock["cpu"])
    monkeypatch.setattr("time.perf_counter", lambda: clock["wall"])
    said = []
    monkeypatch.setattr(compilation, "notice", said.append)
    with announcing("it", 40.0):
        for seconds in (1.5, 4.0, 4.0, 4.0, 4.0):
            clock["cpu"] += 0.5 * seconds  # half of a core is left
            clock["wall"] += seconds
            wp.get_logger().info(f"Module m 12ab load on device 'cpu' took {1e3 * seconds} ms  (compiled)")
            wp.get_logger().info("Module n 12ab load on device 'cpu' took 9000 ms  (cached)")
    assert said == [f"compiling it for this machine, once: at most {left} s left" for left in (74, 62)]


def test_threads_share_one_logger_and_the_last_one_restores_the_users():
    start_warp()
    before = wp.get_logger(), wp.config.log_level
    first, second = announcing("one", 1.0), announcing("two", 1.0)
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)  # as a thread that ends before another one
    assert wp.get_logger() is not before[0]
    second.__exit__(None, None, None)
    assert (wp.get_logger(), wp.config.log_level) == before
