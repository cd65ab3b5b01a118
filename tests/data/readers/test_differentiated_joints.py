# SPDX-License-Identifier: Apache-2.0
"""Velocities that a log lacks for some joints are differences of their positions."""

from pathlib import Path

import numpy as np
import pytest

from neurodyn.core.config import from_dict
from neurodyn.core.description.spec import JointSpec, StateSpec
from neurodyn.data.readers import ColumnMap, read_logs

SPEC = StateSpec(
    robot="arm", joints=tuple(JointSpec(name=name, kind="revolute") for name in ("elbow", "gripper")), controls=(),
    dt=0.01,
)  # fmt: skip


def columns(**qd: object) -> ColumnMap:
    q = {"elbow": {"column": "a"}, "gripper": {"column": "b", "unit": "deg"}}
    return from_dict({"format": "npz", "period": 0.005, "q": q, "qd": qd}, ColumnMap)


def test_one_joint_has_no_logged_velocity(tmp_path: Path):
    time = 0.005 * np.arange(200)
    np.savez(tmp_path / "log.npz", a=np.sin(time), b=np.rad2deg(np.cos(3.0 * time)), v=np.cos(time))
    mapped = columns(elbow={"column": "v"}, gripper="differentiate")
    store = read_logs([tmp_path / "log.npz"], mapped, SPEC, split="train")
    q, qd, _ = store.episode(0)
    assert np.allclose(qd[:, 0], np.cos(np.arcsin(q[:, 0])), atol=1e-4)
    assert np.allclose(qd[2:-2, 1], -3.0 * np.sin(np.arccos(q[2:-2, 1])), atol=2e-3)


def test_a_joint_without_positions_has_none_to_differentiate():
    with pytest.raises(Exception, match="joints with a column of positions"):
        columns(elbow={"column": "v"}, wrist="differentiate")
