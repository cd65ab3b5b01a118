# SPDX-License-Identifier: Apache-2.0
"""The pusher: its log's column map, its path, and real pushes where they are there."""

from pathlib import Path

import numpy as np
import pytest
import torch

from neurodyn.core.config import from_dict
from neurodyn.core.errors import InputError
from neurodyn.data.header import Split
from neurodyn.data.readers import ColumnMap, read_logs
from neurodyn.dynamics import State, declared_hybrid
from neurodyn.multibody.drives.drive_program import DriveProgram
from neurodyn.robots import load, open_robot_data

PUSHES = Path(__file__).resolve().parents[3] / "shared/data/mcube_push/mcube_push.npz"
MAP = {
    "format": "npz",
    "period": 0.01,
    "q": {
        "tip_x": {"column": "tip[0]", "unit": "mm"},
        "tip_y": {"column": "tip[1]", "unit": "mm"},
        "object_x": {"column": "block[0]"},
        "object_y": {"column": "block[1]"},
        "object": {"column": "block[2]"},
    },
    "qd": "differentiate",
    "control": "differentiate",
    "control_kind": "velocity",
    "alignment": 0.0,
}


def write_push(folder, rows=60):
    time = 0.01 * np.arange(rows)
    tip = np.stack([1e3 * (-0.06 + 0.1 * time - 0.02 * time**2), 5.0 + 20.0 * time], 1)
    np.savez(folder / "push.npz", tip=tip, block=np.zeros((rows, 3)))
    return folder / "push.npz", tip / 1e3


def test_commanded_velocities_are_differences_over_frames_so_that_the_path_is_followed(tmp_path):
    file, tip = write_push(tmp_path)
    robot = load("planar-push")
    store = read_logs([file], from_dict(MAP, ColumnMap), robot.spec, split="train")
    assert store.header.spec.control_kind == "velocity"
    assert store.header.spec.control_units == ("m/s", "m/s")
    length = int(store.lengths[0])
    np.testing.assert_allclose(
        store.q[:1, :2] + 0.01 * np.cumsum(store.control[:length], 0), store.q[1 : length + 1, :2], atol=1e-6
    )
    # Frames lie between the rows, half a frame from the first.
    assert np.abs(store.q[0, :2] - tip[:2].mean(0)).max() < 1e-4


def test_differences_are_refused_where_controls_are_none():
    with pytest.raises(InputError, match="valid with it: control_kind: velocity"):
        from_dict({**MAP, "control_kind": "torque"}, ColumnMap)


@pytest.mark.parametrize("name", ["planar-push", "planar-push-hex"])
def test_shapes_and_support_have_the_size_of_the_block(name):
    robot = load(name)
    assert robot.body_contacts[0].second.vertices == robot.supports[0].outline
    reach = np.array(robot.supports[0].outline)
    assert np.hypot(*reach.T) == pytest.approx(0.0605 if name.endswith("hex") else 0.045 * 2**0.5, abs=1e-5)


def test_what_acts_by_torques_cannot_lead_a_joint():
    robot = load("planar-push")
    with pytest.raises(InputError, match="commanded velocity, which only the hybrid engine knows"):
        DriveProgram(robot.drives, robot.spec, 0.001)


def test_real_pushes_end_nearer_to_where_they_did_than_without_a_push():
    pytest.importorskip("newton")
    if not PUSHES.is_file():
        pytest.skip(f"{PUSHES.name} is not there: its licence forbids shipping it")
    robot = load("planar-push")
    store = open_robot_data(robot, PUSHES)
    assert [len(store.episodes(split)) for split in (Split.TRAIN, Split.VALIDATION, Split.TEST)] == [20, 12, 12]
    assert len(open_robot_data(load("planar-push-hex"), PUSHES).table) == 1
    model, off = declared_hybrid(robot, contact="force", substeps=10), []
    for episode in store.episodes(Split.TRAIN)[:6]:
        begin = int(store.table["start"][episode])
        rows = slice(begin, begin + int(store.table["length"][episode]) + 1)
        q, control = (torch.from_numpy(np.array(x[rows])).double() for x in (store.q, store.control))
        path = model.rollout(State(q[:1], torch.zeros_like(q[:1])), control[None, :-1]).q[0].detach()
        assert (path[:, :2] - q[:, :2]).abs().max() < 1e-6
        off.append(((path[-1] - q[-1])[2:4].norm(), (q[0] - q[-1])[2:4].norm()))
    errors = torch.tensor(off).mean(0)
    assert errors[0] < 0.5 * errors[1]
