# SPDX-License-Identifier: Apache-2.0
"""`neurodyn policy online` on the command line: a loop of seconds, and what is refused before any work."""

import sys
from pathlib import Path

import numpy as np
import pytest

from neurodyn.cli.main import run
from neurodyn.cli.terminal import console as progress
from neurodyn.core.config import to_yaml
from neurodyn.data.header import StoreHeader
from neurodyn.data.writer import StoreWriter
from neurodyn.robots import load
from tests.cli.policy.test_log import _policy
from tests.policy.online_learning.test_loop import POLICY, SMALL

pytest.importorskip("rsl_rl")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A policy of the ant, and data of the pendulum."""
    folder = tmp_path_factory.mktemp("given")
    _policy(folder / "ant", "ant-run")
    spec = load("pendulum").spec
    with StoreWriter(folder / "pendulum.h5", StoreHeader(source="log", spec=spec)) as writer:
        writer.append(np.zeros((4, 9, spec.nq)), np.zeros((4, 9, spec.nv)), np.zeros((4, 8, spec.nu)))
    return folder


@pytest.mark.parametrize(
    ("task", "flags", "message"),
    [
        ("cartpole-swingup", ["--rounds", "0"], "rounds is 0; valid: a whole number of at least 1"),
        ("cartpole-swingup", ["--tolerance", "2"], "tolerance is 2.0; valid: between 0 and 1"),
        ("cartpole-swingup", ["--rollout", "-3"], "rollout is -3; valid: a whole number of at least 1"),
        ("cartpole-swingup", ["--frames", "0"], "frames is 0, and a new model of kind neural learns from data"),
        ("cartpole-swingup", ["--kind", "analytic"], "--kind is 'analytic'; valid: hybrid, neural, world-model"),
        ("cartpole-swingup", ["--kind", "hybrid"], "--parameters is missing: name the quantities"),
        ("cartpole-swingup", ["--kind", "hybrid", "--parameters", "wheel.mass"], "'wheel.mass' matches no quantity"),
        ("cartpole-swingup", ["--parameters", "slider.mass"], "--parameters is for --kind hybrid"),
        ("cartpole-swingup", ["--penalty", "1"], "a new model of kind neural does not know how uncertain it is"),
        ("cartpole-swingup", ["--penalty", "1", "--members", "2", "--reference", "nowhere"], "no such dynamics"),
        ("cartpole-swingup", ["--members", "0"], "members is 0; valid: a whole number of at least 1"),
        ("cartpole-swingup", ["--kind", "hybrid", "--members", "2"], "--members is for --kind neural and world-model"),
        ("cartpole-swingup", ["--size", "{}/none.yaml"], "none.yaml"),
        ("cartpole-swingup", ["--finetune", "{}/none.yaml"], "none.yaml"),
        ("cartpole-swingup", ["--policy", "{}/ant"], "policy for another task: its task is ant-run"),
        ("cartpole-swingup", ["--policy", "{}/none"], "no such folder; expected a folder written by"),
        ("cartpole-swingup", ["--data", "{}/pendulum.h5"], "holds data of 'pendulum', not of 'cartpole'"),
        ("cartpole-swingup", ["--data", "{}/none.h5"], "none.h5"),
        ("cartpole-swingup", ["--dynamics", "pretrained:pendulum"], "is not for these dynamics of 'pendulum'"),
        ("cartpole-swingup", ["--dynamics", "pretrained:cartpole", "--kind", "hybrid"], "a model of kind 'neural'"),
        ("cartpole-swingup", ["--reference", "nowhere"], "--reference 'nowhere': no such dynamics"),
    ],
)
def test_bad_input_is_one_line(
    task: str, flags: list[str], message: str, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    given = [flag.format(folder) for flag in flags]
    assert run(["policy", "online", task, "--out", str(out), *given]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not out.exists()


def test_a_loop_says_in_which_step_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("newton")
    monkeypatch.setattr(progress, "_SOON", 0.0)
    monkeypatch.setattr(progress, "_SECONDS", 0.0)
    files = {"size": SMALL, "finetune": SMALL, "settings": to_yaml(POLICY)}
    for name, text in files.items():
        (tmp_path / f"{name}.yaml").write_text(text)
    flags = [part for name in files for part in (f"--{name}", str(tmp_path / f"{name}.yaml"))]
    flags += ["--rounds", "1", "--frames", "800", "--log-frames", "1200", "--rollout", "16"]
    out, figures = tmp_path / "out", tmp_path / "figures.json"
    assert run(["policy", "online", "cartpole-swingup", "--out", str(out), "--json", str(figures), *flags]) == 0
    shown = capsys.readouterr()
    for step in ("round 1, policy", "round 1, comparison"):
        assert step in shown.err
    assert "round 1: return" in shown.out
    assert "\nverdict: " in shown.out
    assert figures.read_text() == (out / "online.json").read_text()


def test_without_a_simulator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "newton", None)
    out = tmp_path / "out"
    assert run(["policy", "online", "cartpole-swingup", "--out", str(out)]) == 2
    error = capsys.readouterr().err
    assert "robot 'cartpole' (solver: featherstone) needs newton" in error
    assert "pip install 'neurodyn[newton]'" in error
    assert error.count("\n") == 1
    assert not out.exists()
