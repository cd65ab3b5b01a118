# SPDX-License-Identifier: Apache-2.0
"""The real double pendulum's logs through the maps that ship with the package."""

from pathlib import Path

import numpy as np
import pytest

from neurodyn import robots
from neurodyn.data.header import Split
from neurodyn.data.readers import open_data, read_column_map, read_logs

LOG = Path(__file__).resolve().parents[4] / "shared/data/dfki_double_pendulum/dfki_double_pendulum.npz"

pytestmark = pytest.mark.skipif(not LOG.is_file(), reason="the double pendulum's logs are not beside the repository")


def read(name):
    robot = robots.load(name)
    assert robot.log_path is not None
    return read_logs([LOG], read_column_map(robot.log_path), robot.spec)


@pytest.mark.parametrize(("name", "runs", "groups"), [("dfki-c1", 80, 8), ("dfki-c0", 9, 1), ("dfki-a0", 9, 1)])
def test_each_design_reads_its_own_runs(name, runs, groups):
    store = read(name)
    assert len(store.header.runs) == runs
    assert len(store.header.groups) == groups
    assert set(store.split.tolist()) == {Split.TRAIN, Split.VALIDATION, Split.TEST}


def test_frames_follow_the_log():
    store = read("dfki-c1")
    log = np.load(LOG)
    sysid = store.header.groups.index("sysid_designC1_20230629")
    episode = int(np.flatnonzero(store.group == sysid)[0])
    run = log["run_name"].tolist().index(store.header.runs[store.run[episode]])
    rows = slice(log["offsets"][run], log["offsets"][run + 1])
    time = log["time"][rows] - log["time"][rows][0]
    q, qd, _ = store.episode(episode)
    at = store.header.notes["alignment"]["chosen"] + 0.01 * np.arange(len(q))
    want = np.stack([np.interp(at, time, column) for column in log["pos_meas"][rows].T], axis=1)
    assert np.abs(q - want).max() < 0.002
    logged = np.stack([np.interp(at, time, column) for column in log["vel_meas"][rows].T], axis=1)
    for joint in range(2):
        assert np.corrcoef(qd[:, joint], logged[:, joint])[0, 1] > 0.999


def test_velocity_is_the_derivative_of_position():
    store = read("dfki-a0")
    q, qd, _ = store.episode(0)
    assert np.abs((q[2:] - q[:-2]) / 0.02 - qd[1:-1]).mean() < 0.1 * np.abs(qd).mean()


def test_measured_delay_agrees_with_the_declared_one():
    alignment = read("dfki-c1").header.notes["alignment"]
    assert 0.001 < alignment["best"] < 0.005
    assert alignment["significance"] > 3
    assert abs(alignment["chosen"] - alignment["best"]) < 0.0011


def test_withheld_runs_without_split_or_some_groups_can_be_scored(tmp_path):
    log = np.load(LOG)
    kept = [k for k in range(98) if log["group"][k] in (0, 9)][:4]
    rows = [np.arange(log["offsets"][k], log["offsets"][k + 1]) for k in kept]
    arrays = {name: log[name][np.concatenate(rows)] for name in log.files if len(log[name]) == len(log["time"])}
    arrays |= {name: log[name][kept] for name in ("group", "run_name")} | {"group_name": log["group_name"]}
    arrays["offsets"] = np.concatenate(([0], np.cumsum([len(r) for r in rows])))
    np.savez(tmp_path / "withheld.npz", **arrays)
    robot = robots.load("dfki-c1")
    store = open_data(tmp_path / "withheld.npz", robot.spec, robot.log_path)
    assert store.split.tolist() == [Split.TEST] * 4
