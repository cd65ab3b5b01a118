# SPDX-License-Identifier: Apache-2.0
"""The examples of own logs and of an own robot, as their pages say: from files to a model that predicts."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from neurodyn.cli.main import run
from tests.plant import repository

EXAMPLES = repository() / "examples"


@pytest.mark.slow
@pytest.mark.trains
def test_the_delay_of_the_logs_is_found_and_a_model_is_learned(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    logs, store = tmp_path / "logs", tmp_path / "pendulum.h5"
    script = EXAMPLES / "own_logs/make_logs.py"
    subprocess.run([sys.executable, script, "--out", logs, "--runs", "5", "--seconds", "10"], check=True)
    files = [str(path) for path in sorted(logs.glob("*.csv"))]
    assert run(["import", *files, "--reader", str(EXAMPLES / "own_logs/map.yaml"), "--out", str(store)]) == 0
    assert "it belongs to the robot" in capsys.readouterr().out
    assert run(["inspect", str(store), "--json", str(tmp_path / "found.json")]) == 0
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["log"]["alignment"]["best"] == pytest.approx(0.008, abs=5e-4)
    assert store.with_suffix(".png").exists()
    model = tmp_path / "run"
    train = ["train", str(EXAMPLES / "own_logs"), "--data", str(store), "--out", str(model), "--steps", "60"]
    assert run(train) == 0
    assert run(["evaluate", str(model), "--json", str(tmp_path / "errors.json"), "--rollouts", "200"]) == 0
    moving = json.loads((tmp_path / "errors.json").read_text())["at_horizon"]["moving"]
    assert moving["25"]["better_than_baselines"]["q_mean"] > 2


@pytest.mark.slow
@pytest.mark.trains
def test_a_robot_of_your_own_goes_all_the_way(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    pytest.importorskip("newton")
    robot, store, model = str(EXAMPLES / "own_robot"), str(tmp_path / "arm.h5"), str(tmp_path / "run")
    assert run(["generate", robot, "--transitions", "10000", "--out", store]) == 0
    assert run(["train", robot, "--data", store, "--out", model, "--steps", "250"]) == 0
    figures = tmp_path / "errors.json"
    assert run(["evaluate", model, "--horizon", "10", "--rollouts", "64", "--json", str(figures)]) == 0
    report = json.loads(figures.read_text())
    assert report["robot"] == "my-arm"
    # Seeds end at a third of it.
    assert report["joint_rad"] < 0.75 * report["baselines"]["constant_velocity"]["10"]["joint_rad"]
    assert "report-horizon-10-rollouts-64.html" in capsys.readouterr().out
