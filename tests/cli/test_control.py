# SPDX-License-Identifier: Apache-2.0
"""`neurodyn control`: a plan in a model, a page, figures, and bad input in one line."""

import json

import pytest

from neurodyn.cli.main import run
from tests.cli.calls import call

SHORT = ("--planner", "annealed", "--frames", "6", "--horizon", "5", "--samples", "6", "--episodes", "2")


def test_figures_and_page(tmp_path, capsys):
    out = tmp_path / "planned"
    call("control", "cartpole-swingup", "--model", "pretrained:cartpole", "--plant", "hybrid", *SHORT, "--out", out)
    found = json.loads((out / "result.json").read_text())
    assert found["result"]["episodes"] == 2
    assert found["result"]["length"] == 6
    assert [error["frames"] for error in found["model_error"]] == [1, 5]
    assert found["settings"]["horizon"] == 5
    assert "<svg" in (out / "report.html").read_text() or "<img" in (out / "report.html").read_text()
    assert "report.html" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["hop", "--model", "hybrid"], "unknown task 'hop'"),
        (["cartpole-swingup", "--model", "moon"], "--model 'moon': no such dynamics"),
        (
            ["cartpole-swingup", "--model", "pretrained:ant"],
            "task 'cartpole-swingup' is not for these dynamics of 'ant'",
        ),
        (["cartpole-swingup", "--model", "hybrid", "--planner", "luck"], "unknown planner 'luck'"),
        (["a1", "--planner", "imitate"], "unknown planner 'imitate' (did you mean 'imitation'?)"),
        (["cartpole-swingup", "--model", "analytic", "--planner", "gradient"], "no gradients to plan by"),
        (["cartpole-swingup", "--model", "hybrid", "--episodes", "0"], "--episodes is 0; valid: at least 1"),
        (["cartpole-swingup", "--model", "hybrid", "--noise", "-1"], "noise: position is -1.0"),
        (["cartpole-swingup", "--model", "hybrid", "--delay", "99"], "delay is 99 frames; valid: 0 to"),
        (["cartpole-swingup", "--model", "hybrid", "--value", "pretrained-policy:cartpole"], "holds no critic; valid"),
        (["cartpole-swingup", "--model", "hybrid", "--settings", "none.yaml"], "none.yaml"),
    ],
)
def test_bad_input_is_one_line(flags, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run(["control", *flags]) == 2
    complaint = capsys.readouterr().err.strip()
    assert message in complaint
    assert "\n" not in complaint
    assert not list(tmp_path.iterdir())
