# SPDX-License-Identifier: Apache-2.0
"""The demos refuse settings before they spend time on a stage, and go on where they stopped.

`make demo` runs one whole. The world model and the policy are trained here for a few steps.
"""

import json
from pathlib import Path

import pytest
import yaml

import neurodyn.cli
from neurodyn.cli.main import run

FOLDER = Path(neurodyn.cli.__file__).parent


@pytest.mark.parametrize(
    "flags",
    [
        ["--minutes=-1"],
        ["--transitions=0"],
        ["--rollouts=0"],
        ["--seed=-1"],
        ["--policy", "--minutes=1"],
        ["--world-model", "--rollouts=4"],
        ["--world-model", "--policy"],
    ],
    ids=" ".join,
)
def test_bad_settings_leave_nothing_behind(tmp_path, capsys, flags):
    assert run(["demo", *flags, "--out", str(tmp_path / "demo")]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert not (tmp_path / "demo").exists()


def shortened(name: str, path: Path, **changes: int) -> Path:
    """Write the settings of a demo with a smaller budget."""
    path.write_text(yaml.safe_dump(yaml.safe_load((FOLDER / name).read_text()) | changes))
    return path


@pytest.mark.slow
def test_a_world_model_is_trained_on_the_log_that_ships_and_once_only(tmp_path, monkeypatch, capsys):
    short = shortened("walk.yaml", tmp_path / "walk.yaml", steps=12, validations=1)
    monkeypatch.setattr("neurodyn.cli.demo.LOG_SETTINGS", short)
    monkeypatch.setattr("neurodyn.cli.demo.LOG_ROLLOUTS", 16)
    monkeypatch.setattr("neurodyn.cli.demo.LOG_HORIZON", 20)
    out = tmp_path / "demo"
    assert run(["demo", "--world-model", "--out", str(out)]) == 0
    assert "36 walks" in capsys.readouterr().out
    assert (out / "run/report.html").is_file()
    trained = (out / "run/metrics.jsonl").read_bytes()
    assert run(["demo", "--world-model", "--out", str(out)]) == 0
    assert "trained already" in capsys.readouterr().out
    assert (out / "run/metrics.jsonl").read_bytes() == trained


@pytest.mark.slow
def test_a_policy_is_trained_in_a_network_and_played_in_the_simulator(tmp_path, monkeypatch):
    pytest.importorskip("rsl_rl")
    pytest.importorskip("newton")
    short = shortened("swingup.yaml", tmp_path / "swingup.yaml", iterations=12, evaluations=1, worlds=32, horizon=8)
    monkeypatch.setattr("neurodyn.cli.demo.POLICY_SETTINGS", short)
    out = tmp_path / "demo"
    assert run(["demo", "--policy", "--out", str(out)]) == 0
    assert (out / "policy/report.html").is_file()
    measured = json.loads((out / "evaluation.json").read_text())
    assert "analytic" in json.dumps(measured)
    assert "pretrained:cartpole" in json.dumps(measured)
