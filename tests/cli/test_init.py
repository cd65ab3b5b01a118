# SPDX-License-Identifier: Apache-2.0
"""`neurodyn init`: what it prints, writes and refuses."""

import pytest

from neurodyn import robots
from neurodyn.cli.main import run

ARM = """<robot name="arm"><link name="base"/>
<link name="fore"><inertial><origin xyz="0 0 0.2"/><mass value="1"/>
<inertia ixx="0.02" iyy="0.02" izz="0.002" ixy="0" ixz="0" iyz="0"/></inertial></link>
<joint name="elbow" type="revolute"><parent link="base"/><child link="fore"/><axis xyz="0 1 0"/>
<limit lower="-1" upper="2" effort="5" velocity="4"/></joint></robot>"""


@pytest.fixture
def arm(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "My_Arm.urdf").write_text(ARM)
    return tmp_path / "My_Arm.urdf"


def test_a_declaration_is_written_and_explained(arm, capsys):
    assert run(["init", str(arm), "--no-check", "--dt", "0.02"]) == 0
    said = capsys.readouterr().out
    for words in ("one chain of joints stands on its base", "MuJoCo, ", "next: neurodyn check my-arm"):
        assert words in said
    robot = robots.load("my-arm")
    (elbow,) = robot.joints
    assert (robot.name, robot.dt, robot.actuated) == ("my-arm", 0.02, {"elbow": 5.0})
    assert (elbow.lower, elbow.upper) == (-1.0, 2.0)
    assert elbow.armature is None  # its own inertia keeps full effort from passing the rated speed in two frames
    assert robot.range.qd["elbow"][1] >= 12.0
    before = (arm.parent / "my-arm" / "robot.yaml").read_text()
    assert run(["init", str(arm), "--no-check"]) == 2
    assert "my-arm: exists already" in capsys.readouterr().err
    assert (arm.parent / "my-arm" / "robot.yaml").read_text() == before
    assert run(["init", str(arm), "--no-check", "--force", "--name", "other", "--out", "my-arm"]) == 0
    assert robots.load("my-arm").name == "other"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--fixed-base", "--floating"], "contradict each other"),
        (["--lock", "shoulder"], "locked joint 'shoulder' does not exist; valid: elbow"),
        (["--lock", "elbow", "--fixed-base"], "nothing moves"),
        (["--dt", "-1"], "dt is -1"),
    ],
)
def test_bad_arguments_are_one_line(arm, capsys, arguments, said):
    assert run(["init", str(arm), "--out", "out", *arguments]) == 2
    error = capsys.readouterr().err.strip()
    assert said in error
    assert "\n" not in error
    assert not (arm.parent / "out").exists()


def test_notices_are_one_line_each(arm, capsys):
    mesh = '<visual><geometry><mesh filename="shell.stl"/></geometry></visual></link>'
    (arm.parent / "arm").mkdir()
    (arm.parent / "arm" / "arm.urdf").write_text(ARM.replace("</inertial></link>", f"</inertial>{mesh}"))
    (arm.parent / "arm" / "robot.yaml").write_text(
        "{name: arm, asset: arm.urdf, joints: [{name: elbow, kind: revolute, lower: -1, upper: 2}], "
        "actuated: {elbow: 5.0}, dt: 0.02, simulator: {solver: mujoco}, sampling: {qd: {'*': [-1, 1]}}}"
    )
    assert run(["generate", "arm", "--transitions", "100", "--out", "arm.h5", "--worlds", "1"]) == 0
    notes = [line for line in capsys.readouterr().err.splitlines() if "note:" in line]
    assert len(notes) == 1
    assert "left out: mesh 'shell.stl' does not exist" in notes[0]
