# SPDX-License-Identifier: Apache-2.0
"""Alignment: a known delay is found, and none is invented."""

import numpy as np
import pytest

from neurodyn.data.readers.alignment import measure, velocity_delay
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


def commanded_run(delay, step=0.002, control_step=0.01, seconds=40.0, fine=1e-4, velocity_delay=0.0):
    """A pendulum whose commands come on a clock of their own and act `delay` s later; velocities are late, too."""
    rng = np.random.default_rng(0)
    count = round(seconds / control_step) + 2
    torque = np.repeat(rng.uniform(-2, 2, count // 5 + 1), 5)[:count] + 0.3 * rng.normal(size=count)
    logged = control_step * np.arange(count) + 0.0013
    time = fine * np.arange(round(seconds / fine))
    place = np.searchsorted(logged, time - delay, side="right") - 1
    acting = np.where(place >= 0, torque[place], 0.0)
    q, qd = np.zeros(len(time)), np.zeros(len(time))
    for k in range(len(time) - 1):
        qd[k + 1] = qd[k] + fine * (acting[k] - 0.1 * qd[k] - 6.0 * np.sin(q[k]))
        q[k + 1] = q[k] + 0.5 * fine * (qd[k] + qd[k + 1])
    rows = np.arange(0, len(time), round(step / fine))
    velocity_time = time[rows] + velocity_delay if velocity_delay else None
    return RawRun(
        "r", "", None, time[rows], q[rows, None], qd[rows, None], torque[:, None],
        control_time=logged, velocity_time=velocity_time,
    )  # fmt: skip


@pytest.mark.parametrize("delay", [0.0073, 0.0273])
def test_the_delay_of_a_stream_is_found_between_its_steps(delay):
    found = measure([commanded_run(delay)], PENDULUM, averaged=False, declared=None)
    assert found.chosen == pytest.approx(delay, abs=3e-4)
    assert list(found.delays) == sorted(found.delays)


def test_late_velocities_of_a_stream_of_their_own_are_found():
    assert velocity_delay([commanded_run(0.0, seconds=10.0, velocity_delay=0.0073)]) == pytest.approx(0.0073, abs=3e-4)
    assert velocity_delay([commanded_run(0.0, seconds=10.0)]) is None
