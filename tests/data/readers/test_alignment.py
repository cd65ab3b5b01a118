# SPDX-License-Identifier: Apache-2.0
"""Delays: a known one is found with its error and stays in the data, and none is invented."""

import numpy as np
import pytest

from neurodyn.core.description.drive import Drive
from neurodyn.data.readers.alignment import _doubt, measure, velocity_delay
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
    assert found.best == pytest.approx(0.002 * delay, abs=3e-4)
    assert abs(found.best - 0.002 * delay) < 3 * found.deviation < 0.004
    assert found.chosen == 0.0
    assert found.doubt == ("negative" if delay < 0 else "")
    assert found.r2[found.delays.index(found.best)] > 0.95


def logged_late(run, rows):
    """The same run with its torque logged `rows` too late."""
    control = np.concatenate((run.control[:1].repeat(rows, axis=0), run.control[:-rows]))
    return RawRun("r", "", None, run.time, run.q, run.qd, control)


def test_finds_a_delay_in_frames_at_the_rate_of_the_robot():
    found = measure([pendulum_run(0.01, 2)], PENDULUM, averaged=False, declared=None)
    assert found.best == pytest.approx(0.02, abs=1e-3)


def test_finds_a_delay_in_noise():
    found = measure([pendulum_run(0.002, 3, noise=0.02)], PENDULUM, averaged=True, declared=None)
    assert found.best == pytest.approx(0.006, abs=0.0021)
    assert found.significance > 3


def test_a_delay_of_noise_is_not_to_be_used():
    rng = np.random.default_rng(0)
    run = pendulum_run(0.002, 0)
    noise = RawRun("r", "", None, run.time, rng.normal(size=run.q.shape), rng.normal(size=run.q.shape), run.control)
    found = measure([noise], PENDULUM, averaged=False, declared=None)
    assert found.chosen == 0.0
    assert found.doubt in ("senseless", "flat", "end")
    assert not found.delay.usable


def test_a_declared_delay_is_applied_and_the_measured_one_stated():
    found = measure([pendulum_run(0.002, 2)], PENDULUM, averaged=False, declared=0.001)
    assert found.chosen == 0.001
    assert found.best == pytest.approx(0.004, abs=3e-4)
    assert found.reason.startswith("declared; measured: ")


@pytest.mark.parametrize("run", [pendulum_run(0.002, 0, torque=0.0), pendulum_run(0.002, 0, seconds=0.5)])
def test_without_control_or_data_nothing_is_claimed(run):
    found = measure([run], PENDULUM, averaged=False, declared=None)
    assert found.doubt == "unmeasured"
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
    assert found.best == pytest.approx(delay, abs=5e-4)
    assert list(found.delays) == sorted(found.delays)


@pytest.mark.parametrize("late", [25, -25])
def test_a_delay_at_the_end_of_the_table_is_not_to_be_used(late):
    run = pendulum_run(0.002, 0)
    run = logged_late(run, late) if late > 0 else pendulum_run(0.002, 110)
    found = measure([run], PENDULUM, averaged=False, declared=None)
    assert found.doubt in ("end", "negative", "senseless")
    assert found.chosen == 0.0


DOUBTS = {
    "usable": (0.01, 0.9, (2.0, 1.0), {}, ""),
    "beyond the table": (0.1, 0.9, (2.0, 0.1), {"at_end": True}, "end"),
    "before the commands": (-0.01, 0.9, (2.0, 1.0), {}, "negative"),
    "of feedback, which explains as much without a delay": (-0.01, 0.9, (1.37, 1.24), {"at_end": True}, "flat"),
    "of commands that explain nothing": (0.01, 0.5, (-0.01, -0.02), {"told": False}, "senseless"),
    "of impacts, which no regression predicts": (0.01, -0.5, (-0.1, -0.1), {"told": False}, "rough"),
}


@pytest.mark.parametrize("name", DOUBTS)
def test_a_delay_is_doubted_for_what_it_says_about_the_commands(name):
    best, r2, gains, more, doubt = DOUBTS[name]
    assert _doubt(best, r2, 1e-3, gains, **{"at_end": False, "told": True} | more) == doubt


def servo_run(delay, kp=400.0, kd=20.0, step=0.01, fine=1e-3, seconds=60.0):
    """A joint behind a stiff servo, its slow targets late, and noise that hides its accelerations."""
    rng = np.random.default_rng(0)
    time, frame = fine * np.arange(round(seconds / fine)), round(step / fine)
    sent = sum(0.2 * np.sin(rate * time[::frame] + rate) for rate in (1.0, 2.3, 4.1))
    acting = np.repeat(sent, frame)[np.maximum(np.arange(len(time)) - round(delay / fine), 0)]
    q, qd = np.zeros(len(time)), np.zeros(len(time))
    for k in range(len(time) - 1):
        qd[k + 1] = qd[k] + fine * (kp * (acting[k] - q[k]) - kd * qd[k])
        q[k + 1] = q[k] + fine * qd[k + 1]
    noisy = [x[::frame, None] + rng.normal(0, size, (len(sent), 1)) for x, size in ((q, 3e-4), (qd, 0.02))]
    return RawRun("r", "", None, time[::frame], *noisy, sent[:, None])


@pytest.mark.parametrize("delay", [0.0, 0.012, 0.02])
def test_what_a_servo_needs_to_follow_is_no_delay(delay):
    drives = {"hinge": Drive(kind="servo", kp=400.0, kd=20.0)}
    found = measure([servo_run(delay)], PENDULUM, averaged=False, declared=None, drives=drives)
    assert found.followed == pytest.approx(0.05 + delay, abs=1.5e-3)
    assert found.best == pytest.approx(delay, abs=1.5e-3)
    assert not found.doubt


def test_without_gains_the_delay_of_targets_is_not_known():
    found = measure([servo_run(0.012)], PENDULUM, averaged=False, declared=None)
    assert found.doubt == "unmeasured"
    assert "gains" in found.reason


def test_late_velocities_of_a_stream_of_their_own_are_found():
    assert velocity_delay([commanded_run(0.0, seconds=10.0, velocity_delay=0.0073)]) == pytest.approx(0.0073, abs=3e-4)
    assert velocity_delay([commanded_run(0.0, seconds=10.0)]) is None
