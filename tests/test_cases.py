# SPDX-License-Identifier: Apache-2.0
"""Files of others that once came out wrong in silence, each with the right value: from plain MuJoCo, or by hand."""

import re
import subprocess
import sys
from pathlib import Path

import gymnasium
import mujoco
import numpy as np
import pytest
import torch
import yaml

import neurodyn  # noqa: F401  registers the environments
from neurodyn.cli.main import run
from neurodyn.core.errors import InputError
from neurodyn.data.store import Store
from neurodyn.policy.artifact import load_policy
from neurodyn.robots import Robot, load
from neurodyn.sim.declaration.declare import Declaration, declare
from neurodyn.sim.mujoco.build import build_model
from neurodyn.sim.simulators import simulator
from tests.plant import repository

CASES = repository().parent / "shared/cases"
FRAMES, DT = 797, 0.01  # of a log of 8 s

ARM = """<robot name="arm"><link name="base"/><link name="upper">{inertial}</link>
<joint name="shoulder" type="revolute"><parent link="base"/><child link="upper"/>{limit}</joint>
<link name="fore">{inertial}</link>
<joint name="elbow" type="revolute"><parent link="upper"/><child link="fore"/><origin xyz="0 0 .2"/>{limit}</joint>
</robot>""".format(
    inertial='<inertial><origin xyz="0 0 .1"/><mass value="1"/>'
    '<inertia ixx=".01" iyy=".01" izz=".01" ixy="0" ixz="0" iyz="0"/></inertial>',
    limit='<axis xyz="0 1 0"/><limit lower="-3" upper="3" effort="5" velocity="9"/>',
)  # fmt: skip

pytestmark = pytest.mark.skipif(not CASES.is_dir(), reason=f"the cases are not there: {CASES}")


def declared(case: str, folder: Path, **options: bool) -> Declaration:
    """Declare the robot of a case."""
    return declare(CASES / case, folder / Path(case).stem, **options)


def robot_of(case: str, folder: Path) -> Robot:
    """Return the declared robot of a case."""
    return load(declared(case, folder).path.parent)


def made(script: str, folder: Path, *more: object) -> str:
    """Run the script of a case, which writes files to a folder; return what it says."""
    command = [sys.executable, CASES / script, *more, folder]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def said(capsys: pytest.CaptureFixture[str], *command: object, code: int = 0) -> str:
    """Return what a command says, which ends with an exit code."""
    capsys.readouterr()
    assert run([str(part) for part in command]) == code
    return " ".join("".join(capsys.readouterr()).split())


@pytest.fixture
def arm(tmp_path: Path) -> Path:
    """A robot of two joints, whose motion the logs are of."""
    (tmp_path / "arm.urdf").write_text(ARM)
    return declare(tmp_path / "arm.urdf", tmp_path / "arm").path.parent


def imported(log: Path, robot: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """Import a log by the column map drafted for it; return what both commands say."""
    drafted = log.parent / f"{log.name}.yaml"
    text = said(capsys, "inspect", log, "--robot", robot, "--map", drafted)
    return text + said(capsys, "import", log, "--robot", robot, "--reader", drafted, "--out", f"{log}.h5")


def test_a_hopper_has_its_total_mass_and_moves_as_in_plain_mujoco_on_each_ground(tmp_path: Path):
    robot = robot_of("mjcf-settotalmass/hopper.xml", tmp_path)
    for ground in ("flat", "tilted", "rough"):
        scene = robot.named_ground(ground)
        assert build_model(robot, scene).model.body("torso").mass[0] == pytest.approx(9.167, abs=5e-4)
        pushed = simulator(robot, 1, scene=scene)
        q, qd = torch.zeros(1, robot.spec.nq), torch.zeros(1, robot.spec.nv)
        q[0, 2], q[0, 6] = 3.0, 1.0
        for _ in range(round(0.05 / robot.dt)):
            q, qd = pushed.step(q, qd, torch.tensor([[2.0, 0.0]]))
        assert float(q[0, robot.spec.q_names.index("hip")]) == pytest.approx(0.0224, abs=5e-5)


def test_a_sled_slides_as_far_as_the_friction_of_its_file_lets_it(tmp_path: Path):
    declaration = declared("mjcf-friction/sled.xml", tmp_path)
    robot = load(declaration.path.parent)
    assert robot.material is None
    sliding = simulator(robot, 1, scene=robot.named_ground("flat"))
    q, qd = torch.zeros(1, robot.spec.nq), torch.zeros(1, robot.spec.nv)
    q[0, 2], q[0, 6], qd[0, 0] = 0.0995, 1.0, 2.0
    for _ in range(round(1.5 / robot.dt)):
        q, qd = sliding.step(q, qd, torch.zeros(1, robot.spec.nu))
    assert float(q[0, 0]) == pytest.approx(0.6745, abs=2e-3)


def test_locked_followers_are_where_their_leader_puts_them(tmp_path: Path):
    model = build_model(robot_of("urdf-mimic/gripper_arm.urdf", tmp_path)).model
    data = mujoco.MjData(model)
    data.joint("j2").qpos[0] = 0.8
    mujoco.mj_forward(model, data)
    assert data.joint("j2").qfrc_bias[0] == pytest.approx(-2.606, abs=5e-4)


def test_followers_that_are_declared_follow(tmp_path: Path):
    path = declared("urdf-mimic/gripper_arm.urdf", tmp_path).path
    tree = yaml.safe_load(path.read_text())
    del tree["locked"]
    tree["joints"] += [{"name": "left_finger", "kind": "revolute", "lower": 0.0, "upper": 0.8}]
    tree["joints"] += [{"name": "right_finger", "kind": "revolute", "lower": -0.4, "upper": 0.6}]
    path.write_text(yaml.safe_dump(tree | {"actuated": {"j1": 20.0, "j2": 20.0}}))
    model = build_model(load(path.parent)).model
    assert model.eq_data[0, :2] == pytest.approx([0.4, -1.0])


def test_a_joint_without_a_range_is_held_within_its_limits(tmp_path: Path):
    notes = [one.value for one in declared("urdf-mimic/frozen.urdf", tmp_path).decisions if one.what == "note"]
    assert any("locked at 0.7: clamped" in note for note in notes)


def test_a_continuous_joint_has_no_limits_and_an_effort_of_zero_is_named(tmp_path: Path):
    endless = robot_of("urdf-sweep/continuous_limits.urdf", tmp_path).joints[1]
    assert (endless.lower, endless.upper) == (None, None)
    still = declared("urdf-sweep/effort0.urdf", tmp_path)
    assert list(still.robot.actuated) == ["j1"]
    assert any("j2 is not driven" in one.value and "effort of 0" in one.value for one in still.decisions)


def test_the_effort_of_a_dc_motor_is_its_stall_torque(tmp_path: Path):
    assert robot_of("mjcf-dcmotor/dc.xml", tmp_path).actuated["a"] == pytest.approx(32.0)


@pytest.mark.parametrize(
    ("file", "named"),
    [
        (
            "zero_inertia.urdf",
            "line 6: link 'l2' moves with a mass of 1 kg, but ixx, iyy and izz of its <inertia> are 0",
        ),
        ("no_matrix.urdf", "line 6: <inertial> of link 'l2' has no <inertia>"),
    ],
)
def test_a_number_that_a_urdf_lacks_is_named_with_its_line(file: str, named: str, tmp_path: Path):
    with pytest.raises(InputError, match=re.escape(named)):
        declared(f"urdf-bad-inertia/{file}", tmp_path)


def test_a_flat_mesh_is_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    text = said(capsys, "init", CASES / "urdf-mesh/flat.urdf", "--out", tmp_path / "flat")
    assert "mesh 'flat_mm.stl' is flat" in text
    assert load(tmp_path / "flat").actuated == {"j1": 20.0}


@pytest.mark.parametrize("log", ["time", "timestep", "novel"])
def test_states_of_mujoco_keep_their_clock(log: str, arm: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    made("mujoco-npz-time/make.py", tmp_path / "logs")
    text = imported(tmp_path / f"logs/{log}.npz", arm, capsys)
    assert "250 Hz" in text
    assert f"{FRAMES} frames of {DT} s" in text


def test_states_without_a_clock_ask_for_one(arm: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    made("mujoco-npz-time/make.py", tmp_path / "logs")
    log, drafted = tmp_path / "logs/none.npz", tmp_path / "map.yaml"
    said(capsys, "inspect", log, "--robot", arm, "--map", drafted)
    assert "give `period`" in said(capsys, "import", log, "--robot", arm, "--reader", drafted, "--out", "x.h5", code=2)


@pytest.mark.parametrize("log", ["mj.npz", "world.csv"])
def test_a_base_has_the_velocity_of_its_centre_of_mass(log: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    made("odometry-axes/make.py", tmp_path)
    robot = declared("odometry-axes/box.urdf", tmp_path, floating=True).path.parent
    drafted = tmp_path / "mj.yaml"
    said(capsys, "inspect", tmp_path / "mj.npz", "--robot", robot, "--map", drafted)
    given = drafted if log == "mj.npz" else CASES / "odometry-axes/map.yaml"
    said(capsys, "import", tmp_path / log, "--robot", robot, "--reader", given, "--out", tmp_path / "log.h5")
    truth, rows = np.load(tmp_path / "truth.npz"), Store.open(tmp_path / "log.h5").frames[:500:100]
    at = [int(np.abs(truth["p"] - row[:3]).sum(1).argmin()) for row in rows]
    turned = [mat @ (0.05, -0.02, 0.03) for mat in map(_matrix, truth["q"][at])]
    expected = truth["v"][at] + np.cross(truth["ww"][at], turned)
    assert rows[:, 8:11] == pytest.approx(expected, abs=1e-6)


def _matrix(quaternion: np.ndarray) -> np.ndarray:
    matrix = np.zeros(9)
    mujoco.mju_quat2Mat(matrix, np.roll(quaternion, 1))
    return matrix.reshape(3, 3)


def test_readings_that_are_no_numbers_are_left_out(arm: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    pytest.importorskip("rosbags")
    bags = tmp_path / "bags"
    made("jointstate-partial/make.py", bags)
    for bag, frames in (("a_order", FRAMES), ("b_two", 795), ("f_grip", FRAMES), ("h_repeat", FRAMES)):
        assert f"{frames} frames of {DT} s" in imported(bags / bag, arm, capsys)
    text = said(capsys, "inspect", bags / "d_nan", "--robot", arm, "--map", tmp_path / "nan.yaml")
    assert "velocity[" not in text
    assert "effort[" not in text
    back = tmp_path / "back.yaml"
    said(capsys, "inspect", bags / "i_back", "--robot", arm, "--map", back)
    command = ("import", bags / "i_back", "--robot", arm, "--reader", back, "--out", tmp_path / "back.h5")
    assert "`clock: log` takes the recorder's times" in said(capsys, *command, code=2)
    back.write_text(back.read_text() + "clock: log\n")
    assert f"{FRAMES} frames of {DT} s" in said(capsys, *command)
    for key in ("episodes: e", "split: nosuch", "group: g", "time_unit: ms", "delimiter: ;"):
        back.write_text(f"{key}\nclock: log\n" + (bags / "a_order.yaml").read_text())
        assert key.partition(":")[0] in said(capsys, *command, code=2)


def test_a_bag_that_was_cut_says_how_much_of_it_is_left(arm: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    pytest.importorskip("rosbags")
    made("jointstate-partial/make.py", tmp_path / "bags")
    made("bag-cut-short/make.py", tmp_path / "cut", tmp_path / "bags")
    left = {"cut90.mcap": 800, "cut50.mcap": 0, "zeros.mcap": 445, "small90.mcap": 739}
    for name, count in left.items():
        text = said(capsys, "inspect", tmp_path / "cut" / name, "--robot", arm, "--map", tmp_path / "m.yaml", code=2)
        assert f"after {count} messages" in text
    for name in ("nometa", "nometa_mcap", "zst", "small_nofooter.mcap"):
        assert "800 rows" in said(
            capsys, "inspect", tmp_path / "cut" / name, "--robot", arm, "--map", tmp_path / f"{name}.yaml"
        )


def test_recurrent_actors_of_rsl_rl_act_as_they_do_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    pytest.importorskip("rsl_rl")
    text = made("rsl-rl-checkpoints/make_real.py", tmp_path)
    theirs = [list(map(float, row.split(","))) for row in re.findall(r"own network: \[(.*)\]", text)]
    for (name, memory), actions in zip(
        (("real_gru64", "gru of 64"), ("real_gru4", "gru of 4"), ("real_lstm4", "lstm of 4")), theirs, strict=True
    ):
        out, command = tmp_path / name, ("--layout", "rsl-rl", "--task", "cartpole-swingup", "--out")
        assert memory in said(capsys, "policy", "import", tmp_path / f"{name}.pt", *command, out)
        network, hidden, ours = load_policy(out)[1], None, []
        for row in torch.load(tmp_path / f"{name}.pt.x"):
            action, hidden = network.remember(row[None], hidden)
            ours.append(float(action))
        assert ours == pytest.approx(actions, abs=1e-5)
    said(capsys, "policy", "import", tmp_path / "real_hetero.pt", *command, tmp_path / "hetero")


def test_resets_in_a_row_differ():
    env = gymnasium.make("neurodyn/cartpole-swingup-v0", dynamics="hybrid")
    starts = {tuple(env.reset()[0].round(4).tolist()) for _ in range(5)}
    env.close()
    assert len(starts) == 5
    gymnasium.make_vec("neurodyn/cartpole-swingup-v0", num_envs=2, dynamics="hybrid", render_mode=None).close()
