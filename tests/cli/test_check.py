# SPDX-License-Identifier: Apache-2.0
"""`neurodyn check` prints a verdict a row in 80 columns, writes JSON and a page, and ends with 2 where a row fails."""

import json

import pytest
import yaml

from neurodyn.cli.main import run

pytest.importorskip("newton", reason="the extra `sim` is not installed")


@pytest.fixture
def coarse(tmp_path):
    """A double pendulum whose step is far too long."""
    from neurodyn import robots

    robot = robots.load("dfki-c1")
    declaration = yaml.safe_load(open(f"{robot.folder}/robot.yaml"))  # noqa: SIM115
    declaration |= {"dt": 0.05, "simulator": {"solver": "mujoco", "substeps": 1}, "asset": "arm.urdf"}
    for unused in ("log", "package"):
        declaration.pop(unused, None)
    (tmp_path / "arm.urdf").write_bytes(open(f"{robot.folder}/{robot.asset}", "rb").read())  # noqa: SIM115
    (tmp_path / "robot.yaml").write_text(yaml.safe_dump(declaration))
    return tmp_path


def test_a_sound_robot_leads_to_data(tmp_path, capsys):
    files = ["--json", str(tmp_path / "check.json"), "--report", str(tmp_path / "check.html")]
    assert run(["check", "cartpole", "--worlds", "4", "--frames", "20", *files]) == 0
    out = capsys.readouterr().out
    lines = out[out.index("cartpole in free space") :].splitlines()  # Warp may say what it loads before
    assert "can be learned from" in lines[0]
    assert max(len(line) for line in lines[1:] if "raise" not in line and "/" not in line) <= 80
    assert lines[-1].startswith("next: neurodyn generate cartpole")
    figures = json.loads((tmp_path / "check.json").read_text())
    assert figures["robot"] == "cartpole"
    assert figures["verdict"] == "warning"
    assert figures["checks"]["joint_limits"]["figures"]["tests"][0]["joint"] == "slider"
    page = (tmp_path / "check.html").read_text()
    assert "<h1>Check of cartpole</h1>" in page
    assert "critical damping" in page


@pytest.mark.slow
def test_a_robot_that_explodes_ends_with_2_and_nothing_next(coarse, capsys):
    assert run(["check", str(coarse), "--worlds", "8", "--frames", "40"]) == 2
    out, error = capsys.readouterr()
    assert "cannot be trusted" in out.splitlines()[0]
    assert "next:" not in out
    assert "fails: worlds beyond plausible bounds" in out
    assert "cannot be trusted (convergence, random control, passive energy)" in error.strip().splitlines()[-1]
