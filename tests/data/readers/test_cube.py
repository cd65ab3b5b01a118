# SPDX-License-Identifier: Apache-2.0
"""The recorded tosses of the cube through the map that ships with the package."""

from pathlib import Path

import numpy as np
import pytest

from neurodyn import robots
from neurodyn.data.header import Split
from neurodyn.data.readers import open_data, read_column_map, read_logs
from neurodyn.sim.simulators import articulation

LOG = Path(__file__).resolve().parents[4] / "shared/data/cube_toss/cube_toss.npz"

needs_tosses = pytest.mark.skipif(not LOG.is_file(), reason="the cube's tosses are not beside the repository")


def column_map(robot):
    assert robot.log_path is not None
    return read_column_map(robot.log_path)


@needs_tosses
def test_tosses_are_read_as_recorded():
    robot = robots.load("cube")
    store = read_logs([LOG], column_map(robot), robot.spec)
    with np.load(LOG) as log:
        assert np.allclose(store.q[:, :3], log["position"], atol=1e-6)
        assert np.allclose(store.q[:, 3:], log["quat_xyzw"], atol=1e-6)
        assert np.allclose(store.qd[:, :3], log["lin_vel_world"], atol=1e-6)
        assert np.allclose(store.qd[:, 3:], log["ang_vel_world"], atol=1e-5)
        assert np.array_equal(store.lengths, np.diff(log["offsets"]) - 1)
        assert np.array_equal(store.split, log["split"])
    assert store.header.scene is not None
    assert store.header.spec.nu == 0


def test_the_declared_contact_points_are_those_of_the_simulated_cube():
    pytest.importorskip("newton")
    from neurodyn.sim.contact_points import contact_point_layout

    robot = robots.load("cube")
    declared = column_map(robot).contact_points
    assert declared is not None
    built = contact_point_layout(articulation(robot), robot)
    assert built.differences(declared) == []
    assert built.joints == declared.joints
    assert built.base_com == pytest.approx(declared.base_com)


@needs_tosses
def test_a_random_split_keeps_copies_of_a_toss_together():
    robot = robots.load("cube")
    store = read_logs([LOG], column_map(robot), robot.spec, split="random", seed=3)
    with np.load(LOG) as log:
        groups = log["group_id"]
    assert max(np.bincount(groups)) > 1
    assert all(len(set(store.split[groups == group])) == 1 for group in np.unique(groups))


@needs_tosses
def test_tosses_without_a_split_are_scored_whole(tmp_path):
    robot = robots.load("cube")
    with np.load(LOG) as log:
        some = int(log["offsets"][5])
        names = ("position", "quat_xyzw", "lin_vel_world", "ang_vel_body")
        np.savez(tmp_path / "new.npz", offsets=log["offsets"][:6], dt=log["dt"], **{n: log[n][:some] for n in names})
    store = open_data(tmp_path / "new.npz", robot.spec, robot.log_path)
    assert store.split.tolist() == [Split.TEST] * 5
