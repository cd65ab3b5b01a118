# SPDX-License-Identifier: Apache-2.0
"""The demos refuse settings before they spend time on a stage, and go on where they stopped.

`make demo` runs one whole. Models and policies are trained here for a few steps.
"""

import json
import re
from pathlib import Path

import pytest
import yaml

import neurodyn.cli
from neurodyn.cli.main import run
from neurodyn.identify.result import IdentificationFigures, IdentifiedParameter, LogCheck, Rung, read_adaptation

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
        ["--neural", "--policy"],
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


def found_before(run: Path) -> IdentificationFigures:
    """Write an adaptation that is finished: the declared ant, of which one quantity is told."""
    from neurodyn.dynamics.hybrid.declared import write_declared_hybrid

    write_declared_hybrid(run, "ant")
    told = IdentifiedParameter(
        name="payload.mass", nominal=0.0, value=25.0, interval=(24.0, 26.0), determined=True, bound=False, unit="kg"
    )
    silent = IdentifiedParameter(
        name="hip_1.damping",
        nominal=0.1,
        value=0.1,
        interval=(0.0, 1.0),
        determined=False,
        bound=False,
        unit="N m s/rad",
    )
    log = LogCheck(minutes=2.5, rate=60.0, control="torque", episodes=(8, 1, 1), repeated=0.0, joints=[], warnings=[])
    rung = Rung(name="declared", kept=True, reason="as declared", errors={"base [m]": [0.01, 0.1]}, test={})
    figures = IdentificationFigures(
        robot="ant", structure="", stage="declared", costs={}, parameters=[told, silent], horizons=[0.05, 1.0],
        rungs=[rung], chosen="declared", unexplained=[], unexplained_before=[], log=log, cpu_seconds=1.0, verdict="ok",
    )  # fmt: skip
    (run / "adaptation.json").write_text(json.dumps(figures.plain()))
    return figures


@pytest.mark.slow
def test_a_robot_is_logged_and_a_policy_trained_in_its_model_and_played_in_it(tmp_path, monkeypatch, capsys):
    for package in ("rsl_rl", "newton", "mujoco"):
        pytest.importorskip(package)
    short = shortened("gap.yaml", tmp_path / "gap.yaml", iterations=2, evaluations=1, worlds=16, evaluation_worlds=4)
    monkeypatch.setattr("neurodyn.cli.demo.GAP_SETTINGS", short)
    for name, value in (("GAP_FRAMES", 20), ("GAP_EPISODES", 1), ("GAP_PROMISES", 4)):
        monkeypatch.setattr(f"neurodyn.cli.demo.{name}", value)
    out = tmp_path / "demo"
    figures, kept = found_before(out / "model"), read_adaptation(out / "model")
    assert kept is not None
    assert kept.plain() == figures.plain()
    assert run(["demo", "--out", str(out)]) == 0
    measured = json.loads((out / "evaluation.json").read_text())
    printed, page = capsys.readouterr().out, (out / "report.html").read_text()
    declared, adapted = map(float, re.findall(r"off by (\S+) mrad as declared, (\S+) as adapted", printed)[0])
    assert adapted < 0.1 * declared  # the real robot with which it begins
    assert "RL_calf_joint" in (out / "go2.html").read_text()
    assert measured["policies"] == ["pretrained-policy:ant-run", str(out / "policy")]
    for one in (*measured["promised"], *measured["reached"]):
        assert f"{one['return']:.0f}" in page
        assert f"{one['return']:.0f}" in printed
    assert "payload.mass" in page
    assert "1 quantity stays as declared: the logs do not determine it" in page
    scene = json.loads(re.search(r'id="motions">(.*?)</script>', page)[1])
    assert [motion["label"] for motion in scene["motions"]] == ["before", "after"]
    assert all(len(end) == len(scene["radii"]) for motion in scene["motions"] for end in motion["ends"])
    kept = (out / "after.h5").read_bytes(), (out / "policy/metrics.jsonl").read_bytes()
    assert run(["demo", "--out", str(out)]) == 0
    assert kept == ((out / "after.h5").read_bytes(), (out / "policy/metrics.jsonl").read_bytes())
    assert "trained already" in capsys.readouterr().out
