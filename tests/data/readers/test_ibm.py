# SPDX-License-Identifier: Apache-2.0
"""The free double pendulum's film through the map that ships with the package."""

from pathlib import Path

import numpy as np
import pytest

from neurodyn import robots
from neurodyn.data.header import Split
from neurodyn.data.readers import open_data

LOG = Path(__file__).resolve().parents[4] / "shared/data/ibm_double_pendulum/ibm_double_pendulum.npz"

pytestmark = pytest.mark.skipif(not LOG.is_file(), reason="the free pendulum's film is not beside the repository")


def read(path=LOG):
    robot = robots.load("ibm-pendulum")
    return open_data(path, robot.spec, robot.log_path)


def test_angles_are_relative_and_frames_are_rows():
    store, log = read(), np.load(LOG)
    assert len(store.header.runs) == len(log["run_id"])
    assert set(store.split.tolist()) == {Split.TRAIN, Split.VALIDATION, Split.TEST}
    q, qd, control = store.episode(3)
    theta = log["theta"][log["offsets"][3] :][: len(q)].astype(float)
    assert np.abs(q[:, 0] - theta[:, 0]).max() < 1e-5
    assert np.abs(q[:, 1] - (theta[:, 1] - theta[:, 0])).max() < 1e-4
    omega = log["omega"][log["offsets"][3] :][: len(q)]
    relative = np.stack((omega[:, 0], omega[:, 1] - omega[:, 0]), axis=1)
    assert np.abs(qd - relative).mean() < 0.05 * np.abs(relative).mean()
    assert control.shape[1] == 0


def test_a_film_without_a_split_is_scored_whole(tmp_path):
    log = np.load(LOG)
    rows = int(log["offsets"][2])
    np.savez(tmp_path / "unseen.npz", theta=log["theta"][:rows], offsets=log["offsets"][:3], dt=log["dt"])
    store = read(tmp_path / "unseen.npz")
    assert len(store.episodes(Split.TEST)) == len(store.episodes()) == 2
