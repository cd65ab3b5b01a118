# SPDX-License-Identifier: Apache-2.0
"""Plain MuJoCo with an exported MJCF and the plugin beside it moves as the model, a thousand steps long."""

import json

import mujoco
import numpy as np
import pytest
import torch
import yaml
from safetensors.torch import load_file

from neurodyn import InputError, robots
from neurodyn.core.description.blueprint import Augmentation
from neurodyn.dynamics import State, declared_hybrid
from neurodyn.dynamics.artifact import save
from neurodyn.identify.drives import drive_by_network
from neurodyn.interop import export_identified
from neurodyn.interop.network_forces import network_forces
from tests.interop.open_loop import open_loop_error, plugin_path, with_networks
from tests.interop.runs import network_run, network_torques, random_start, write_arm
from tests.stand_in import DRIVES

MOTORS = "".join(f'<motor name="{name}" joint="{name}" gear="2"/>' for name in ("pan", "lift", "elbow"))
TORQUE = Augmentation(
    quantities=("torque.elbow",), inputs=("qd.elbow", "qd.elbow@0.01", "control.elbow@0.006"), memory=3,
    output_scale=(0.3,),
)  # fmt: skip
WRENCH = Augmentation(
    quantities=("wrench.elbow.force.x", "wrench.elbow.moment.y"), inputs=("velocity.elbow.x", "spin.elbow.y"),
    output_scale=(0.3, 0.3), activation="silu",
)  # fmt: skip
DRAG = Augmentation(quantities=("passive.pan",), inputs=("qd.pan",), activation="softsign", structure="dissipative")
DRIVE = Augmentation(quantities=("actuator.lift",), inputs=("control.lift", "qd.lift"), mode="scale", activation="elu")
POTENTIAL = Augmentation(
    quantities=("torque.lift", "torque.elbow"), inputs=("q.lift", "sin(q.elbow)"), structure="conservative",
    activation="softplus",
)  # fmt: skip
LEGS = [f"{part}_{leg}" for leg in range(1, 5) for part in ("hip", "ankle")]


def arm(folder, **more):
    """Return an arm in plain MuJoCo with a motor at each joint."""
    robot = write_arm(folder, **{"simulator": {"solver": "mujoco-c"}, **more})
    own = '<motor name="own" joint="elbow" gear="7"/>'
    file = folder / "arm.xml"
    file.write_text(file.read_text().replace(own, MOTORS))
    return declared_hybrid(robot, parameters=["elbow.mass=3", "lift.damping=.3", "pan.armature=.1"])


def ant(folder):
    """Return a small four-legged robot on a plane."""
    legs = "".join(
        f'<body name="thigh{i}" pos="{0.2 * x} {0.2 * y} 0"><joint name="hip_{i}" axis="0 0 1" range="-40 40"/>'
        f'<geom type="capsule" fromto="0 0 0 {0.2 * x} {0.2 * y} 0" size=".04"/>'
        f'<body name="shin{i}" pos="{0.2 * x} {0.2 * y} 0"><joint name="ankle_{i}" axis="{-y} {x} 0" range="30 100"/>'
        f'<geom type="capsule" fromto="0 0 0 {0.3 * x} {0.3 * y} 0" size=".04"/></body></body>'
        for i, (x, y) in enumerate([(1, 1), (-1, 1), (-1, -1), (1, -1)], 1)
    )
    motors = "".join(f'<motor name="{name}" joint="{name}"/>' for name in LEGS)
    folder.mkdir()
    (folder / "ant.xml").write_text(
        '<mujoco><compiler angle="degree"/><default><joint damping="1" armature=".05"/>'
        '<geom density="500" contype="0" conaffinity="1"/><motor gear="20"/></default><worldbody>'
        '<body name="torso" pos="0 0 .75"><freejoint name="root"/><geom size=".2"/>'
        f'<geom pos=".05 .02 .1" size=".08"/>{legs}</body></worldbody><actuator>{motors}</actuator></mujoco>'
    )
    ranges = {"hip": (-np.radians(40), np.radians(40)), "ankle": (np.radians(30), np.radians(100))}
    joints = [
        {"name": n, "kind": "revolute", **dict(zip(("lower", "upper"), map(float, ranges[n[:-2]]), strict=True))}
        for n in LEGS
    ]
    declared = {
        "name": "small-ant", "asset": "ant.xml", "dt": 0.02, "fixed_base": False, "actuated": {"*": 20.0},
        "joints": [{"name": "root", "kind": "free"}, *joints], "simulator": {"solver": "mujoco-c", "substeps": 10},
        "contact_points": {"distinct": True}, "grounds": {"flat": {"shapes": [{"kind": "plane"}]}}, "ground": "flat",
        "sampling": {"height": [0.5, 1.0], "qd": {"*": [-1.0, 1.0]}},
    }  # fmt: skip
    (folder / "robot.yaml").write_text(yaml.safe_dump(declared))
    return declared_hybrid(str(folder), parameters=["root.mass=25", "ankle_1.damping=1.5", "hip_2.armature=.08"])


def thrown(model):
    """Return a tumbling start above the ground, and torques of a hundred frames."""
    q, qd = (torch.zeros(1, n, dtype=torch.float64) for n in (model.spec.nq, model.spec.nv))
    q[0, 2], q[0, 8::2] = 0.6, 1.0
    q[0, 3:7] = torch.nn.functional.normalize(torch.tensor([0.1, 0.05, 0.2, 1.0], dtype=torch.float64), dim=0)
    qd[0, :6] = torch.tensor([0.3, -0.2, 0.1, 0.5, -0.4, 0.6])
    draw = torch.rand(1, 100, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return State(q, qd), 8.0 * draw - 4.0


def on_a_plane(file):
    text = file.read_text()
    file.write_text(text.replace("<worldbody>", '<worldbody><geom type="plane" size="0 0 1" contype="1"/>'))


@pytest.mark.parametrize(
    ("networks", "bound"),
    [((), 1e-7), ((TORQUE, WRENCH, DRAG, DRIVE), 1e-7), ((POTENTIAL,), 1e-7)],
    ids=["no network", "torques, wrenches and a drive", "a potential"],
)
def test_an_arm_moves_in_plain_mujoco_as_its_model(tmp_path, networks, bound):
    model = with_networks(arm(tmp_path / "arm"), *networks)
    exported = export_identified(model, "mjcf", tmp_path / "out")
    plugin = ("arm_networks.c", "arm_plugin.xml")
    assert exported.files == (("arm.xml", *plugin) if networks else ("arm.xml",))
    assert exported.left_out == ()
    state, torques = random_start(model, 250, 0.05)  # of 4 steps each
    error, way = open_loop_error(tmp_path / "out" / "arm.xml", model, state, torques, plugin=bool(networks))
    assert error < bound < 0.5 < way
    if networks:  # which matter
        assert open_loop_error(tmp_path / "out" / "arm.xml", model, state, torques)[0] > 0.01


@pytest.mark.slow
def test_an_ant_on_the_ground_moves_in_plain_mujoco_as_its_model(tmp_path):
    plain = ant(tmp_path / "ant")
    joints = Augmentation(
        quantities=tuple(f"torque.{name}" for name in LEGS), inputs=tuple(f"qd.{name}" for name in LEGS),
        output_scale=(2.0,) * 8,
    )  # fmt: skip
    axes = [f"{what}.{x}" for what in ("force", "moment") for x in "xyz"]
    air = Augmentation(
        quantities=(*(f"wrench.root.{one}" for one in axes), "wrench.ankle_1.force.z", "wrench.hip_3.moment.x"),
        inputs=tuple(f"{what}.root.{x}" for what in ("velocity", "spin") for x in "xyz"), output_scale=(3.0,) * 8,
    )  # fmt: skip
    base = Augmentation(quantities=("torque.root.vx", "torque.root.wy"), inputs=("qd.root.wz", "q.root.z"))
    for name, model, bound in (("plain", plain, 1e-8), ("networks", with_networks(plain, joints, air, base), 1e-7)):
        file = export_identified(model, "mjcf", tmp_path / name).folder / "small-ant.xml"
        on_a_plane(file)
        state, torques = thrown(model)  # 100 frames of 10 steps
        error, way = open_loop_error(file, model, state, torques, plugin=name == "networks")
        assert error < bound < 0.3 < way


def test_the_stand_in_behind_its_controller_moves_as_its_model(tmp_path):
    robot = robots.load("cartpole").behind(DRIVES)
    plain = declared_hybrid(robot, contact="soft", parameters=["hinge.mass=2.5", "slider.damping=40"])
    rail = Augmentation(
        quantities=("torque.slider", "torque.hinge"), inputs=("qd.slider", "qd.hinge", "sin(q.hinge)"),
        output_scale=(40.0, 2.0),
    )  # fmt: skip
    for name, model, bound in (("plain", plain, 1e-6), ("networks", with_networks(plain, rail), 1e-4)):
        exported = export_identified(model, "mjcf", tmp_path / name)
        targets = 0.3 * torch.rand(1, 250, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        state = State(torch.tensor([[0.0, 0.3]], dtype=torch.float64), torch.zeros(1, 2, dtype=torch.float64))
        plugin = name == "networks"
        error, way = open_loop_error(exported.folder / "cartpole.xml", model, state, targets, plugin=plugin)
        assert exported.left_out == ()
        assert error < bound < 0.2 < way


def test_a_drive_network_of_history_drives_the_exported_arm(tmp_path):
    robot = arm(tmp_path / "arm").robot
    config = network_run(tmp_path / "run", joints=("pan", "lift", "elbow"), effort_scale=0.5)
    weights = load_file(tmp_path / "run" / "actuator_network.safetensors")
    model = drive_by_network(robot, config, weights)
    save(tmp_path / "run", model)
    exported = export_identified(tmp_path / "run", "mjcf")
    state = State(torch.full((1, 3), 0.1, dtype=torch.float64), torch.zeros(1, 3, dtype=torch.float64))
    targets = 0.3 * torch.rand(1, 250, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    error, way = open_loop_error(exported.folder / "arm.xml", model, state, targets, plugin=True)
    assert error < 1e-6 < 0.2 < way


def test_a_recurrent_drive_network_is_in_the_plugin(tmp_path):
    """The network's torques, held for a period of four steps each, move the exported arm."""
    robot = arm(tmp_path / "arm").robot
    config = network_run(tmp_path / "run", joints=("lift",), network="gru", history=(0.0,), hidden=(6,), period=0.01)
    (tmp_path / "run" / "drive.json").write_text(json.dumps({"robot": robot.folder}))
    file = export_identified(tmp_path / "run", "mjcf").folder / "arm.xml"
    compiled = mujoco.MjModel.from_xml_path(str(file))
    lift, targets = compiled.joint("lift").dofadr[0], np.random.default_rng(0).uniform(-0.5, 0.5, 30)
    ctrl = np.zeros((30, compiled.nu))
    ctrl[:, compiled.actuator("lift").id] = targets
    path = plugin_path(file, np.zeros(compiled.nq), np.zeros(compiled.nv), ctrl, 4)
    data, errors, velocities, expected = mujoco.MjData(compiled), [], [], []
    for target in targets:  # MuJoCo under the network's torques
        errors.append([target - data.qpos[lift]])
        velocities.append([data.qvel[lift]])
        torques = network_torques(config, tmp_path / "run", np.array(errors), np.array(velocities))
        data.qfrc_applied[lift] = torques[-1, 0]
        mujoco.mj_step(compiled, data, nstep=4)
        expected.append(data.qpos.copy())
    np.testing.assert_allclose(path, expected, atol=1e-6)
    assert np.ptp(path) > 0.01


def test_what_mujoco_has_no_place_for_is_refused_by_name(tmp_path):
    model = arm(tmp_path / "arm")
    for quantities, named in ((("elbow.mass",), "elbow.mass"), (("lift.damping",), "lift.damping")):
        network = Augmentation(quantities=quantities, inputs=("q.pan",))
        with pytest.raises(InputError, match=f"acts on {named}, for which MuJoCo has no place; valid: networks on"):
            export_identified(with_networks(model, network), "mjcf", tmp_path / "out")
    with pytest.raises(InputError, match=r"networks that act on torque\.elbow, for which MJCF"):
        export_identified(with_networks(model, TORQUE), "newton", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_forces_of_networks_are_traced_with_the_memory_that_they_need(tmp_path):
    model = arm(tmp_path / "arm")
    remembering = network_forces(with_networks(model, TORQUE), {})
    assert (len(remembering.forces), remembering.positions, remembering.velocities) == (3, 3, 3)
    assert len(remembering.after) == len(remembering.slots) > 0
    driving = network_forces(with_networks(model, DRIVE, DRAG), {})
    assert (driving.drives, driving.slots) == (("lift",), [])


def test_a_plugin_at_another_time_step_is_refused(tmp_path):
    model = with_networks(arm(tmp_path / "arm"), TORQUE)
    file = export_identified(model, "mjcf", tmp_path / "out").folder / "arm.xml"
    compiled = mujoco.MjModel.from_xml_path(str(file))
    file.write_text(file.read_text().replace('timestep="', 'timestep="1'))
    with pytest.raises(AssertionError, match=r"arm_networks: the time step is not that of the networks"):
        plugin_path(file, compiled.qpos0, np.zeros(compiled.nv), np.zeros((1, compiled.nu)), 1)
