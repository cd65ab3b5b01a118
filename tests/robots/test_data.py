# SPDX-License-Identifier: Apache-2.0
"""Logs are opened with the surroundings in which they were recorded."""

from pathlib import Path

import numpy as np

from neurodyn.data.header import StoreHeader, episode_table
from neurodyn.data.store import Store
from neurodyn.identify.run import open_logs
from neurodyn.robots import load, open_robot_data


def test_a_log_that_names_no_ground_was_recorded_on_the_declared_one(tmp_path: Path):
    ant = load("ant")
    spec, states = ant.spec, np.zeros((14, ant.spec.nq + ant.spec.nv + ant.spec.nu), np.float32)
    states[:, 6] = 1.0  # the scalar of the base's quaternion
    log = Store(StoreHeader(spec=spec, source="log"), states, episode_table((5, 7)), None)
    log.write(tmp_path / "log.h5")
    path = tmp_path / "log.h5"
    for opened in (open_robot_data(ant, path), open_logs(ant, path), open_logs(ant, log)):
        assert opened.header.scene == ant.named_ground()
        assert opened.ground is not None
        assert opened.ground.shape == (2, 7)
