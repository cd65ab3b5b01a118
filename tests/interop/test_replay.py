# SPDX-License-Identifier: Apache-2.0
"""An export replays the held-out log in its own simulator before it is written."""

import json
import shutil
from pathlib import Path

import msgspec
import mujoco
import numpy as np
import pytest
import torch
import yaml

from neurodyn import InputError
from neurodyn.cli.main import run as command
from neurodyn.core.description.blueprint import Augmentation
from neurodyn.core.description.drive import Drive
from neurodyn.data.header import Split, StoreHeader
from neurodyn.data.store import Store
from neurodyn.data.writer import StoreWriter
from neurodyn.dynamics import HybridDynamics, State, declared_hybrid
from neurodyn.dynamics.artifact import save
from neurodyn.dynamics.behind_drives import put_behind_drives
from neurodyn.interop import export_identified, replay, replay_mujoco
from neurodyn.interop.replays import Replay, losses, total
from neurodyn.sim import declare
from tests.interop.open_loop import with_networks
from tests.interop.runs import identified_run, write_arm

SERVOS = """<mujoco model="servos">
  <compiler angle="radian"/>
  <option timestep="0.002" integrator="implicitfast"/>
  <default>
    <joint damping="0.5" armature="0.05"/><geom contype="0" conaffinity="0"/>
    <default class="servo"><position kp="100" kv="8" forcerange="-40 40"/></default>
  </default>
  <worldbody>
    <body pos="0 0 1"><joint name="lift" axis="0 1 0" range="-2 2"/>
      <geom type="capsule" fromto="0 0 0 .4 0 0" size=".03" mass="2"/>
      <body pos=".4 0 0"><joint name="elbow" axis="0 1 0" range="-2 2"/>
        <geom type="capsule" fromto="0 0 0 .3 0 0" size=".03" mass="1"/></body></body>
  </worldbody>
  <actuator>
    <position class="servo" name="elbow" joint="elbow" ctrlrange="-2 2"/>
    <position class="servo" name="lift" joint="lift" ctrlrange="-2 2"/>
  </actuator>
</mujoco>
"""
FAULTS = (
    "lift.friction=1.5", "elbow.damping=1.2", "elbow.armature=.09", "elbow.mass=1.6", "actuator.lift.kp=80",
    "actuator.elbow.kd=5", "actuator.lift.bias=.03", "actuator.elbow.bias=-.05",
)  # fmt: skip


@pytest.fixture(scope="module")
def servos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the declaration of an arm whose servos have delays."""
    folder = tmp_path_factory.mktemp("servos")
    (folder / "arm.xml").write_text(SERVOS)
    declare(folder / "arm.xml", folder / "robot", name="servos", dt=0.01)
    path = folder / "robot" / "robot.yaml"
    declared = yaml.safe_load(path.read_text())
    for drive in declared["drives"].values():
        drive |= {"longest_delay": 0.03}
    path.write_text(yaml.safe_dump(declared, sort_keys=False))
    return folder / "robot"


def log_of(model: HybridDynamics, path: Path, drives: dict[str, Drive] | None = None, frames: int = 120) -> Store:
    """Write a log of a model's motion under smooth commands."""
    spec, time = model.spec, np.arange(frames) * model.spec.dt
    generator = np.random.default_rng(0)
    rates, phases = generator.uniform(2.0, 9.0, (6, 1, spec.nu)), generator.uniform(0.0, 6.0, (6, 1, spec.nu))
    control = torch.from_numpy(0.6 * np.sin(rates * time[None, :, None] + phases))
    at = {name: control[:, 0, k] for k, name in enumerate(spec.controls)}
    targets = spec.control_kind != "torque"
    q = torch.stack([at.get(name, torch.zeros(6)) if targets else torch.zeros(6) for name in spec.q_names], -1).double()
    qd = torch.zeros(6, spec.nv, dtype=torch.float64)
    if spec.floating:
        q[:, 2], q[:, 6], qd[:, 0], qd[:, 5] = 0.1, 1.0, 2.0, 3.0  # it slides and turns
    path_ = model.rollout(State(q=q, qd=qd), control)
    split = np.array([Split.TRAIN] * 3 + [Split.VALIDATION] + [Split.TEST] * 2, np.int8)
    with StoreWriter(path, StoreHeader(spec=spec, source="log", drives=drives or {})) as writer:
        writer.append(*(x.float().numpy() for x in (path_.q, path_.qd, control)), split=split)
    return Store.open(path)


def run_of(model: HybridDynamics, folder: Path, data: Path) -> Path:
    """Write a run that names its data."""
    save(folder, model)
    (folder / "config.yaml").write_text(yaml.safe_dump({"kind": "hybrid", "data": [str(data)]}))
    return folder


LATE = ("actuator.lift.delay=.0123", "actuator.elbow.delay=.004")


@pytest.mark.parametrize(("names", "most"), [((*FAULTS, *LATE), 1e-5), (FAULTS, 3e-4)])
def test_an_exported_mjcf_replays_the_log_as_the_model(servos, tmp_path, names, most):
    model = identified_run(tmp_path / "run", str(servos), *names, contact="soft")
    log_of(model, tmp_path / "log.h5")
    run_of(model, tmp_path / "run", tmp_path / "log.h5")
    exported = export_identified(tmp_path / "run", "mjcf", tmp_path / "out")
    assert exported.left_out == ()
    errors = exported.replay
    assert (errors.split, errors.horizon, errors.windows) == ("test", 0.5, 100)
    assert min(errors.original.values()) > 0.02
    assert max(errors.exported.values()) < most
    assert max(errors.model.values()) < 1e-5
    assert not errors.worse
    compiled = mujoco.MjModel.from_xml_path(str(tmp_path / "out" / "servos.xml"))
    assert [compiled.actuator(k).name for k in range(2)] == ["elbow", "lift"]  # as in the asset, with its ranges
    assert compiled.actuator_forcerange.tolist() == [[-40.0, 40.0]] * 2
    assert compiled.actuator_ctrlrange.tolist() == [[-2.0, 2.0]] * 2
    assert compiled.joint("lift").range.tolist() == pytest.approx([-1.97, 2.03])
    assert compiled.joint("lift").qpos0[0] == pytest.approx(0.03)


@pytest.mark.parametrize(
    ("more", "share"), [({"updates": 1}, 0.35), ({"lag": 0.006}, 0.5), ({"updates": 1, "delay": 0.011}, 0.35)]
)
def test_a_controller_that_trails_is_exported_to_first_order(tmp_path, more, share):
    pd = {name: Drive(kind="pd", kp=20.0, kd=0.6) for name in ("pan", "lift", "elbow")}
    late = {name: msgspec.structs.replace(drive, **more) for name, drive in pd.items()}
    model = put_behind_drives(declared_hybrid(write_arm(tmp_path / "arm")), late)
    store = log_of(model, tmp_path / "log.h5", pd)
    exported = export_identified(model, "mjcf", tmp_path / "out", data=store)
    assert exported.left_out == ()
    for joint in ("pan", "lift"):
        assert exported.replay.exported[joint] < share * exported.replay.original[joint]


@pytest.mark.parametrize("target", ["mjcf", "mjlab"])
def test_weak_and_late_motors_are_exported_with_their_gain_delay_and_lag(tmp_path, target):
    motor = '<motor name="{0}" joint="{0}" ctrlrange="-40 40"/>'
    begin, end = SERVOS.index("<actuator>") + len("<actuator>"), SERVOS.index("</actuator>")
    text = SERVOS[:begin] + motor.format("lift") + motor.format("elbow") + SERVOS[end:]
    (tmp_path / "arm.xml").write_text(text.replace('range="-2 2"', 'range="-4 4"'))
    declare(tmp_path / "arm.xml", tmp_path / "robot", name="servos", dt=0.01)
    late = 0.0075  # with half a step two steps of mjlab, which has whole ones
    weak = {"lift": Drive(gain=0.7, lag=0.012), "elbow": Drive(gain=0.8, delay=late, longest_delay=0.02)}
    model = put_behind_drives(declared_hybrid(tmp_path / "robot", contact="soft"), weak)
    exported = export_identified(model, target, tmp_path / "out", data=log_of(model, tmp_path / "log.h5"))
    assert exported.left_out == ()
    assert max(exported.replay.exported.values()) < 3e-5 < 1e-2 < min(exported.replay.original.values())
    compiled = mujoco.MjModel.from_xml_path(str(tmp_path / "out" / "servos.xml"))
    assert compiled.actuator_ctrlrange.tolist() == [[-40.0, 40.0]] * 2
    assert compiled.actuator_delay.tolist() == ([0.0, 0.01] if target == "mjcf" else [0.0, 0.0])


def test_a_servo_with_another_name_than_its_joint_keeps_its_place(tmp_path):
    text = SERVOS.replace('name="elbow" joint', 'name="second" joint').replace(
        'name="lift" joint', 'name="first" joint'
    )
    (tmp_path / "arm.xml").write_text(text)
    declare(tmp_path / "arm.xml", tmp_path / "robot", name="servos", dt=0.01)
    names = ("lift.friction=1.5", "elbow.mass=1.6", "actuator.first.kp=80", "actuator.second.kd=5")
    model = identified_run(tmp_path / "run", str(tmp_path / "robot"), *names, contact="soft")
    exported = export_identified(model, "mjcf", tmp_path / "out", data=log_of(model, tmp_path / "log.h5"))
    assert exported.left_out == ()
    assert max(exported.replay.exported.values()) < 1e-5 < 1e-2 < min(exported.replay.original.values())
    compiled = mujoco.MjModel.from_xml_path(str(tmp_path / "out" / "servos.xml"))
    assert compiled.actuator("first").trnid[0] == compiled.joint("lift").id
    with pytest.raises(InputError, match="drive 'second' has a transmission of its own"):
        export_identified(model, "newton", tmp_path / "newton")


def test_a_file_that_errs_more_than_the_model_says_so():
    def remarks(exported: float, *left_out: str) -> tuple[str, ...]:
        result = Replay(
            target="mjcf", units={"lift": "rad"}, original={"lift": 0.1}, exported={"lift": exported},
            model={"lift": 0.001},
        )  # fmt: skip
        return losses(result, left_out)

    assert remarks(0.003, "actuator.lift.load_motor")[0].startswith("errs 3 times as much as the model")
    assert not remarks(0.0011, "actuator.lift.load_motor")
    assert not remarks(0.003)


def test_the_command_prints_the_errors_and_writes_them(servos, tmp_path, capsys):
    model = identified_run(tmp_path / "run", str(servos), *FAULTS, *LATE, contact="soft")
    log_of(model, tmp_path / "log.h5")
    run_of(model, tmp_path / "run", tmp_path / "log.h5")
    out, file = tmp_path / "out", tmp_path / "errors.json"
    assert command(["export", str(tmp_path / "run"), "--to", "mjcf", "--out", str(out), "--json", str(file)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 20
    assert max(len(line) for line in lines if str(tmp_path) not in line) <= 80
    assert lines[0].startswith("replayed in MuJoCo")
    assert any("needs MuJoCo 3.5 or later" in line for line in lines)
    assert not any("left out" in line for line in lines)
    assert json.loads(file.read_text())["horizon"] == 0.5


@pytest.mark.parametrize("given", [True, False])
def test_what_predicts_worse_than_the_original_is_written_by_force_alone(servos, tmp_path, capsys, given):
    worse = identified_run(tmp_path / "run", str(servos), *FAULTS, contact="soft")
    log_of(identified_run(tmp_path / "declared", str(servos), contact="soft"), tmp_path / "log.h5")
    run_of(worse, tmp_path / "run", tmp_path / ("gone.h5" if given else "log.h5"))
    out = tmp_path / "out"
    words = ["export", str(tmp_path / "run"), "--to", "mjcf", "--out", str(out)]
    words += ["--data", str(tmp_path / "log.h5")] if given else []
    assert command(words) == 2
    shown = capsys.readouterr()
    assert "mjcf predicts the held-out log worse than the original" in shown.err
    assert "valid: --force" in shown.err
    assert shown.out.startswith("replayed in MuJoCo")
    assert not out.exists()
    assert not list(tmp_path.glob("*.part*"))
    assert command([*words, "--force"]) == 0
    assert (out / "servos.xml").is_file()


def test_without_a_log_nothing_is_replayed_and_that_is_reported(servos, tmp_path, capsys):
    model = identified_run(tmp_path / "run", str(servos), *FAULTS, contact="soft")
    assert export_identified(model, "mjcf", tmp_path / "one").replay.reason.startswith("no log")
    assert command(["export", str(tmp_path / "run"), "--to", "mjcf", "--out", str(tmp_path / "two")]) == 0
    assert capsys.readouterr().out.startswith("not replayed: no log; name one with --data")
    run_of(model, tmp_path / "run", tmp_path / "gone.h5")
    assert replay(tmp_path / "run", "mjcf").reason.endswith("gone.h5, which is gone; name one with --data")
    with pytest.raises(InputError, match=r"gone\.h5"):
        export_identified(tmp_path / "run", "mjcf", tmp_path / "three", data=tmp_path / "gone.h5")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--force"], "--force is for exports that replay a log; valid with it: --to "),
        (["--to", "urdf", "--without-delay"], "--without-delay is for MJCF, not for urdf"),
        (["--to", "mjcf", "--data", "none.h5"], "--data: none.h5 does not exist"),
    ],
)
def test_flags_of_a_replay_are_refused_where_there_is_none(servos, tmp_path, capsys, words, message):
    identified_run(tmp_path / "run", str(servos), *FAULTS, contact="soft")
    assert command(["export", str(tmp_path / "run"), *words]) == 2
    assert message in capsys.readouterr().err


def test_a_simulator_that_is_missing_or_refuses_is_reported(servos, tmp_path, monkeypatch):
    model = identified_run(tmp_path / "run", str(servos), *FAULTS, contact="soft")
    store = log_of(model, tmp_path / "log.h5")

    def missing(*_):
        raise InputError("MuJoCo cannot be imported")

    with monkeypatch.context() as patch:
        patch.setattr(replay_mujoco, "play_mjcf", missing)
        assert replay(model, "mjcf", store).reason == "MuJoCo cannot be imported"
    monkeypatch.setattr(replay_mujoco, "play_asset", missing)
    errors = replay(model, "mjcf", store)
    assert errors.simulator.endswith("without the original (MuJoCo cannot be imported)")
    assert errors.original == {}
    assert not errors.worse


def test_filters_take_the_place_of_delays_for_older_versions(servos, tmp_path):
    model = identified_run(tmp_path / "run", str(servos), *FAULTS, *LATE, contact="soft")
    log_of(model, tmp_path / "log.h5")
    exported = export_identified(model, "mjcf", tmp_path / "out", data=tmp_path / "log.h5", without_delay=True)
    assert "delays are filters of the commands with the same mean" in exported.remarks
    assert "delay=" not in (tmp_path / "out" / "servos.xml").read_text()
    assert 1e-4 < max(exported.replay.exported.values()) < 0.1 * min(exported.replay.original.values())


def test_mjlab_is_replayed_with_its_actuators_and_c_as_compiled(servos, tmp_path):
    model = identified_run(tmp_path / "run", str(servos), *FAULTS, *LATE, contact="soft")
    log_of(model, tmp_path / "log.h5")
    run_of(model, tmp_path / "run", tmp_path / "log.h5")
    mjlab = replay(tmp_path / "run", "mjlab")
    assert mjlab.simulator.endswith("actuators as in mjlab")
    for joint in ("lift", "elbow"):  # delays are whole time steps there
        assert mjlab.exported[joint] < 0.2 * mjlab.original[joint]
    code = replay(tmp_path / "run", "c")
    assert code.simulator.startswith("C, the original in MuJoCo")
    assert max(code.exported.values()) < 1e-6
    assert replay(tmp_path / "run", "c", tmp_path / "log.h5").exported == code.exported


URDF = """<robot name="pole">
  <link name="base"/>
  <link name="rod"><inertial><origin xyz="0 0 -.2"/><mass value="1"/>
    <inertia ixx=".02" iyy=".02" izz=".001" ixy="0" ixz="0" iyz="0"/></inertial></link>
  <link name="slide"><inertial><origin xyz="0 0 -.1"/><mass value=".5"/>
    <inertia ixx=".01" iyy=".01" izz=".01" ixy="0" ixz="0" iyz="0"/></inertial></link>
  <joint name="turn" type="revolute"><parent link="base"/><child link="rod"/><origin xyz="0 0 1" rpy=".1 .2 .3"/>
    <axis xyz="0 1 0"/><limit lower="-2" upper="2" effort="100" velocity="10"/></joint>
  <joint name="reach" type="prismatic"><parent link="rod"/><child link="slide"/><origin xyz="0 0 -.3" rpy="0 .4 0"/>
    <axis xyz="0 0 1"/><limit lower="-1" upper="1" effort="100" velocity="10"/></joint>
</robot>
"""


def test_a_urdf_is_replayed_with_declared_drives_and_its_positions_are_readings(tmp_path):
    (tmp_path / "pole.urdf").write_text(URDF)
    declare(tmp_path / "pole.urdf", tmp_path / "robot", name="pole", dt=0.01)
    path = tmp_path / "robot" / "robot.yaml"
    declared = yaml.safe_load(path.read_text())
    declared.pop("drives", None)
    pd = {name: {"kind": "pd", "kp": 60.0, "kd": 4.0} for name in ("turn", "reach")}
    path.write_text(yaml.safe_dump({**declared, "drives": pd}, sort_keys=False))
    biases = ("actuator.turn.bias=.06", "actuator.reach.bias=-.03")
    model = identified_run(
        tmp_path / "run", str(tmp_path / "robot"), *biases, "turn.friction=.5", "reach.mass=.9", "turn.damping=.3",
        contact="soft",
    )  # fmt: skip
    exported = export_identified(model, "urdf", tmp_path / "out", data=log_of(model, tmp_path / "log.h5"))
    assert {name.rpartition(".")[2] for name in exported.left_out} == {"kp", "kd"}
    assert exported.remarks[0].startswith("a URDF holds no drives and no armatures")
    for joint in ("turn", "reach"):
        assert exported.replay.exported[joint] < 0.1 * exported.replay.original[joint]
    compiled = mujoco.MjModel.from_xml_path(str(tmp_path / "out" / "pole.urdf"))
    assert compiled.jnt_range.tolist() == pytest.approx(np.array([[-1.94, 2.06], [-1.03, 0.97]]))
    mjcf = export_identified(model, "mjcf", tmp_path / "mjcf", data=tmp_path / "log.h5")
    for joint in ("turn", "reach"):
        assert mjcf.replay.exported[joint] < 0.1 * mjcf.replay.original[joint]


def test_isaac_lab_is_not_replayed_and_that_is_reported(servos, tmp_path):
    model = identified_run(tmp_path / "run", str(servos), *FAULTS, contact="soft")
    exported = export_identified(model, "isaaclab", tmp_path / "out", data=log_of(model, tmp_path / "log.h5"))
    assert exported.replay.reason == "Isaac Lab is not installed"
    assert set(exported.left_out) == {"actuator.lift.bias", "actuator.elbow.bias"}  # of an MJCF


def test_links_that_the_model_lets_overlap_do_not_touch_in_the_file(tmp_path):
    text = SERVOS.replace('<geom contype="0" conaffinity="0"/>', "")
    palm = '<body pos=".1 0 0"><joint name="hand"/><geom size=".35" mass=".1"/></body>'
    text = text.replace("</body></body>", f"{palm}</body></body>")
    text = text.replace("<body pos", '<body name="BODY" pos')
    for name in ("upper", "fore", "palm"):
        text = text.replace('"BODY"', f'"{name}"', 1)
    (tmp_path / "arm.xml").write_text(text)
    declare(tmp_path / "arm.xml", tmp_path / "robot", name="servos", dt=0.01)
    model = identified_run(tmp_path / "run", str(tmp_path / "robot"), "lift.friction=1.5", contact="soft")
    exported = export_identified(model, "mjcf", tmp_path / "out", data=log_of(model, tmp_path / "log.h5"))
    assert max(exported.replay.exported.values()) < 1e-5
    compiled = mujoco.MjModel.from_xml_path(str(tmp_path / "out" / "servos.xml"))
    assert compiled.nexclude == 1  # of upper and palm, whose joint is not next to each other


def test_networks_are_replayed_in_their_plugin(servos, tmp_path):
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler")
    plain = identified_run(tmp_path / "run", str(servos), *FAULTS, contact="soft")
    network = Augmentation(("torque.lift",), ("q.lift", "qd.lift"), hidden=(4,), output_scale=(3.0,))
    model = with_networks(plain, network)
    exported = export_identified(model, "mjcf", tmp_path / "out", data=log_of(model, tmp_path / "log.h5"))
    assert "servos_plugin.xml" in exported.files
    assert {path.name for path in (tmp_path / "out").iterdir()} == set(exported.files)
    assert max(exported.replay.exported.values()) < 3e-4


BOX = """<mujoco model="box"><worldbody>{floor}
  <body name="box" pos="0 0 .3"><freejoint name="base"/><geom type="box" size=".1 .15 .05" mass="2"/>
    <body pos=".1 0 0"><joint name="arm" axis="0 1 0" range="-1 1" damping=".5" armature=".02"/>
      <geom type="capsule" fromto="0 0 0 .2 0 0" size=".03" mass=".3"/></body></body></worldbody>
  <actuator><motor name="arm" joint="arm"/></actuator></mujoco>"""


WALL, FLOOR = '<geom type="plane" size="0 0 1" zaxis="0 1 0"/>', '<geom type="plane" size="1 1 1"/>'


@pytest.mark.parametrize("floor", ["", WALL, FLOOR])
def test_a_floating_robot_is_replayed_on_a_level_floor(tmp_path, floor):
    (tmp_path / "box.xml").write_text(BOX.format(floor=floor))
    declare(tmp_path / "box.xml", tmp_path / "robot", name="box", dt=0.01)
    model = identified_run(
        tmp_path / "run", str(tmp_path / "robot"), "base.mass=2.6", "base.com.x=.02", "arm.friction=.2",
        "contact.friction=.4", contact="soft",
    )  # fmt: skip
    exported = export_identified(model, "mjcf", tmp_path / "out", data=log_of(model, tmp_path / "log.h5", frames=80))
    errors = exported.replay
    assert {errors.units[name] for name in ("base.x", "base.rx", "arm")} == {"m", "rad"}
    assert not errors.reason
    for unit, error in total(errors, "exported").items():
        assert error < 0.2 * total(errors, "original")[unit]


def test_a_joint_that_follows_another_does_so_in_both_files(tmp_path):
    follower = """<link name="tip"><inertial><origin xyz="0 0 -.1"/><mass value=".3"/>
        <inertia ixx=".003" iyy=".003" izz=".003" ixy="0" ixz="0" iyz="0"/></inertial></link>
      <joint name="follow" type="revolute"><parent link="rod"/><child link="tip"/><origin xyz="0 .1 -.2"/>
        <axis xyz="0 1 0"/><limit lower="-2" upper="2" effort="5" velocity="9"/>
        <mimic joint="turn" multiplier="-.5" offset=".2"/></joint>"""
    (tmp_path / "pole.urdf").write_text(URDF.replace("</robot>", f"{follower}</robot>"))
    declare(tmp_path / "pole.urdf", tmp_path / "robot", name="pole", dt=0.01)
    path = tmp_path / "robot" / "robot.yaml"
    declared = yaml.safe_load(path.read_text())
    declared.pop("locked", None)
    declared["joints"] = [
        {"name": name, "kind": kind, "lower": -2.0, "upper": 2.0, "armature": 0.05}
        for name, kind in (("turn", "revolute"), ("reach", "prismatic"), ("follow", "revolute"))
    ]
    declared["actuated"] = {"turn": 20.0, "reach": 20.0}
    path.write_text(yaml.safe_dump(declared, sort_keys=False))
    model = identified_run(
        tmp_path / "run", str(tmp_path / "robot"), "turn.damping=.4", "reach.mass=.7", contact="soft"
    )
    store = log_of(model, tmp_path / "log.h5")
    for target in ("mjcf", "urdf"):
        errors = export_identified(model, target, tmp_path / target, data=store).replay
        assert errors.exported["follow"] < 1e-5 < errors.original["follow"]
