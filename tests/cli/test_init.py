# SPDX-License-Identifier: Apache-2.0
"""`neurodyn init`: what it prints, writes and refuses."""

import json
from pathlib import Path

import pytest

from neurodyn import robots
from neurodyn.cli.main import run
from neurodyn.cli.terminal.console import ProgressBar

ARM = """<robot name="arm"><link name="base"/>
<link name="fore"><inertial><origin xyz="0 0 0.2"/><mass value="1"/>
<inertia ixx="0.02" iyy="0.02" izz="0.002" ixy="0" ixz="0" iyz="0"/></inertial></link>
<joint name="elbow" type="revolute"><parent link="base"/><child link="fore"/><axis xyz="0 1 0"/>
<limit lower="-1" upper="2" effort="5" velocity="4"/></joint></robot>"""


PAIR = """<mujoco><worldbody>
<body name="a"><joint name="one" axis="0 1 0" range="-90 90"/>
<geom type="capsule" fromto="0 0 0 0 0 .3" size=".02"/></body>
<body name="b" pos="0 1 0"><joint name="two" axis="0 1 0" range="-90 90"/>
<geom type="capsule" fromto="0 0 0 0 0 .3" size=".02"/></body></worldbody>
<equality><joint joint1="one" joint2="two"/></equality>
<actuator><motor joint="one" ctrlrange="-1 1"/></actuator></mujoco>"""


@pytest.fixture
def arm(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "My_Arm.urdf").write_text(ARM)
    return tmp_path / "My_Arm.urdf"


def test_a_declaration_is_written_and_explained(arm, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "140")
    assert run(["init", str(arm), "--no-check", "--dt", "0.02"]) == 0
    said = capsys.readouterr().out
    for words in ("one chain of joints stands on its base", "MuJoCo, ", "next: neurodyn check my-arm"):
        assert words in said
    assert said.splitlines()[-1] == "then: neurodyn train my-arm --data my-arm.h5 --out runs/my-arm --base contact"
    robot = robots.load("my-arm")
    (elbow,) = robot.joints
    assert (robot.name, robot.dt, robot.actuated) == ("my-arm", 0.02, {"elbow": 5.0})
    assert (elbow.lower, elbow.upper) == (-1.0, 2.0)
    assert elbow.armature is None  # its own inertia keeps full effort from passing the rated speed in two frames
    assert robot.range.qd["elbow"][1] >= 12.0
    before = (arm.parent / "my-arm" / "robot.yaml").read_text()
    assert run(["init", str(arm), "--no-check"]) == 2
    assert "my-arm: already exists" in capsys.readouterr().err
    assert (arm.parent / "my-arm" / "robot.yaml").read_text() == before
    assert run(["init", str(arm), "--no-check", "--force", "--name", "other", "--out", "my-arm"]) == 0
    assert robots.load("my-arm").name == "other"


def test_the_bar_shows_the_check_and_never_goes_back(arm, monkeypatch):
    seen: list[tuple[float, str]] = []
    monkeypatch.setattr(ProgressBar, "update", lambda _bar, done, text: seen.append((done, text)))
    assert run(["init", str(arm)]) == 0
    shares = [done for done, _ in seen]
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    assert {"convergence", "joint limits"} <= {text for _, text in seen}


def test_the_commands_that_are_printed_make_a_good_first_model(arm, capsys):
    assert run(["init", str(arm), "--no-check"]) == 0
    *_, generate, train = (line.partition("neurodyn ")[2].split() for line in capsys.readouterr().out.splitlines())
    assert run(["3000" if word == "100000" else word for word in generate]) == 0
    assert run([*train, "--steps", "2"]) == 0
    assert run(["evaluate", "runs/my-arm", "--horizon", "20", "--rollouts", "8", "--json", "found.json"]) == 0
    found = json.loads(Path("found.json").read_text())
    assert found["joint_rad"] < 0.01  # where nothing moved it would be 0.1


def test_a_folder_with_the_name_of_a_robot_that_ships_is_named_by_its_path(arm, capsys):
    assert run(["init", str(arm), "--no-check", "--name", "a1"]) == 0
    said = capsys.readouterr().out
    assert "neurodyn generate ./a1 " in said
    assert robots.load("./a1").actuated == {"elbow": 5.0}


def test_what_the_engine_does_not_know_is_said(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pair.xml").write_text(PAIR.replace("<mujoco>", '<mujoco><option integrator="RK4"/>'))
    assert run(["init", "pair.xml", "--no-check"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "integrator RK4" in said
    assert said.endswith("then: neurodyn train pair --data pair.h5 --out runs/pair --base contact")


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
    lines = capsys.readouterr().err.splitlines()
    notes = [line for line in lines if "note:" in line and "note: compiling" not in line]  # as on a new machine
    assert len(notes) == 1
    assert "left out: mesh 'shell.stl' does not exist" in notes[0]


def test_an_asset_without_motors_is_given_some_next(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("rod.xml").write_text(ROD)
    assert run(["init", "rod.xml", "--out", "rod"]) == 0
    said = capsys.readouterr().out
    assert "next: give rod.xml motors or servos and run this again with --force" in said
    assert "generate" not in said
    assert max(map(len, said.partition("\n\n")[0].splitlines())) <= 80, "through a pipe"
    assert run(["check", "./rod", "--worlds", "2", "--frames", "10"]) == 0
    said = capsys.readouterr().out
    assert "joint limits: no driven joint has any" in said
    assert "next: give it motors" in said
    assert "generate" not in said


def test_a_mesh_that_is_missing_is_said_once_though_the_file_is_copied(arm, capsys):
    mesh = '<collision><geometry><mesh filename="gone.stl"/></geometry></collision></link>'
    arm.write_text(ARM.replace("</inertial></link>", f"</inertial>{mesh}"))
    assert run(["init", str(arm), "--no-check"]) == 0
    notes = [line for line in capsys.readouterr().err.splitlines() if "gone.stl" in line]
    assert len(notes) == 1
    assert notes[0].startswith("neurodyn: note: My_Arm.urdf: left out: mesh 'gone.stl' does not exist")


def test_a_world_needs_no_link_and_commands_to_copy_are_quoted(tmp_path, capsys, monkeypatch):
    """As in files for Gazebo, which fix a robot to `world` without a link of that name."""
    monkeypatch.chdir(tmp_path)
    folder = Path("my robots")
    folder.mkdir()
    (folder / "arm.urdf").write_text(TO_WORLD)
    monkeypatch.setenv("COLUMNS", "140")
    assert run(["init", str(folder / "arm.urdf"), "--out", str(folder / "arm")]) == 0
    said = capsys.readouterr().out
    assert "its root link is named 'world'" in said
    assert "next: neurodyn check 'my robots/arm'" in said


ROD = """<mujoco><worldbody><body pos="0 0 1"><joint name="hinge" axis="0 1 0"/>
  <geom type="capsule" fromto="0 0 0 0 0 -.5" size=".02" mass=".5"/></body></worldbody></mujoco>"""
_INERTIAL = '<inertial><mass value="1"/><inertia ixx=".1" iyy=".1" izz=".1" ixy="0" ixz="0" iyz="0"/></inertial>'
TO_WORLD = f"""<robot name="arm"><link name="base">{_INERTIAL}</link><link name="fore">{_INERTIAL}</link>
  <joint name="fix" type="fixed"><parent link="world"/><child link="base"/></joint>
  <joint name="j" type="revolute"><parent link="base"/><child link="fore"/><axis xyz="0 1 0"/>
    <limit lower="-1" upper="1" effort="5" velocity="2"/></joint></robot>"""
