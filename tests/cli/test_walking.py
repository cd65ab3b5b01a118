# SPDX-License-Identifier: Apache-2.0
"""`neurodyn control ROBOT --planner mpc|imitation` and `neurodyn imitate`: a page, figures, bad input in one line."""

import json

import pytest

from neurodyn.cli.main import run
from neurodyn.robots import is_installed, load
from tests.cli.calls import call


@pytest.mark.slow
def test_figures_and_page(tmp_path, capsys):
    pytest.importorskip("newton")
    if not is_installed(load("a1")):
        pytest.skip("example-robot-data is not installed")
    out = tmp_path / "walked"
    flags = ("--plant", "hybrid", "--episodes", "1", "--seconds", "0.3", "--command", "0.2", "0", "0.1")
    call("control", "a1", "--planner", "mpc", *flags, "--out", out)
    found = json.loads((out / "result.json").read_text())
    assert (found["law"], found["gait"], found["falls"], found["decisions"]) == ("mpc", "trot", 0, 30)
    assert found["verdict"] == "ok: no falls in 1 episodes"
    assert "In motion" in (out / "report.html").read_text()
    assert capsys.readouterr().out.splitlines()[-1] == "verdict: ok: no falls in 1 episodes"


@pytest.mark.slow
def test_a_robot_that_falls_cannot_be_used(tmp_path, capsys):
    pytest.importorskip("newton")
    if not is_installed(load("a1")):
        pytest.skip("example-robot-data is not installed")
    (tmp_path / "weak.yaml").write_text("greatest_force: 0.05\n")
    flags = ("--plant", "hybrid", "--episodes", "1", "--seconds", "1", "--command", "0", "0", "0")
    files = ("--settings", str(tmp_path / "weak.yaml"), "--json", str(tmp_path / "found.json"))
    assert run(["control", "a1", "--planner", "mpc", *flags, *files]) == 2
    complaint = capsys.readouterr().err.strip().splitlines()[-1]
    assert complaint.startswith("neurodyn: verdict: fails: 100% of episodes end in a fall; give a lower --command")
    assert json.loads((tmp_path / "found.json").read_text())["verdict"].startswith("fails: ")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["control", "cartpole", "--planner", "mpc"], "'cartpole': has no floating base; valid: a quadruped"),
        (["control", "a1", "--planner", "mpc", "--model", "hybrid"], "--planner mpc takes no --model"),
        (["control", "a1", "--planner", "imitation"], "needs --model FOLDER, made by `neurodyn imitate`"),
        (["control", "a1", "--planner", "mpc", "--horizon", "5"], "--horizon is not for --planner mpc; valid: --gait"),
        (["control", "a1", "--planner", "mpc", "--seconds", "-1"], "--seconds is -1; valid: above 0"),
        (["control", "cartpole-swingup", "--planner", "cem"], "--planner cem needs --model: analytic"),
        (["control", "cartpole-swingup", "--model", "hybrid", "--gait", "trot"], "--gait is not for --planner cem"),
        (["imitate", "cartpole", "--out", "made"], "'cartpole': has no floating base; valid: a quadruped"),
        (["imitate", "a1", "--out", "made", "--gait", "hop"], "unknown gait 'hop'; valid: stand, trot, walk"),
        (["imitate", "a1", "--out", "made", "--rounds", "-1"], "rounds is -1; valid: at least 0"),
    ],
)
def test_bad_input_is_one_line(flags, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run(flags) == 2
    complaint = capsys.readouterr().err.strip()
    assert message in complaint
    assert "\n" not in complaint
    assert not list(tmp_path.iterdir())
