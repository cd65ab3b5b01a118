# SPDX-License-Identifier: Apache-2.0
"""`neurodyn policy`: from training to figures and pictures, and one line for bad input."""

import json
import shutil

import pytest

from neurodyn.cli.main import run

SHIPPED = ["pretrained-policy:ant-run", "pretrained-policy:anymal-forward"]
SMALL = ["--worlds", "8", "--iterations", "2"]


@pytest.fixture(scope="module")
def policy(tmp_path_factory):
    out = tmp_path_factory.mktemp("policies") / "swing"
    settings = out.parent / "settings.yaml"
    settings.write_text("{horizon: 8, minibatches: 2, evaluations: 1, evaluation_worlds: 4, network: {hidden: [8]}}")
    given = ["policy", "train", "cartpole-swingup", "--dynamics", "pretrained:cartpole", "--out", str(out)]
    assert run([*given, "--settings", str(settings), *SMALL]) == 0
    return out


@pytest.mark.slow
@pytest.mark.trains
def test_figures_have_the_keys_that_are_promised(policy, tmp_path):
    path = tmp_path / "figures.json"
    flags = ["--dynamics", "analytic", "--dynamics", "pretrained:cartpole", "--episodes", "6", "--json", str(path)]
    assert run(["policy", "evaluate", str(policy), *flags]) == 0
    found = json.loads(path.read_text())
    assert [result["dynamics"] for result in found["results"]] == ["analytic", "pretrained:cartpole"]
    for result in found["results"]:
        assert {"dynamics", "return", "return_std", "length", "episodes", "implausible", "success"} <= set(result)
        assert result["episodes"] == 6
    # One frame more or less before a failure is a few percent; other starts would be tens of percent.
    assert found["reward_error"][0]["relative"] < 0.05


@pytest.mark.trains
def test_several_policies_are_one_table(policy, tmp_path, capsys):
    path, twin = tmp_path / "figures.json", tmp_path / "twin"
    shutil.copytree(policy, twin)
    flags = ["--dynamics", "pretrained:cartpole", "--episodes", "4", "--json", str(path)]
    assert run(["policy", "evaluate", str(policy), str(twin), *flags]) == 0
    found = json.loads(path.read_text())
    (both,) = found["results"]
    assert both["episodes"] == 8
    assert both["return_min"] == both["return_max"] == pytest.approx(both["return"])
    assert [one["policy"] for one in found["policies"]] == [str(policy), str(twin)]
    assert "Return of each policy" in capsys.readouterr().out


def test_a_recording_is_written(policy, tmp_path):
    path = tmp_path / "play.gif"
    flags = ["--dynamics", "pretrained:cartpole", "--seconds", "0.1", "--out", str(path)]
    assert run(["policy", "play", str(policy), *flags]) == 0
    assert path.read_bytes()[:3] == b"GIF"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["fly"], "unknown policy action 'fly'; valid: distill, evaluate"),
        (["train", "hop", "--dynamics", "analytic", "--out", "x"], "unknown task 'hop'"),
        (["train", "cartpole-swingup", "--dynamics", "moon", "--out", "x"], "'moon': no such dynamics"),
        (["train", "ant-run", "--dynamics", "pretrained:cartpole", "--out", "x"],
         "task 'ant-run' is not for these dynamics of 'cartpole': controls are"),
        (["train", "cartpole-swingup", "--dynamics", "analytic", "--out", "x", "--penalty", "-1"],
         "penalty is -1.0; valid: a finite number of at least 0"),
        (["train", "cartpole-swingup", "--dynamics", "pretrained:cartpole", "--out", "x", "--penalty", "1"],
         "do not know how uncertain they are"),
        (["evaluate", "nothing"], "no such folder; expected a folder written by"),
        (["play", "nothing", "--out", "picture.bmp"], "no known kind of recording"),
        (["play", SHIPPED[0], "--beside", "moon", "--out", "x.html"], "--beside 'moon': no such dynamics"),
        (["evaluate", "nothing", "--episodes", "0"], "--episodes is 0; valid: at least 1"),
        (["evaluate", *SHIPPED], "policy for anymal-forward; valid beside pretrained-policy:ant-run: policies for ant"),
        (["evaluate", SHIPPED[0], SHIPPED[0]], "is named twice; valid: each policy once"),
        (["evaluate", SHIPPED[0], "--ground", "moon"], "no ground of robot 'ant'; valid: flat"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line(flags, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run(["policy", *flags]) == 2
    complaint = capsys.readouterr().err.strip()
    assert message in complaint
    assert "\n" not in complaint
    assert not list(tmp_path.iterdir())


def test_a_policy_is_not_overwritten(policy, capsys):
    given = ["policy", "train", "cartpole-swingup", "--dynamics", "pretrained:cartpole", "--out", str(policy)]
    assert run(given) == 2
    assert "already holds a run; add --resume" in capsys.readouterr().err


def test_actions_are_listed(capsys):
    assert run(["policy"]) == 0
    listed = capsys.readouterr().out
    assert all(word in listed for word in ("train", "play", "evaluate"))
