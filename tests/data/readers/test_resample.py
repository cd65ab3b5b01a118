# SPDX-License-Identifier: Apache-2.0
"""Resampling: uneven time stamps, gaps, derivatives, and what a frame's control is."""

import numpy as np
import pytest

from neurodyn.core.errors import Notice
from neurodyn.data.readers import read_logs
from neurodyn.data.readers.raw import RawRun
from neurodyn.data.readers.resample import held_integral, resample, segments

from .conftest import SPEC, csv_map, smooth_motion, write_csv


def uneven(seconds=3.0, mean=0.004, seed=0):
    steps = np.random.default_rng(seed).uniform(0.3, 1.7, round(seconds / mean)) * mean
    return np.concatenate(([0.0], np.cumsum(steps)))


def run(time, velocity=True):
    q, qd, control = smooth_motion(time)
    return RawRun("r", "", None, time, q, qd if velocity else None, control)


@pytest.mark.parametrize(
    ("velocity", "averaged", "start"), [(True, False, 0.0), (True, True, 0.01), (False, False, 0.01)]
)
def test_uneven_logs_give_the_motion_at_the_frames(velocity, averaged, start):
    frames = resample(run(uneven(), velocity), SPEC, delay=0.0, averaged=averaged)
    at = start + 0.02 * np.arange(len(frames.q))
    q, qd, _ = smooth_motion(at)
    assert np.allclose(frames.q, q, atol=1e-5)
    # The mean over a frame of dt differs from the middle by qddd dt^2 / 24.
    assert np.allclose(frames.qd, qd, atol=2e-4)


def test_control_of_a_frame_is_the_mean_of_the_held_signal():
    time = uneven()
    frames = resample(run(time), SPEC, delay=0.0, averaged=False)
    fine = np.linspace(0.1, 0.12, 20_001)
    held = smooth_motion(time)[2][np.searchsorted(time, fine, side="right") - 1]
    assert np.allclose(frames.control[5], held.mean(axis=0), atol=1e-4)


@pytest.mark.parametrize("delay", [0.02, 0.04, -0.02])
def test_delay_shifts_the_control_against_the_motion(delay):
    time = 0.02 * np.arange(101)
    frames = resample(run(time), SPEC, delay=delay, averaged=False)
    start = max(delay, 0.0)
    at = start + 0.02 * np.arange(len(frames.control))
    assert len(frames.control) == 100 - round(abs(delay) / 0.02)
    assert np.allclose(frames.q[:-1], smooth_motion(at)[0], atol=1e-6)
    assert np.allclose(frames.control, smooth_motion(at - delay)[2], atol=1e-6)


def test_held_integral_of_steps():
    time, signal = np.array([0.0, 1.0, 3.0]), np.array([[2.0], [-1.0], [4.0]])
    assert held_integral(time, signal, np.array([-0.5, 0.5, 2.0, 3.0, 3.5]))[:, 0].tolist() == [
        -1.0,
        1.0,
        1.0,
        0.0,
        2.0,
    ]


def test_gaps_split_a_run():
    time = np.concatenate((np.arange(10), 40 + np.arange(5), [90], 120 + np.arange(4))) * 0.02
    pieces = segments(run(time), max_gap=0.1)
    assert [len(piece.time) for piece in pieces] == [10, 5, 4]


def test_no_frame_crosses_a_gap(tmp_path):
    time = np.concatenate((0.02 * np.arange(50), 1.5 + 0.02 * np.arange(50)))
    store = read_logs([write_csv(tmp_path / "log.csv", time)], csv_map(), SPEC, split="train")
    assert store.lengths.tolist() == [49, 49]
    assert store.header.notes["gaps"]["count"] == 1
    assert np.allclose(store.episode(1)[0], smooth_motion(time[50:])[0], atol=1e-6)


def test_repeated_time_stamps_are_dropped(tmp_path):
    time = 0.02 * np.arange(50)
    time[20] = time[19]
    with pytest.warns(Notice, match=r"log\.csv: 1 rows of run 'log' have the time of the row before them"):
        store = read_logs([write_csv(tmp_path / "log.csv", time)], csv_map(), SPEC, split="train")
    assert store.transitions == 49


def test_a_coordinate_that_never_changes_is_noticed(tmp_path):
    path = write_csv(tmp_path / "log.csv", 0.02 * np.arange(50))
    head, *rows = path.read_text().splitlines()
    place = head.split(",").index("x")
    held = [",".join("0.5" if k == place else cell for k, cell in enumerate(row.split(","))) for row in rows]
    path.write_text("\n".join([head, *held]))
    with pytest.warns(Notice, match=r"log\.csv: lift never changes; look whether its column and unit are right"):
        read_logs([path], csv_map(), SPEC, split="train")


def test_too_short_a_run_has_no_frame():
    assert resample(run(np.array([0.0, 0.005, 0.01])), SPEC, delay=0.0, averaged=False) is None


def test_past_velocities_are_slopes_of_parabolas_and_see_nothing_later():
    time = 0.004 * np.arange(200)
    motion = np.stack((1 + 2 * time - 3 * time**2, 500 + 4 * time), axis=1)
    logged = RawRun("r", "", None, time, motion, None, np.zeros((len(time), 2)))
    frames = resample(logged, SPEC, delay=0.0, averaged=False, past=True)
    at = 0.02 * np.arange(len(frames.q))
    assert np.allclose(frames.qd[1:], np.stack((2 - 6 * at, 4 + 0 * at), axis=1)[1:], atol=1e-8)
    later = motion + 10.0 * (time > at[20] + 1e-9)[:, None]
    changed = resample(
        RawRun("r", "", None, time, later, None, logged.control), SPEC, delay=0.0, averaged=False, past=True
    )
    assert np.allclose(changed.qd[2:21], frames.qd[2:21], atol=1e-9)
    assert np.allclose(changed.q[:21], frames.q[:21], atol=1e-9)
    assert not np.allclose(changed.qd[21], frames.qd[21])
