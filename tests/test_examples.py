# SPDX-License-Identifier: Apache-2.0
"""Every script under examples/ runs."""

import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

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
    "logs_to_policy.py": ["--transitions", "500", "--worlds", "6", "--iterations", "1", "--episodes", "2",
                          "--settings", "brief.yaml", "--json", "figures.json"],
    "own_logs/make_logs.py": ["--runs", "4", "--seconds", "6"],
    "c_loop/run.py": ["--seconds", "0.5", "--rate", "100"],
    "pushing.py": ["--pushes", "8"],
    "g1_scene.py": ["g1.xml"],
    "go1_minutes.py": ["--updates", "1"],
    "real_pendulum.py": ["--windows", "8", "--horizon", "0.1"],
    **{f"trainers/{name}_ppo.py": ["--worlds", "16", "--updates", "8"] for name in ("cleanrl", "rsl_rl", "sb3")},
    "soft_tail/soft_tail.py": ["--runs", "5", "--seconds", "6", "--minutes", "0.004"],
}  # fmt: skip
NEEDS = {
    "logs_to_policy.py": "rsl_rl", "trainers/rsl_rl_ppo.py": "rsl_rl", "trainers/sb3_ppo.py": "stable_baselines3",
    "go1_minutes.py": "mujoco_playground", "g1_scene.py": "mjlab",
}  # fmt: skip
LOGS = {"real_pendulum.py": ROOT.parent / "shared/data/ibm_double_pendulum/ibm_double_pendulum.npz"}
MODULES = {
    "own_task/hold.py", "worn_ant.py", "sensed_ant.py", "sensed_go1.py", "udp_robot.py", "udp_lowlevel/messages.py",
    "udp_lowlevel/robot.py",
    "ros2_policy/policy.py", "ros2_policy/base_filter.py", "ros2_policy/policy_node.py", "ros2_policy/policy.launch.py",
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
        settings = yaml.safe_load((EXAMPLES / "logs_to_policy.yaml").read_text())
        (tmp_path / "brief.yaml").write_text(yaml.safe_dump(settings | {"worlds": 16, "evaluation_worlds": 8}))
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


def test_examples_are_short():
    for script in SCRIPTS:
        assert len((EXAMPLES / script).read_text().splitlines()) <= 150, script
