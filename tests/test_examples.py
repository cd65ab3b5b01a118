# SPDX-License-Identifier: Apache-2.0
"""Every script under examples/ runs, and the own-logs example is imported as its page says."""

import json
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from neurodyn.cli.main import run
from neurodyn.core.artifacts import pretrained_names

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "examples"
PRETRAINED = {"solver_swap.py", "gradient.py", "boxes.py"}
ARGUMENTS = {
    "gradient.py": ["--worlds", "8", "--iterations", "50"],
    "solver_swap.py": ["--worlds", "8", "--frames", "30"],
    "boxes.py": ["--worlds", "4", "--frames", "4", "--solver", "neural"],
    "link_lengths.py": ["--grid", "2"],
    "swimmer.py": ["--seconds", "0.5"],
    "walking.py": ["--seconds", "0.3", "--decisions", "300", "--episodes", "1"],
    "swimmer_gait.py": ["--seconds", "0.5", "--gait", "0.3", "--frames", "150", "--film", "gait.gif"],
    "friction_discovery.py": ["--windows", "8", "--steps", "4", "--refit", "4", "--seconds", "0.5"],
    "logs_to_policy.py": ["--transitions", "1000", "--iterations", "1", "--episodes", "2", "--json", "figures.json"],
    "own_logs/make_logs.py": ["--runs", "4", "--seconds", "6"],
    "c_loop/run.py": ["--seconds", "0.5", "--rate", "100"],
    "pushing.py": ["--pushes", "8"],
    "g1_scene.py": ["g1.xml"],
    "go1_minutes.py": ["--updates", "1"],
    "real_pendulum.py": ["--windows", "8", "--horizon", "0.1"],
    **{f"trainers/{name}_ppo.py": ["--worlds", "16", "--updates", "8"] for name in ("cleanrl", "rsl_rl", "sb3")},
    "soft_tail/soft_tail.py": ["--runs", "5", "--seconds", "6", "--minutes", "0.004"],
}
NEEDS = {
    "logs_to_policy.py": "rsl_rl", "trainers/rsl_rl_ppo.py": "rsl_rl", "trainers/sb3_ppo.py": "stable_baselines3",
    "go1_minutes.py": "mujoco_playground", "g1_scene.py": "mjlab",
}  # fmt: skip
LOGS = {"real_pendulum.py": ROOT.parent / "shared/data/ibm_double_pendulum/ibm_double_pendulum.npz"}
MODULES = {
    "own_task/hold.py", "worn_ant.py", "sensed_ant.py", "sensed_go1.py", "udp_robot.py", "udp_lowlevel/messages.py",
    "udp_lowlevel/robot.py",
    "ros2_policy/policy.py", "ros2_policy/policy_node.py", "ros2_policy/policy.launch.py",
}  # fmt: skip
"""What is imported instead of run: tests/tasks/test_listing.py trains in it, tests/control/robot act on these."""
SCRIPTS = sorted({path.relative_to(EXAMPLES).as_posix() for path in EXAMPLES.rglob("*.py")} - MODULES)


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS)
def test_example_runs(script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """In this process, which has imported all that takes seconds to import."""
    if script in NEEDS:
        pytest.importorskip(NEEDS[script])
    if script == "logs_to_policy.py":
        monkeypatch.setattr(subprocess, "run", run_here)
    if script.startswith("trainers/"):
        pytest.importorskip("gymnasium")
    if script in PRETRAINED:
        pytest.importorskip("newton")
        if not pretrained_names():
            pytest.skip("no pretrained models ship with this tree")
    model: list[str] = []
    if script in {"pushing.py", "soft_tail/soft_tail.py"}:
        pytest.importorskip("newton")
    if script in LOGS:
        pytest.importorskip("newton")
        if not LOGS[script].is_file():
            pytest.skip(f"{LOGS[script].name} is not there")
        model = ["--data", str(LOGS[script])]
    capsys.readouterr()
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend((EXAMPLES / script).parent)
    monkeypatch.setattr(sys, "argv", [script, *ARGUMENTS.get(script, []), *model])
    runpy.run_path(str(EXAMPLES / script), run_name="__main__")
    assert capsys.readouterr().out.strip()


STARTED = subprocess.run


def run_here(arguments: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
    """Run in this process, too, what an example starts of neurodyn."""
    if arguments[:3] != [sys.executable, "-m", "neurodyn.cli.main"]:
        return STARTED(arguments, **options)
    return subprocess.CompletedProcess(arguments, run(arguments[3:]))


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
    assert run(["generate", robot, "--transitions", "20000", "--out", store]) == 0
    assert run(["train", robot, "--data", store, "--out", model, "--steps", "500"]) == 0
    figures = tmp_path / "errors.json"
    assert run(["evaluate", model, "--horizon", "10", "--rollouts", "64", "--json", str(figures)]) == 0
    report = json.loads(figures.read_text())
    assert report["robot"] == "my-arm"
    # Seeds end at a third of it.
    assert report["joint_rad"] < 0.75 * report["baselines"]["constant_velocity"]["10"]["joint_rad"]
    assert "report-horizon-10-rollouts-64.html" in capsys.readouterr().out


def test_examples_are_short():
    for script in SCRIPTS:
        assert len((EXAMPLES / script).read_text().splitlines()) <= 150, script
