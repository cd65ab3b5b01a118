# SPDX-License-Identifier: Apache-2.0
"""From an asset to a trained model: robots of other people, at tiny sizes."""

from pathlib import Path

import gymnasium
import msgspec
import mujoco
import numpy as np
import pytest
import torch
import trimesh

import neurodyn
from neurodyn.core.description.scene import Plane
from neurodyn.core.errors import InputError
from neurodyn.core.seeds import generator
from neurodyn.data.store import Store
from neurodyn.geometry.ground import Ground
from neurodyn.robots.assets import package_folder
from neurodyn.sim.contact_points import contact_point_layout
from neurodyn.sim.declaration.declare import declare
from neurodyn.sim.declaration.facts import read_facts
from neurodyn.sim.declaration.pose import BUDGET
from neurodyn.sim.sampling import sample_states

GYMNASIUM = Path(gymnasium.__file__).parent / "envs" / "mujoco" / "assets"
ASSETS = {
    "a1": "a1_description/urdf/a1.urdf",
    "ur5": "ur_description/urdf/ur5_robot.urdf",
    "hopper": GYMNASIUM / "hopper.xml",
}


@pytest.fixture(scope="module", params=list(ASSETS))
def declared(request, tmp_path_factory):
    installed = package_folder("example-robot-data")
    assert installed is not None
    return declare(installed / ASSETS[request.param], tmp_path_factory.mktemp(request.param) / request.param)


@pytest.mark.slow
def test_an_asset_leads_to_a_model_in_three_calls(declared, tmp_path):
    robot = declared.robot
    data, run = tmp_path / "data.h5", tmp_path / "run"
    summary = neurodyn.sim.generate(robot, transitions=1000, out=data, worlds=10)
    assert summary.transitions > 900  # hardly a trajectory ends early
    end = neurodyn.learn.train(declared.path.parent, data, run, steps=3, seed=0)
    assert end.skipped < end.step
    assert Store.open(data).header.spec == robot.spec
    model = neurodyn.load(run)
    state = neurodyn.State(q=torch.tensor([_at(robot)]), qd=torch.zeros(1, robot.spec.nv))
    path = model.rollout(state, torch.zeros(1, 3, robot.spec.nu))
    assert path.q.isfinite().all()


def _at(robot) -> list[float]:
    """Return a plausible position of all coordinates."""
    q = []
    for joint in robot.joints:
        q += [robot.nominal.get(joint.name, 0.0)] if joint.scalar else [0.0, 0.0, 0.5, 0.0, 0.0, 0.0, 1.0]
    return q


def test_declarations_are_complete_and_short(declared):
    robot, text = declared.robot, declared.path.read_text()
    assert declared.trial.passed
    assert len(text.splitlines()) < 70
    assert all(len(line) < 400 for line in text.splitlines())
    assert set(robot.range.qd) == set(robot.spec.qd_names)
    assert robot.actuated
    for name, effort in robot.actuated.items():
        assert effort > 0, name
    decided = {decision.what for decision in declared.decisions}
    assert decided >= {"fixed_base", "joints", "armature", "simulator", "range"}
    if robot.contact_points is not None:
        points = contact_point_layout(neurodyn.sim.articulation(robot), robot).contact_points
        assert 0 < len(points) <= BUDGET


def test_an_existing_folder_is_left_alone(declared):
    with pytest.raises(InputError, match="already exists; valid: another --out, or --force"):
        declare(declared.path.parent / declared.robot.asset, declared.path.parent)


def test_a_quadruped_stands(declared):
    robot = declared.robot
    if robot.fixed_base:
        assert robot.gains is None
        return
    why = next(decision.why for decision in declared.decisions if decision.what == "gains")
    assert why.startswith("hold the nominal pose for 2 s")
    assert robot.reset.height is not None
    assert 0.2 < robot.reset.height[0] < 0.5
    calves = [value for name, value in robot.nominal.items() if name.endswith("calf_joint")]
    np.testing.assert_allclose(calves, calves[0])
    assert calves[0] < -0.9


INERTIA = '<inertia ixx="{0}" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/>'
ARM = """<robot name="arm"><link name="base"/><link name="fore">{inertial}</link>
<joint name="elbow" type="revolute"><parent link="base"/><child link="fore"/><axis xyz="0 1 0"/>
<limit lower="-1" upper="2" effort="5" velocity="4"/></joint></robot>"""
BAD = {
    "no mass": (
        "arm.urdf",
        ARM.format(inertial=""),
        "link 'fore' moves but has no mass; give it an inertial or a shape",
    ),
    "impossible inertia": (
        "arm.urdf",
        ARM.format(inertial='<inertial><mass value="1"/>' + INERTIA.format(3) + "</inertial>"),
        "link 'fore': principal moments of inertia are 1, 1, 3 kg m\\^2, which no body has",
    ),
    "no XML": ("arm.urdf", "<robot", "arm.urdf: not readable as URDF"),
    "no robot": ("arm.urdf", "<mujoco/>", "not a URDF: its root is <mujoco>; valid: <robot>"),
    "nothing moves": ("arm.xml", "<mujoco><worldbody/></mujoco>", "nothing moves"),
    "xacro": (
        "my arm.urdf.xacro",
        "<robot/>",
        r"is a xacro; `xacro '\S+/my arm.urdf.xacro' > '\S+/my arm.urdf'` expands it",
    ),
    "expression of a xacro": (
        "arm.urdf",
        ARM.format(inertial='<inertial><mass value="${m}"/>' + INERTIA.format(1) + "</inertial>"),
        r"'\$\{m\}'; valid: finite numbers; `xacro FILE > FILE.urdf` computes expressions",
    ),
    "floating joint": (
        "arm.urdf",
        ARM.format(inertial="").replace("revolute", "floating"),
        "type 'floating'.*; without the joint, `init --floating` declares a free base",
    ),
    "no included file": (
        "arm.xml",
        '<mujoco><include file="gone.xml"/><worldbody/></mujoco>',
        "gone.xml.*; valid: files that are where the asset names them",
    ),
    "unknown suffix": ("arm.step", "", r"unknown kind of asset '.step'; valid: .urdf, .xml, .usd"),
}


@pytest.mark.parametrize("case", list(BAD))
def test_bad_assets_are_one_line_and_leave_nothing_behind(case, tmp_path):
    name, text, said = BAD[case]
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=said) as caught:
        declare(tmp_path / name, tmp_path / "out")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_a_path_that_is_no_asset_is_refused_before_its_folder(tmp_path):
    (tmp_path / "none").mkdir()
    with pytest.raises(InputError, match=r"none.urdf: no such file.*; valid: an asset of kind"):
        declare(tmp_path / "none.urdf", tmp_path / "none")
    with pytest.raises(InputError, match=r"none: is a folder; valid: an asset of kind"):
        declare(tmp_path / "none", tmp_path / "none")


def test_a_base_floats_where_several_chains_stand_on_it(tmp_path):
    inertial = '<inertial><mass value="1"/>' + INERTIA.format(1) + "</inertial>"

    def links(*names: str) -> str:
        return "".join(f'<link name="{name}">{inertial}</link>' for name in names)

    joint = (
        '<joint name="{0}" type="{3}"><parent link="{1}"/><child link="{2}"/><axis xyz="0 0 1"/>'
        '<limit lower="0" upper="0.1" effort="5" velocity="4"/>{4}</joint>'
    )
    legs = joint.format("a", "trunk", "left", "revolute", "") + joint.format("b", "trunk", "right", "revolute", "")
    (tmp_path / "legs.urdf").write_text(f'<robot name="legs">{links("trunk", "left", "right")}{legs}</robot>')
    arm = (
        joint.format("a", "trunk", "left", "revolute", "")
        + joint.format("grip", "left", "finger", "prismatic", "")
        + joint.format("mimic", "left", "thumb", "prismatic", '<mimic joint="grip"/>')
    )
    (tmp_path / "arm.urdf").write_text(f'<robot name="arm">{links("trunk", "left", "finger", "thumb")}{arm}</robot>')
    legged, armed = (read_facts(tmp_path / f"{name}.urdf") for name in ("legs", "arm"))
    assert (legged.floating, [joint.kind for joint in legged.joints]) == (True, ["free", "revolute", "revolute"])
    assert not read_facts(tmp_path / "legs.urdf", floating=False).floating
    assert (armed.floating, [joint.name for joint in armed.joints]) == (False, ["a"])
    assert set(armed.locked) == {"grip", "mimic"}
    assert any("mimics another joint" in note for note in armed.notes)
    (only,) = armed.joints
    assert (only.lower, only.upper, only.effort, only.velocity) == pytest.approx((0.0, 0.1, 5.0, 4.0))


def test_efforts_of_an_mjcf_are_those_of_its_actuators(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    hopper = read_facts(GYMNASIUM / "hopper.xml")
    assert {joint.name: joint.effort for joint in hopper.joints if joint.effort} == {
        "thigh_joint": 200.0, "leg_joint": 200.0, "foot_joint": 200.0,
    }  # fmt: skip
    assert hopper.floor == (Plane(),)
    cheetah = read_facts(GYMNASIUM / "half_cheetah.xml")
    assert [joint.effort for joint in cheetah.joints] == [None, None, None, 120.0, 90.0, 60.0, 120.0, 60.0, 30.0]
    assert any("settotalmass" in note for note in cheetah.notes)
    assert not list(tmp_path.iterdir())  # MuJoCo's warnings are in the notes, and in no file


LIFTER = """<mujoco><compiler angle="radian" autolimits="true"/><worldbody><geom type="plane" size="1 1 .1"/>
<body name="column" pos="0 0 .5"><joint name="lift" type="slide" axis="0 0 1" range="-.2 .2" damping="20"/>
  <geom type="box" size=".05 .05 .05" mass="2"/>
  <body name="left" pos="0 .05 -.1"><joint name="left" type="slide" axis="0 1 0" range="0 .04" damping="5"/>
    <geom type="box" size=".01 .01 .05" mass=".1"/></body>
  <body name="right" pos="0 -.05 -.1"><joint name="right" type="slide" axis="0 -1 0" range="0 .04" damping="5"/>
    <geom type="box" size=".01 .01 .05" mass=".1"/></body></body>
<body name="cube" pos=".3 0 .03"><freejoint name="cube"/><geom type="box" size=".03 .03 .03" mass=".1"/></body>
</worldbody><tendon><fixed name="both"><joint joint="left" coef=".5"/><joint joint="right" coef=".5"/></fixed></tendon>
<equality><joint joint1="left" joint2="right"/></equality>
<actuator>
  <position name="height" joint="lift" kp="400" kv="20" ctrlrange="-.2 .2" forcerange="-80 80"/>
  <position name="grip" tendon="both" kp="100" ctrlrange="0 .04" forcerange="-10 10"/></actuator>
<keyframe><key name="home" qpos=".1 .02 .02 .3 0 .03 1 0 0 0"/></keyframe></mujoco>"""


def test_an_mjcf_keeps_its_actuators_keyframe_and_objects(tmp_path):
    (tmp_path / "lifter.xml").write_text(LIFTER)
    made = declare(tmp_path / "lifter.xml", tmp_path / "lifter")
    robot = neurodyn.robots.load(tmp_path / "lifter")
    assert robot.simulator.solver == "mujoco-c"
    assert (robot.command, robot.spec.controls) == ("command", ("height", "grip"))
    assert robot.actuated == {"height": 80.0, "grip": 10.0}
    assert (robot.drives["height"].kp, robot.drives["height"].kd) == (400.0, 20.0)
    assert robot.drives["grip"].transmission == {"left": 0.5, "right": 0.5}
    assert robot.nominal == {"lift": 0.1, "left": 0.02, "right": 0.02}
    assert [joint.kind for joint in robot.joints] == ["prismatic", "prismatic", "prismatic", "free"]
    assert robot.sampling.q["cube.x"] == pytest.approx((0.2, 0.4))
    assert {"drives", "self_contacts", "simulator"} <= {decision.what for decision in made.decisions}
    found = neurodyn.sim.mechanism(neurodyn.sim.articulation(robot), robot)
    assert [one.name for one in found.tendons or ()] == ["both"]
    assert [one.kind for one in found.equalities or ()] == ["joint"]


CORNER = """<mujoco><compiler angle="radian" autolimits="true"/><option timestep="0.005" integrator="implicitfast"/>
<worldbody>
<geom type="plane" size="2 2 .1" pos="0 0 -.4" friction=".3 .005 .0001" solref=".01 1"/>
<body><geom name="wall" type="plane" size="1 1 .1" pos=".5 0 0" zaxis="-1 0 .5" contype="2" solref=".01 1"/></body>
<geom name="unfelt" type="plane" size="1 1 .1" pos="0 0 .5" contype="4" conaffinity="0"/>
<body name="cart"><joint name="x" type="slide" axis="1 0 0" range="-2 2" damping=".5"/>
  <geom name="far" type="sphere" size=".4" contype="4" conaffinity="0"/>
  <body name="bob"><joint name="z" type="slide" axis="0 0 1" range="-.3 .3"/>
    <geom name="bob" type="sphere" size=".1" conaffinity="3"/></body></body></worldbody>
<actuator><motor name="push" joint="x" ctrlrange="-1 1" gear="20"/></actuator></mujoco>"""


def test_a_bolted_robot_moves_between_the_planes_of_its_asset(tmp_path):
    file = tmp_path / "corner.xml"
    file.write_text(CORNER)
    robot = declare(file, tmp_path / "corner", dt=0.01).robot
    scene = robot.named_ground()
    assert scene is not None
    assert [shape.position[2] for shape in scene.shapes] == pytest.approx([-0.4, 0.0])
    points = contact_point_layout(neurodyn.sim.articulation(robot), robot).contact_points
    assert {point.name.partition("/")[0] for point in points} == {"bob"}  # nothing of `far` meets a plane's bits
    robot = msgspec.structs.replace(robot, simulator=msgspec.structs.replace(robot.simulator, substeps=2))
    start, force = torch.tensor([[0.1, -0.28], [0.3, 0.0]]), torch.full((2, 80, 1), 12.0)
    still = torch.zeros(2, 2)
    found, _ = neurodyn.sim.simulator(robot, 2, scene=scene).rollout(start, still, force)
    model = mujoco.MjModel.from_xml_path(str(file))
    for q, path in zip(start, found, strict=True):
        data = mujoco.MjData(model)
        data.qpos[:] = q
        data.ctrl[:] = 12.0 / 20.0
        for _ in range(2 * 80):
            mujoco.mj_step(model, data)
        assert path[-1].tolist() == pytest.approx(data.qpos.tolist(), abs=2e-6)
    assert (found[:, :, 1] < -0.3).any()  # on the floor
    assert found[:, -1, 0].max() < 0.5  # at the wall
    hybrid = neurodyn.dynamics.declared_hybrid(robot).double()
    around = neurodyn.Environment(ground=Ground(scene))
    path = hybrid.rollout(neurodyn.State(start.double(), still.double()), force.double(), environment=around)
    torch.testing.assert_close(path.q.float(), found, rtol=0, atol=1e-5)


def test_commands_without_a_range_get_one_that_is_printed(tmp_path):
    (tmp_path / "servo.xml").write_text(
        '<mujoco><worldbody><body name="arm"><joint name="turn" damping="1"/><geom size=".1" pos=".3 0 0"/></body>'
        '</worldbody><actuator><position name="angle" joint="turn" kp="20" forcerange="-3 3"/></actuator></mujoco>'
    )
    made = declare(tmp_path / "servo.xml", tmp_path / "servo")
    assert made.robot.control_intervals() == (pytest.approx((-np.pi, np.pi)),)
    (said,) = [one.value for one in made.decisions if one.what == "commands"]
    assert said == "angle -3.14159 to 3.14159"


TABLE = """<mujoco><compiler meshdir="parts"/><include file="arm.xml"/><worldbody>
<body name="room"><geom type="plane" size="2 2 .1"/></body>
<body name="table" pos=".4 0 .2"><geom name="table" type="box" size=".1 .1 .2"/></body>
<body name="cube" pos=".4 0 .45"><freejoint name="cube"/><geom name="cube" type="box" size=".03 .03 .03"/></body>
</worldbody></mujoco>"""
ARM_OF_MESH = """<mujoco><asset><mesh name="link" file="link.stl"/></asset><worldbody><body name="arm" pos="0 0 .6">
<joint name="turn" axis="0 1 0" range="4.1 4.108" damping="1"/><geom name="arm" type="mesh" mesh="link"/></body>
</worldbody><actuator><motor joint="turn" ctrlrange="-1 1"/></actuator></mujoco>"""


def test_a_table_meshes_of_an_included_file_and_narrow_limits_are_kept(tmp_path):
    (tmp_path / "parts").mkdir()
    trimesh.creation.box((0.4, 0.05, 0.05)).export(tmp_path / "parts" / "link.stl")
    (tmp_path / "arm.xml").write_text(ARM_OF_MESH)
    (tmp_path / "table.xml").write_text(TABLE)
    robot = declare(tmp_path / "table.xml", tmp_path / "made").robot
    robot = msgspec.structs.replace(robot, colliders=("arm",))
    assert robot.sampling.q["turn"][0] < robot.sampling.q["turn"][1]
    found = neurodyn.sim.mechanism(neurodyn.sim.articulation(robot), robot)
    touching = {frozenset((one.first.name, one.second.name)) for one in found.shape_contacts or ()}
    assert touching == {frozenset(("arm", "table"))}  # the cube was taken out


def test_links_touch_each_other_where_it_is_asked_for(tmp_path):
    alone = declare(GYMNASIUM / "hopper.xml", tmp_path / "alone", budget=2)
    assert not alone.robot.self_contacts
    assert alone.robot.colliders != ("*",)  # two points are not enough for all of its shapes
    made = declare(GYMNASIUM / "hopper.xml", tmp_path / "made", budget=2, self_contacts=True)
    assert made.robot.self_contacts
    assert made.robot.colliders == ("*",)
    found = neurodyn.sim.mechanism(neurodyn.sim.articulation(made.robot), made.robot)
    pairs = {frozenset((one.first.name, one.second.name)) for one in found.shape_contacts or ()}
    assert len(pairs) == 3  # torso and leg, torso and foot, thigh and foot


def test_a_floating_body_that_touches_nothing_is_drawn_about_its_place(tmp_path):
    text = """<mujoco><worldbody><body name="fish" pos="0 0 .7"><freejoint/>
<geom size=".1" contype="0" conaffinity="0"/><body><joint name="tail" axis="0 0 1"/>
<geom type="capsule" fromto="0 0 0 -.3 0 0" size=".02" contype="0" conaffinity="0"/></body></body></worldbody>
<actuator><motor joint="tail" ctrlrange="-.1 .1"/></actuator></mujoco>"""
    (tmp_path / "fish.xml").write_text(text)
    robot = declare(tmp_path / "fish.xml", tmp_path / "fish").robot
    q, _ = sample_states(robot, 50, generator(0, "fish"), None)
    assert q[:, 2].tolist() == pytest.approx([0.7] * 50)
    assert (q[:, 3:7].std(0) > 0.2).all()


def arm_of(hinges, tip=""):
    """An arm along z of links of .2 m, with a finger on either side of its last one; without fingers with a `tip`."""
    finger = """<body pos="{y} 0 .1"><joint name="finger{y}" type="slide" axis="1 0 0"/>
<geom size=".01" pos="0 0 .05"/></body>"""
    inner = tip or finger.format(y=0.03) + finger.format(y=-0.03)
    for number in reversed(range(hinges)):
        place = "0 0 .2" if number else "0 0 0"
        axis = f"0 {number % 2} {1 - number % 2}"
        inner = f"""<body name="link{number}" pos="{place}"><joint name="j{number}" axis="{axis}"/>
<geom type="capsule" fromto="0 0 0 0 0 .15" size=".02"/>{inner}</body>"""
    motors = "".join(f'<motor joint="j{number}" ctrlrange="-1 1"/>' for number in range(hinges))
    return f"<mujoco><worldbody>{inner}</worldbody><actuator>{motors}</actuator></mujoco>"


@pytest.mark.parametrize(
    ("text", "what", "point"),
    [
        (arm_of(5), "between its fingers", (0.0, 0.0, 0.15)),
        (arm_of(5, '<body name="my_tcp" pos="0 .01 .22"/>'), "link 'my_tcp'", (0.0, 0.01, 0.22)),
        (arm_of(5, " "), "link 'link4'", (0.0, 0.0, 0.075)),
        (arm_of(5, '<site name="grip" pos="0 0 .3"/>'), "site 'grip'", (0.0, 0.0, 0.3)),
    ],
)
def test_an_arm_has_an_end_effector(text, what, point, tmp_path):
    (tmp_path / "arm.xml").write_text(text)
    end = read_facts(tmp_path / "arm.xml").end
    assert end is not None
    assert (end.what, end.joint) == (what, "j4")
    assert end.point == pytest.approx(point, abs=1e-6)


def test_a_short_chain_is_no_arm(tmp_path):
    (tmp_path / "arm.xml").write_text(arm_of(3))
    assert read_facts(tmp_path / "arm.xml").end is None


def test_robots_that_a_file_attaches_come_along(tmp_path):
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "mini.xml").write_text(arm_of(2, " ").replace("<mujoco>", '<mujoco model="mini">'))
    twice = "".join(f'<attach model="mini" body="link0" prefix="{side}/"/>' for side in ("left", "right"))
    text = f'<mujoco><asset><model name="mini" file="parts/mini.xml"/></asset><worldbody>{twice}</worldbody></mujoco>'
    (tmp_path / "two.xml").write_text(text)
    made = declare(tmp_path / "two.xml", tmp_path / "two")
    assert [joint.name for joint in made.robot.joints] == ["left/j0", "left/j1", "right/j0", "right/j1"]
    assert (tmp_path / "two" / "parts" / "mini.xml").is_file()


def test_a_body_that_is_held_by_a_handle_is_reported(tmp_path):
    text = arm_of(2, '<body name="tip" pos="0 0 .2"/>')
    text = text.replace("<worldbody>", '<worldbody><body name="h" mocap="true"/>').replace(
        "</mujoco>", '<equality><weld body1="h" body2="tip"/></equality></mujoco>'
    )
    (tmp_path / "arm.xml").write_text(text)
    assert any("held by mocap body 'h'" in note for note in read_facts(tmp_path / "arm.xml").notes)
