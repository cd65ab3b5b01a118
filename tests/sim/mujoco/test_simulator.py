# SPDX-License-Identifier: Apache-2.0
"""Robots read by MuJoCo's compiler, and plain MuJoCo as a reference simulator."""

import msgspec
import mujoco
import numpy as np
import pytest
import torch

import neurodyn
from neurodyn.core.description.scene import Plane, Scene
from neurodyn.core.errors import InputError
from neurodyn.dynamics.batch import State
from neurodyn.dynamics.hybrid.declared import declared_hybrid
from neurodyn.robots import Joint, Robot, load
from neurodyn.robots.sections import ContactPointSelection, SimulatorConfig
from neurodyn.sim.declaration.declare import declare
from neurodyn.sim.energies import EnergyMeter
from neurodyn.sim.mujoco.build import build_model
from neurodyn.sim.simulators import articulation, simulator

MACHINE = """<mujoco><compiler angle="radian" autolimits="true"/><option integrator="implicitfast"/><worldbody>
<body name="base" pos="0 0 1" quat=".8 .2 .4 -.4"><freejoint name="base"/>
<inertial pos=".1 -.05 .2" quat=".9 .1 -.3 .3" mass="4" diaginertia=".2 .3 .4"/>
  <body name="arm" pos=".3 .1 0" quat=".7 .1 .7 0">
    <joint name="swing" axis="0 .6 .8" pos=".05 0 .1" ref=".4" damping=".3" armature=".02"/>
    <joint name="slide" type="slide" axis="1 0 0" ref=".1" stiffness="20" springref=".05" damping="1"/>
    <inertial pos=".2 .03 0" mass="1.5" diaginertia=".02 .03 .04"/>
    <body name="plate" pos=".4 0 .1" quat=".9 0 0 .4"><geom type="box" size=".1 .05 .02" mass=".5"/>
      <body name="hand" pos=".2 0 0"><joint name="wrist" axis="1 0 0" range="-.5 .5" damping=".1"/>
      <geom type="capsule" size=".03 .1" pos="0 .1 0" mass=".4"/></body></body></body></body>
</worldbody></mujoco>"""


def declared(folder, text, joints, **others):
    (folder / "robot.xml").write_text(text)
    fields = {"name": "robot", "actuated": {}, "dt": 0.01, "simulator": SimulatorConfig("mujoco-c", substeps=2)}
    fields |= {"fixed_base": joints[0].kind != "free", "joints": joints, "asset": str(folder / "robot.xml")}
    return Robot(**fields | others)


@pytest.fixture
def machine(tmp_path):
    joints = (
        Joint("base", "free"), Joint("swing", "revolute"), Joint("slide", "prismatic"),
        Joint("wrist", "revolute", lower=-0.5, upper=0.5),
    )  # fmt: skip
    return declared(tmp_path, MACHINE, joints, actuated={"swing": 3.0, "wrist": 1.0}, gravity=(0.5, -1.0, -9.0))


def states(robot, count=6, seed=0):
    generator = torch.Generator().manual_seed(seed)
    q = torch.randn(count, robot.spec.nq, generator=generator) * 0.4
    q[:, 3:7] = torch.nn.functional.normalize(q[:, 3:7], dim=1)
    return q, torch.randn(count, robot.spec.nv, generator=generator)


def positions(model, q):
    """MuJoCo's positions."""
    return np.concatenate([q[:3], q[[6, 3, 4, 5]], q[7:]])


def test_links_are_where_mujoco_has_their_bodies(machine):
    built, model = articulation(machine), build_model(machine).model
    data, (q, _) = mujoco.MjData(model), states(machine)
    found = built.kinematics(q.numpy())
    links = {"base": 0, "arm": 2, "hand": 3}  # the swing alone moves a link in between
    for world in range(len(q)):
        data.qpos[:] = positions(model, q[world].double().numpy())
        mujoco.mj_forward(model, data)
        for name, link in links.items():
            np.testing.assert_allclose(found.origins[world, link], data.body(name).xpos, atol=1e-6)
            np.testing.assert_allclose(found.rotations[world, link].ravel(), data.body(name).xmat, atol=1e-6)
    assert built.mass == pytest.approx(model.body_mass.sum())


def test_energies_are_mujocos(machine):
    model = build_model(machine).model
    model.opt.enableflags |= int(mujoco.mjtEnableBit.mjENBL_ENERGY)
    data, (q, qd) = mujoco.MjData(model), states(machine)
    q[:, -1] = q[:, -1].clamp(-0.5, 0.5)  # beyond its limit, the meter has a spring
    kinetic, potential = EnergyMeter(articulation(machine)).measure(q, qd)
    com = np.array(articulation(machine).base_com)
    for world in range(len(q)):
        data.qpos[:] = positions(model, q[world].double().numpy())
        mujoco.mj_kinematics(model, data)
        turn, spin = data.body("base").xmat.reshape(3, 3), qd[world, 3:6].double().numpy()
        data.qvel[:3] = qd[world, :3].double().numpy() - np.cross(spin, turn @ com)
        data.qvel[3:6], data.qvel[6:] = turn.T @ spin, qd[world, 6:].double().numpy()
        mujoco.mj_forward(model, data)
        assert float(kinetic[world]) == pytest.approx(data.energy[1], rel=1e-6)
        assert float(potential[world]) == pytest.approx(data.energy[0], rel=1e-5, abs=1e-4)


def test_the_hybrid_engine_does_what_the_simulator_does(machine):
    q, qd = states(machine)
    control = torch.randn(6, 20, 2, generator=torch.Generator().manual_seed(1))
    theirs, rates = simulator(machine, 6).rollout(q, qd, control)
    ours = declared_hybrid(machine).double().rollout(State(q.double(), qd.double()), control.double())
    torch.testing.assert_close(ours.q.float(), theirs, atol=2e-5, rtol=0)
    torch.testing.assert_close(ours.qd.float(), rates, atol=2e-4, rtol=1e-4)


def test_a_roll_out_is_its_steps(machine):
    q, qd = states(machine)
    control = torch.randn(6, 5, 2, generator=torch.Generator().manual_seed(2))
    worlds = simulator(machine, 6)
    path, rates = worlds.rollout(q, qd, control)
    for frame in range(5):
        q, qd = worlds.step(q, qd, control[:, frame])
        torch.testing.assert_close(q, path[:, frame + 1], atol=1e-5, rtol=0)
        torch.testing.assert_close(qd, rates[:, frame + 1], atol=1e-4, rtol=1e-4)


def test_shipped_robots_are_the_same_as_newton_imports_them():
    robot = load("ant")
    plain = msgspec.structs.replace(robot, simulator=SimulatorConfig("mujoco-c", substeps=4))
    mine, theirs = articulation(plain), articulation(robot)
    assert theirs.fingerprint.differences(mine.fingerprint) == []
    for a, b in zip(mine.sprung_links, theirs.sprung_links, strict=True):
        assert (a.limit_stiffness, a.limit_damping) == pytest.approx((b.limit_stiffness, b.limit_damping), rel=1e-4)


BALL = """<mujoco><worldbody><body name="ball" pos="0 0 1"><freejoint/><geom size=".1" mass="2"/></body>
<body name="mark" mocap="true" pos="1 2 3"/></worldbody></mujoco>"""


def test_each_world_has_its_own_ground_and_gravity(tmp_path):
    scene = Scene(shapes=(Plane(),))
    robot = declared(
        tmp_path, BALL, (Joint("base", "free"),), contact_points=ContactPointSelection(), grounds={"flat": scene},
        contacts={"ball": ("*",)},
    )  # fmt: skip
    worlds = simulator(robot, 3, scene=scene)
    ground = torch.tensor([[0.0, 0, 0, 0, 0, 0, 1], [0, 0, -0.5, 0, 0, 0, 1], [0, 0, -9, 0, 0, 0, 1]])
    worlds.set_ground(ground)
    worlds.set_gravity(torch.tensor([[0, 0, -9.81], [0, 0, -9.81], [0, 0, 0.0]]))
    q, qd = torch.tensor([[0.0, 0, 0.3, 0, 0, 0, 1]]).repeat(3, 1), torch.zeros(3, 6)
    path, _ = worlds.rollout(q, qd, torch.zeros(3, 200, 0))
    assert path[:, -1, 2].tolist() == pytest.approx([0.1, -0.4, 0.3], abs=2e-3)
    forces = worlds.contact_forces()
    assert forces is not None
    assert forces[:, 0].tolist() == pytest.approx([2 * 9.81, 2 * 9.81, 0.0], abs=0.02)
    with pytest.raises(InputError, match=r"the ground's pose has shape \[2, 7\]"):
        worlds.set_ground(ground[:2])


def test_defaults_of_the_asset_do_not_take_the_ground_away(tmp_path):
    text = BALL.replace("<worldbody>", '<default><geom contype="0" conaffinity="0"/></default><worldbody>', 1)
    text = text.replace('size=".1"', 'size=".1" contype="1"')
    scene = Scene(shapes=(Plane(),))
    robot = declared(
        tmp_path, text, (Joint("base", "free"),), contact_points=ContactPointSelection(), grounds={"flat": scene}
    )
    start = torch.tensor([[0.0, 0, 0.3, 0, 0, 0, 1]]), torch.zeros(1, 6)
    path, _ = simulator(robot, 1, scene=scene).rollout(*start, torch.zeros(1, 200, 0))
    assert float(path[0, -1, 2]) == pytest.approx(0.1, abs=2e-3)


def test_missing_textures_do_not_matter_and_missing_meshes_are_reported(tmp_path):
    text = """<mujoco><asset><texture name="t" type="2d" file="gone.png"/><material name="m" texture="t"/>
    <mesh name="shell" file="gone.stl"/></asset><worldbody><body><joint name="turn"/>
    <geom name="rod" type="capsule" size=".1 .2" material="m"/><geom type="mesh" mesh="shell"/></body></worldbody>
    </mujoco>"""
    robot = declared(tmp_path, text, (Joint("turn", "revolute"),))
    with pytest.warns(UserWarning, match=r"left out: mesh 'gone.stl' does not exist"):
        assert [shape.label for shape in articulation(robot).shapes] == ["rod"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("<mujoco><worldbody><body><joint/></body></worldbody></mujoco>", "moves but has no mass"),
        ("<mujoco><worldbody><body pos='a'/></worldbody></mujoco>", "MuJoCo cannot read it"),
        ("<robot/>", "not a MJCF"),
        (BALL, "has the moving joints ball_joint \\(free\\)|instead of the declared turn"),
    ],
)
def test_bad_files_are_one_line(text, said, tmp_path):
    robot = declared(tmp_path, text, (Joint("turn", "revolute"),))
    with pytest.raises(InputError, match=said) as caught:
        neurodyn.sim.articulation(robot)
    assert "\n" not in str(caught.value)


FLAGS = """<mujoco><option timestep=".005"><flag gravity="disable" limit="disable" spring="disable"
 frictionloss="disable" contact="disable" equality="disable"/></option><worldbody><geom type="plane" size="1 1 1"/>
<body name="a" pos="0 0 .5"><joint name="a" axis="0 1 0" range="-1 1" stiffness="5" frictionloss=".5" damping=".2"/>
<geom type="capsule" fromto="0 0 0 .3 0 0" size=".03"/><body name="b" pos=".3 0 0"><joint name="b" axis="0 1 0"/>
<geom type="capsule" fromto="0 0 0 .3 0 0" size=".03"/></body></body></worldbody>
<equality><joint joint1="a" joint2="b"/></equality>
<actuator><motor joint="a" ctrlrange="-3 3"/><motor joint="b" ctrlrange="-1 1"/></actuator></mujoco>"""


def test_what_flags_of_the_asset_disable_is_not_there(tmp_path):
    (tmp_path / "flags.xml").write_text(FLAGS)
    robot = declare(tmp_path / "flags.xml", tmp_path / "flags").robot
    assert robot.gravity == (0.0, 0.0, 0.0)
    assert robot.joints[0].lower is None
    plain = mujoco.MjModel.from_xml_path(str(tmp_path / "flags.xml"))
    plain.opt.integrator, plain.opt.timestep = mujoco.mjtIntegrator.mjINT_IMPLICITFAST, 0.01 / robot.simulator.substeps
    data = mujoco.MjData(plain)
    data.qpos[:], data.qvel[:], data.ctrl[:] = [1.5, -0.4], [3.0, -2.0], [2.0, -0.5]
    mujoco.mj_step(plain, data, 20 * robot.simulator.substeps)
    q, qd = torch.tensor([[1.5, -0.4]]), torch.tensor([[3.0, -2.0]])
    control = torch.tensor([2.0, -0.5]).expand(1, 20, 2)
    worlds = simulator(robot, 1, scene=robot.named_ground())
    theirs, _ = worlds.rollout(q, qd, control)
    ours = declared_hybrid(robot).double().rollout(State(q.double(), qd.double()), control.double())
    assert theirs[0, -1].tolist() == pytest.approx(data.qpos.tolist(), abs=1e-5)
    assert ours.q[0, -1].tolist() == pytest.approx(data.qpos.tolist(), abs=1e-5)


@pytest.mark.parametrize(
    ("integrator", "flag"),
    [("implicitfast", ""), ("implicitfast", 'eulerdamp="disable"'), ("euler", ""), ("euler", 'eulerdamp="disable"')],
)
def test_damping_is_as_in_mujoco_and_friction_there_without_limits_and_contacts(integrator, flag, tmp_path):
    text = f"""<mujoco><option><flag {flag}/></option><worldbody><body>
<joint name="a" axis="0 1 0" frictionloss=".1" damping=".5"/>
<geom type="capsule" fromto="0 0 0 .1 0 0" size=".03" contype="0" conaffinity="0"/></body></worldbody></mujoco>"""
    config = SimulatorConfig("mujoco-c", substeps=2, integrator=integrator)
    robot = declared(tmp_path, text, (Joint("a", "revolute", continuous=True),), simulator=config)
    q, qd, control = torch.tensor([[0.3]]), torch.tensor([[4.0]]), torch.zeros(1, 10, 0)
    theirs, _ = simulator(robot, 1).rollout(q, qd, control)
    ours = declared_hybrid(robot).double().rollout(State(q.double(), qd.double()), control.double())
    assert ours.q[0, :, 0].tolist() == pytest.approx(theirs[0, :, 0].tolist(), abs=1e-6)


def test_a_world_that_becomes_unstable_does_not_start_over(tmp_path):
    text = """<mujoco><worldbody><body><joint name="a" axis="0 1 0" stiffness="9e9"/>
<geom size=".1" pos=".2 0 0"/></body></worldbody></mujoco>"""
    robot = declared(tmp_path, text, (Joint("a", "revolute", continuous=True),), gravity=(0.0, 0.0, 0.0))
    q, _ = simulator(robot, 2).rollout(torch.tensor([[0.5], [0.0]]), torch.zeros(2, 1), torch.zeros(2, 30, 0))
    assert q[0, -1].isnan().all()
    assert q[1].isfinite().all()


def test_rotors_and_damping_of_actuators_are_those_of_their_joints(tmp_path):
    text = """<mujoco><worldbody><body><joint name="a" axis="0 1 0" armature=".01"/>
<geom size=".1" pos=".2 0 0"/></body></worldbody>
<actuator><motor joint="a" gear="3" armature=".02" damping=".1" ctrlrange="-1 1"/></actuator></mujoco>"""
    (tmp_path / "motor.xml").write_text(text)
    made = declare(tmp_path / "motor.xml", tmp_path / "motor")
    assert "note" not in [decision.what for decision in made.decisions]
    (link,) = articulation(made.robot).links
    assert (link.armature, link.damping) == pytest.approx((0.19, 0.9))
