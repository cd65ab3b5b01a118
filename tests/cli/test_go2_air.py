# SPDX-License-Identifier: Apache-2.0
"""A log of a real quadruped in the air, of position targets: from its URDF to errors on held-out time."""

import json
from pathlib import Path

import pytest
import yaml

from neurodyn.cli.main import run
from neurodyn.robots import asset_path, is_installed, load
from tests import plant

LOG = plant.repository() / "../shared/data/go2_air/go2_air.npz"
pytestmark = pytest.mark.skipif(
    not LOG.is_file() or not is_installed(load("go2")), reason="needs the log and the asset of the robot"
)
LEGS = [f"{leg}_{part}_joint" for leg in ("FL", "FR", "RL", "RR") for part in ("hip", "thigh", "calf")]


@pytest.mark.slow
def test_a_declared_quadruped_follows_a_log_of_targets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    assert run(["init", str(asset_path(load("go2"))), "--fixed-base", "--dt", ".005", "--no-check"]) == 0
    columns = {
        "format": "npz", "robot": "./go2", "time": "time", "qd": "differentiate", "velocity": "past",
        "q": {name: {"column": f"joint_position[{i}]"} for i, name in enumerate(LEGS)},
        "control": {name: {"column": f"joint_command[{i}]"} for i, name in enumerate(LEGS)},
        "control_kind": "target", "controller": {"kp": 20.0, "kd": 1.5},
    }  # fmt: skip
    Path("map.yaml").write_text(yaml.safe_dump(columns))
    assert run(["import", str(LOG), "--reader", "map.yaml", "--out", "air.h5"]) == 0
    assert run(["hybrid", "./go2", "--out", "declared"]) == 0
    assert run(["evaluate", "declared", "--data", "air.h5", "--json", "found.json", "--report", "page.html"]) == 0
    found = json.loads(Path("found.json").read_text())
    assert found["episodes"] == 1
    assert found["finite_fraction"] == 1.0
    assert found["at_horizon"]["all"]["100"]["better_than_baselines"]["q_mean"] > 5.0
