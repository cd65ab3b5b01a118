# SPDX-License-Identifier: Apache-2.0
"""Alignment: a known delay is found, and none is invented."""

import numpy as np
import pytest

from neurodyn.data.readers.alignment import measure
from neurodyn.data.readers.raw import RawRun

from .conftest import PENDULUM, simulate_pendulum


def pendulum_run(step, delay, velocity=True, noise=0.0, seconds=40.0, torque=None):
    time, q, qd, logged = simulate_pendulum(seconds=seconds, step=step, delay=delay, noise=noise)
    logged = logged if torque is None else np.full_like(logged, torque)
    return RawRun("r", "", None, time, q[:, None], qd[:, None] if velocity else None, logged[:, None])


@pytest.mark.parametrize("delay", [0, 2, 4, -1])
@pytest.mark.parametrize("velocity", [True, False])
def test_finds_a_known_delay(delay, velocity):
    run = pendulum_run(0.002, max(delay, 0), velocity)
    if delay < 0:
        run = logged_late(run, -delay)
    found = measure([run], PENDULUM, averaged=False, declared=None)
    assert found.best == pytest.approx(0.002 * delay)
    assert found.chosen == found.best
    assert found.r2[found.delays.index(found.best)] > 0.95


def logged_late(run, rows):
    """The same run with its torque logged `rows` too late."""
    control = np.concatenate((run.control[:1].repeat(rows, axis=0), run.control[:-rows]))
    return RawRun("r", "", None, run.time, run.q, run.qd, control)


def test_finds_a_delay_in_frames_at_the_rate_of_the_robot():
    found = measure([pendulum_run(0.01, 2)], PENDULUM, averaged=False, declared=None)
    assert found.chosen == pytest.approx(0.02)


def test_finds_a_delay_in_noise():
    found = measure([pendulum_run(0.002, 3, noise=0.02)], PENDULUM, averaged=True, declared=None)
    assert found.chosen == pytest.approx(0.006, abs=0.0021)
    assert found.significance > 3


def test_insignificant_differences_choose_none():
    rng = np.random.default_rng(0)
    run = pendulum_run(0.002, 0)
    noise = RawRun("r", "", None, run.time, rng.normal(size=run.q.shape), rng.normal(size=run.q.shape), run.control)
    found = measure([noise], PENDULUM, averaged=False, declared=None)
    assert found.chosen == 0.0
    assert "not significant" in found.reason or "no delay fits best" in found.reason


def test_a_declared_delay_is_applied_and_the_measured_one_stated():
    found = measure([pendulum_run(0.002, 2)], PENDULUM, averaged=False, declared=0.001)
    assert found.chosen == 0.001
    assert found.best == pytest.approx(0.004)
    assert "declared" in found.reason
    assert "4 ms" in found.reason


@pytest.mark.parametrize("run", [pendulum_run(0.002, 0, torque=0.0), pendulum_run(0.002, 0, seconds=0.5)])
def test_without_control_or_data_nothing_is_claimed(run):
    found = measure([run], PENDULUM, averaged=False, declared=None)
    assert found.chosen == 0.0
    assert found.reason.startswith("not measured")
