# SPDX-License-Identifier: Apache-2.0
"""Exported MJCF: MuJoCo moves it as the identified model moves."""

import json
import xml.etree.ElementTree as ElementTree

import mujoco
import numpy as np
import pytest
import torch
from msgspec import structs

from neurodyn import InputError, robots
from neurodyn.core.description.drive import Drive
from neurodyn.dynamics import State
from neurodyn.dynamics.hybrid.declared import declared_mechanism
from neurodyn.interop import export_identified
from neurodyn.interop.identified import IdentifiedRobot
from neurodyn.interop.mjcf import mechanism_tree, write_mjcf
from neurodyn.interop.mjcf_drives import mean_lag
from neurodyn.multibody.engine import nominal
from neurodyn.sim import declare
from tests.dynamics.hybrid.sled import write_sled
from tests.interop.runs import identified_run, mujoco_path, random_start, scalar_first, write_arm
from tests.robots.own_robots import write_arm as write_mesh_arm


def test_an_asset_of_its_own_keeps_its_shapes_and_moves_as_the_model(tmp_path):
    names = (
        "elbow.mass=3", "elbow.com.x=.15", "elbow.origin.x=.45", "lift.mass=4", "lift.damping=.3", "pan.armature=.1",
        "elbow.stiffness=2", "elbow.rest=.4", "pan.upper=2",
    )  # fmt: skip
    model = identified_run(tmp_path / "run", write_arm(tmp_path / "arm"), *names)
    exported = export_identified(tmp_path / "run", "mjcf")
    assert exported.left_out == ()
    text = (exported.folder / "arm.xml").read_text()
    assert text.index("The licence of the arm.") < text.index("elbow.com.x: 0.1 -> 0.15") < text.index("<mujoco")
    assert "Two joints of one body." in text
    compiled = mujoco.MjModel.from_xml_path(str(exported.folder / "arm.xml"))
    assert compiled.geom("rod").type == mujoco.mjtGeom.mjGEOM_CAPSULE
    assert compiled.actuator("own").gear[0] == 7.0
    assert compiled.body("upper").mass[0] == pytest.approx(4.0)
    assert compiled.body("welded").mass[0] == 0.0
    assert compiled.joint("pan").range.tolist() == pytest.approx([-2.5, 2.0])
    state, torques = random_start(model, 40)
    ours = model.rollout(state, torques).q[0, 1:].numpy()
    assert 0.5 < np.abs(ours - ours[0]).max() < 1.9
    np.testing.assert_allclose(mujoco_path(compiled, model, state, torques), ours, atol=1e-5)


def played(compiled, model, targets, q, qd):
    """Return the positions after each frame in MuJoCo, shape [frames, joints]."""
    data, positions = mujoco.MjData(compiled), []
    data.qpos[:], data.qvel[:] = q, qd
    order = [compiled.actuator(name).id for name in model.spec.controls]
    for target in targets:
        data.ctrl[order] = target
        for _ in range(round(model.spec.dt / compiled.opt.timestep)):
            mujoco.mj_step(compiled, data)
        positions.append(data.qpos.copy())
    return np.array(positions)


def test_drives_are_actuators_that_drive_it_as_the_model(tmp_path):
    drives = {"*": {"kind": "pd", "kp": 30.0, "kd": 1.0, "gain": 0.8, "effort_limit": 4.0, "viscous": 0.1, "bias": 0.0}}
    model = identified_run(tmp_path / "run", write_arm(tmp_path / "arm", drives=drives), "actuator.lift.kp=40")
    exported = export_identified(tmp_path / "run", "mjcf")
    assert exported.left_out == ()
    compiled = mujoco.MjModel.from_xml_path(str(exported.folder / "arm.xml"))
    assert compiled.nu == 3  # the asset's own motor at the elbow is gone
    compiled.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_EULERDAMP
    compiled.opt.timestep = model.spec.dt / model.config.substeps
    state, _ = random_start(model, 1)
    targets = 0.4 * torch.rand(1, 40, 3, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    ours = model.rollout(state, targets).q[0, 1:].numpy()
    theirs = played(compiled, model, targets[0].numpy(), state.q[0].numpy(), state.qd[0].numpy())
    assert np.abs(ours - ours[0]).max() > 0.2
    np.testing.assert_allclose(theirs, ours, atol=1e-5)


def test_a_lag_as_long_as_a_step_is_a_filter_of_the_same_mean(tmp_path):
    """Of the lag of a torque, the filter of the command and what kd and armature lose keep the mean in time steps."""
    drives = {"*": {"kind": "pd", "kp": 30.0, "kd": 1.0, "lag": 0.0, "bias": 0.0}}
    folder = write_arm(tmp_path / "arm", drives=drives)
    lag, names = 0.0015, ("pan", "lift", "elbow")
    model = identified_run(tmp_path / "run", folder, *(f"actuator.{name}.lag={lag}" for name in names))
    compiled = mujoco.MjModel.from_xml_path(str(export_identified(tmp_path / "run", "mjcf").folder / "arm.xml"))
    phase = 0.1 * torch.arange(60, dtype=torch.float64)[:, None]
    targets = 0.4 * torch.sin(phase * torch.tensor([1.0, 1.3, 1.7]))
    zero = torch.zeros(1, 3, dtype=torch.float64)
    ours = model.rollout(State(zero, zero), targets[None]).q[0, 1:].numpy()
    theirs = played(compiled, model, targets.numpy(), np.zeros(3), np.zeros(3))
    assert np.abs(ours).max() > 0.3
    np.testing.assert_allclose(theirs, ours, atol=3e-3)


def test_a_delay_is_mujocos(tmp_path):
    robot = robots.load(write_arm(tmp_path / "arm"))
    mechanism, _, _ = declared_mechanism(robot, None)
    drives = {
        "lift": Drive(delay=0.03, gain=2.0, lag=0.01),
        "pan": Drive(kind="pd", kp=3.0, kd=0.2, bias=0.1, lag=0.01),
    }
    (tmp_path / "out").mkdir()
    identified = IdentifiedRobot("a run", robot, mechanism, drives=drives)
    assert set(identified.required_quantities) <= write_mjcf(identified, tmp_path / "out")
    compiled = mujoco.MjModel.from_xml_path(str(tmp_path / "out" / "arm.xml"))
    compiled.opt.timestep = 0.002
    data = mujoco.MjData(compiled)
    torques = []
    for _ in range(60):
        data.ctrl[compiled.actuator("lift").id] = 1.5
        mujoco.mj_step(compiled, data)
        torques.append(data.actuator("lift").force[0])
    assert max(torques[:15]) == 0.0
    # A lag of 10 ms after a delay of 30, and of the half step by which the model averages commands.
    assert torques[20] == pytest.approx(3.0 * (1 - np.exp(-(0.042 - 0.031) / 0.01)), rel=0.02)
    assert torques[-1] == pytest.approx(3.0, rel=0.01)
    data = mujoco.MjData(compiled)
    assert data.qpos[0] == pytest.approx(0.1)  # a reading, where the joint is at zero
    data.act[compiled.actuator("pan").actadr[0]] = 0.5
    data.ctrl[compiled.actuator("pan").id] = 0.5
    mujoco.mj_forward(compiled, data)
    assert data.actuator("pan").force[0] == pytest.approx(3.0 * (0.5 - 0.1))
    damping = 0.2 - 3.0 * mean_lag(0.01, 0.002)
    assert compiled.actuator("pan").biasprm[:3].tolist() == pytest.approx([0.0, -3.0, -damping])


def test_a_mechanism_without_an_mjcf_moves_as_the_model_with_friction_and_limits(tmp_path):
    names = ("hinge.mass=2.7", "hinge.damping=.3", "hinge.friction=.1", "hinge.armature=.02", "slider.upper=.6")
    model = identified_run(tmp_path / "run", "cartpole", *names, contact="soft")
    exported = export_identified(tmp_path / "run", "mjcf", tmp_path / "out")
    compiled = mujoco.MjModel.from_xml_path(str(tmp_path / "out" / "cartpole.xml"))
    state, torques = random_start(model, 60)
    ours = model.rollout(state, torques).q[0, 1:].numpy()
    assert ours[:, 0].max() > 0.55  # the limit is met
    np.testing.assert_allclose(mujoco_path(compiled, model, state, torques), ours, atol=1e-5)
    assert exported.files == ("cartpole.xml",)
    assert compiled.actuator_ctrlrange.tolist() == [[-1500.0, 1500.0]]


def test_contacts_are_the_models(tmp_path):
    model = identified_run(tmp_path / "run", "cube", "contact.friction=.3", "contact.solref.timeconst=.03")
    folder = export_identified(tmp_path / "run", "mjcf").folder
    spec = mujoco.MjSpec.from_file(str(folder / "cube.xml"))
    spec.worldbody.add_geom(type=mujoco.mjtGeom.mjGEOM_PLANE, size=[0, 0, 1])
    q = torch.tensor([[0.0, 0.0, 0.08, 0.1, 0.2, 0.0, 0.9746794]], dtype=torch.float64)
    state = State(q=q, qd=torch.tensor([[0.5, 0.0, -0.5, 0.0, 3.0, 0.0]], dtype=torch.float64))
    torques = torch.zeros(1, 20, 0, dtype=torch.float64)
    ours = scalar_first(model, model.rollout(state, torques).q[0, 1:].numpy())
    theirs = mujoco_path(spec.compile(), model, state, torques)
    assert ours[-1, 2] < 0.075  # it has landed
    np.testing.assert_allclose(theirs, ours, atol=2e-4)


ROVER = """<robot name="rover">
<link name="base"><inertial><origin xyz="-0.02 0.01 0.08"/><mass value="6"/>
<inertia ixx="0.06" iyy="0.08" izz="0.1" ixy="0" ixz="0" iyz="0"/></inertial>
<collision><origin xyz="-0.13 0 0.025"/><geometry><sphere radius="0.025"/></geometry></collision></link>
{wheels}</robot>"""
WHEEL = """<link name="{side}"><inertial><mass value="0.4"/>
<inertia ixx="0.0006" iyy="0.001" izz="0.0006" ixy="0" ixz="0" iyz="0"/></inertial>
<collision><origin rpy="1.5707963 0 0"/><geometry><cylinder radius="0.07" length="0.03"/></geometry></collision></link>
<joint name="{side}_wheel" type="continuous"><parent link="base"/><child link="{side}"/><origin xyz="0 {y} 0.07"/>
<axis xyz="0 1 0"/><limit effort="4" velocity="20"/></joint>"""


def test_wheels_of_an_urdf_roll_as_the_model(tmp_path):
    wheels = "".join(WHEEL.format(side=side, y=y) for side, y in (("left", 0.15), ("right", -0.15)))
    (tmp_path / "rover.urdf").write_text(ROVER.format(wheels=wheels))
    declare(tmp_path / "rover.urdf", tmp_path / "rover", dt=0.02)
    model = identified_run(tmp_path / "run", str(tmp_path / "rover"), "left_wheel.damping=0.02")
    folder = export_identified(tmp_path / "run", "mjcf").folder
    spec = mujoco.MjSpec.from_file(str(folder / "rover.xml"))
    spec.worldbody.add_geom(type=mujoco.mjtGeom.mjGEOM_PLANE, size=[0, 0, 1])
    compiled = spec.compile()
    assert sum(compiled.geom_type == mujoco.mjtGeom.mjGEOM_CYLINDER) == 2
    q = torch.zeros(1, model.spec.nq, dtype=torch.float64)
    q[0, 6] = 1.0
    state = State(q, torch.zeros(1, model.spec.nv, dtype=torch.float64))
    torques = torch.tensor([1.0, 0.8], dtype=torch.float64).expand(1, 50, 2)
    ours = scalar_first(model, model.rollout(state, torques).q[0, 1:].numpy())
    assert ours[-1, 0] > 0.3
    np.testing.assert_allclose(mujoco_path(compiled, model, state, torques), ours, atol=1e-4)


def test_frictions_of_single_shapes_stay_and_are_left_out_where_they_were_identified(tmp_path):
    (tmp_path / "robot").mkdir()
    write_sled(tmp_path / "robot")
    names = ("root.mass=2.1", "contact.friction=.3", "contact.left.friction=.2", "contact.solref.timeconst=.03")
    identified_run(tmp_path / "run", str(tmp_path / "robot"), *names)
    frictions = {"contact.friction", "contact.left.friction"}
    for target, left_out in (("mjcf", frictions), ("newton", frictions | {"contact.solref.timeconst"})):
        assert set(export_identified(tmp_path / "run", target).left_out) == left_out
    compiled = mujoco.MjModel.from_xml_path(str(tmp_path / "run" / "mjcf" / "sled.xml"))
    assert {compiled.geom(n).name: compiled.geom(n).friction[0] for n in range(4)} == pytest.approx(
        {"left": 0.05, "right": 0.9, "front": 0.4, "back": 0.4}
    )
    assert compiled.geom("left").solref[0] == pytest.approx(0.03)
    settings = json.loads((tmp_path / "run" / "newton" / "settings.json").read_text())
    assert "friction" not in settings


def test_a_tree_has_the_friction_of_every_shape(tmp_path):
    robot = write_sled(tmp_path)
    mechanism, _, _ = declared_mechanism(robot, "soft")
    values = {**nominal(mechanism, "soft"), "contact.friction": 0.3, "contact.left.friction": 0.2}
    for tree in (mechanism, structs.replace(mechanism, shapes=())):  # geoms of shapes, and of points
        root, _ = mechanism_tree(IdentifiedRobot("a run", robot, tree, contact=values))
        found = [float(geom.get("friction").split()[0]) for geom in root.iter("geom")]
        assert found == [0.2, 0.9, 0.3, 0.3]


def test_an_mjcf_keeps_its_includes_and_meshes_lie_beside_it(tmp_path):
    robot = robots.load(write_mesh_arm(tmp_path, "mjcf"))
    mechanism, _, _ = declared_mechanism(robot, None)
    changed = mechanism.with_quantities({"shoulder.mass": 1.3})
    identified = IdentifiedRobot("a run", robot, changed, free={"shoulder.mass": 1.3}, nominal={"shoulder.mass": 1.0})
    (tmp_path / "out").mkdir()
    assert write_mjcf(identified, tmp_path / "out") == {"shoulder.mass"}
    assert (tmp_path / "out" / "assets" / "fore.obj").is_file()
    root = ElementTree.parse(tmp_path / "out" / "my-arm.xml").getroot()
    assert [one.get("file") for one in root.iter("include")] == ["parts/assets.xml"]
    assert (tmp_path / "out" / "parts" / "assets.xml").read_text().count("<mesh") == 1
    compiled = mujoco.MjModel.from_xml_path(str(tmp_path / "out" / "my-arm.xml"))
    assert compiled.body("fore").mass[0] == pytest.approx(1.3)
    assert compiled.nmesh == 1


def test_numbers_are_written_into_the_included_file_that_holds_them(tmp_path):
    declaration = write_arm(tmp_path / "arm", simulator={"solver": "mujoco-c"})
    main, text = tmp_path / "arm" / "arm.xml", (tmp_path / "arm" / "arm.xml").read_text()
    begin, end = text.index("<!-- Two joints"), text.index('<body name="welded"')
    joints, fore = text[begin:end], text[text.index('<body name="fore"') : text.index("</body>\n  </worldbody>")]
    main.write_text(
        text.replace(joints, '<include file="parts/upper.xml"/>\n').replace(fore, '<include file="fore.xml"/>')
    )
    (tmp_path / "arm" / "parts").mkdir()
    nested = '<joint name="elbow" axis="0 1 0"/>'
    (tmp_path / "arm" / "parts" / "upper.xml").write_text(
        f"<!-- Of the upper arm. -->\n<mujocoinclude>{joints}</mujocoinclude>"
    )
    fore = fore.replace(nested, '<include file="parts/elbow.xml"/>')
    (tmp_path / "arm" / "fore.xml").write_text(f"<mujocoinclude>{fore}</mujocoinclude>")
    (tmp_path / "arm" / "parts" / "elbow.xml").write_text(f"<mujocoinclude><!-- An elbow. -->{nested}</mujocoinclude>")
    identified_run(tmp_path / "run", declaration, "elbow.damping=.7", "lift.damping=.3", "elbow.mass=3")
    exported = export_identified(tmp_path / "run", "mjcf")
    assert exported.files == ("arm.xml", "fore.xml", "parts/elbow.xml", "parts/upper.xml")
    written = {file: (exported.folder / file).read_text() for file in exported.files}
    for file, parts in (
        ("parts/elbow.xml", ("An elbow.", 'damping="0.7"')),
        ("parts/upper.xml", ("Of the upper arm.", "Two joints", 'damping="0.3"')),
        ("fore.xml", ('<include file="parts/elbow.xml"', 'mass="3.0"')),
    ):
        assert all(part in written[file] for part in parts)
    assert "damping" not in written["arm.xml"].partition("<worldbody>")[2]
    compiled = mujoco.MjModel.from_xml_path(str(exported.folder / "arm.xml"))
    assert compiled.dof_damping.tolist() == pytest.approx([0.2, 0.3, 0.7])


def test_masses_that_the_declaration_changes_are_written_for_every_body(tmp_path):
    robot = robots.load("ant")
    mechanism, _, _ = declared_mechanism(robot, "soft")
    (tmp_path / "out").mkdir()
    write_mjcf(IdentifiedRobot("a run", robot, mechanism), tmp_path / "out")
    compiled = mujoco.MjModel.from_xml_path(str(tmp_path / "out" / "ant.xml"))
    for link in mechanism.links:
        name = link.joint.name
        body = 1 if link.joint.kind == "free" else compiled.joint(name).bodyid[0]
        assert compiled.body_mass[body] == pytest.approx(link.mass, rel=1e-6)
    assert compiled.body_mass.sum() == pytest.approx(sum(link.mass for link in mechanism.links), rel=1e-6)


def test_what_has_no_place_is_named(tmp_path):
    identified_run(tmp_path / "run", write_arm(tmp_path / "arm"), "elbow.mass=3", "elbow.limit_stiffness=5")
    assert export_identified(tmp_path / "run", "mjcf").left_out == ("elbow.limit_stiffness",)
    identified_run(tmp_path / "none", write_arm(tmp_path / "arm"), "elbow.limit_stiffness=5")
    with pytest.raises(InputError, match=r"mjcf cannot hold any identified quantity, elbow\.limit_stiffness"):
        export_identified(tmp_path / "none", "mjcf")
    assert not (tmp_path / "none" / "mjcf").exists()
