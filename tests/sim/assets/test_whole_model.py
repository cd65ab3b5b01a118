# SPDX-License-Identifier: Apache-2.0
"""What an asset says of its whole model holds for the robot alone, and what we add to it does not change the robot."""

import math
from pathlib import Path

import mujoco
import numpy as np
import pytest
import torch
import trimesh

from neurodyn.core.description.scene import Mesh, Scene
from neurodyn.dynamics.hybrid.declared import declared_mechanism
from neurodyn.multibody.articulated import Tree
from neurodyn.robots import load
from neurodyn.robots.declaration import Robot
from neurodyn.sim.declaration.declare import declare
from neurodyn.sim.declaration.facts import read_facts
from neurodyn.sim.mujoco.asset import keep_masses, read_spec
from neurodyn.sim.mujoco.build import build_model
from neurodyn.sim.simulators import simulator

SLED = """<mujoco><compiler {compiler}/><option timestep="0.002" integrator="implicitfast"/>{defaults}
<worldbody><geom name="floor" type="plane" size="20 5 .1" friction="0.3 .005 .0001"/>
<body name="sled" pos="0 0 .0995"><freejoint name="root"/>
<geom name="runner" type="box" size=".3 .2 .1" {mass} friction="0.2 .005 .0001"/>
<body name="arm" pos="0 0 .1"><joint name="arm" axis="0 1 0" range="-28 28" damping="5" armature=".02"/>
<geom type="capsule" fromto="0 0 .02 0 0 .2" size=".02" {light} contype="0" conaffinity="0"/></body></body>
</worldbody><actuator><motor joint="arm" ctrlrange="-1 1" gear="1"/></actuator>
<keyframe><key qpos="0 0 .0995 1 0 0 0 0"/></keyframe></mujoco>"""
GIVEN = {"compiler": "", "defaults": "", "mass": 'mass="5"', "light": 'mass=".2"'}


def declared(folder: Path, **changes: str) -> Robot:
    (folder / "sled.xml").write_text(SLED.format(**GIVEN | changes))
    return load(declare(folder / "sled.xml", folder / "sled").path.parent)


def test_a_total_mass_is_that_of_the_robot_on_each_ground(tmp_path: Path):
    robot = declared(tmp_path, compiler='settotalmass="14"', mass='density="300"', light='density="700"')
    own = mujoco.MjModel.from_xml_path(str(tmp_path / "sled.xml"))
    assert own.body_mass.sum() == pytest.approx(14.0)
    for ground in ("flat", "tilted", "rough"):
        model = build_model(robot, robot.named_ground(ground)).model
        for name in ("sled", "arm"):
            assert model.body(name).mass == pytest.approx(own.body(name).mass, rel=1e-9)
            assert model.body(name).inertia == pytest.approx(own.body(name).inertia, rel=1e-9)
            assert model.body(name).ipos == pytest.approx(own.body(name).ipos, abs=1e-12)


def test_a_sled_slides_as_far_as_its_own_friction_lets_it(tmp_path: Path):
    robot = declared(tmp_path)
    assert robot.material is None
    sliding = simulator(robot, 1, scene=robot.named_ground("flat"))
    q, qd = torch.zeros(1, robot.spec.nq), torch.zeros(1, robot.spec.nv)
    q[0, 2], q[0, 6], qd[0, 0] = 0.0995, 1.0, 2.0
    for _ in range(150):
        q, qd = sliding.step(q, qd, torch.zeros(1, 1))
    assert float(q[0, 0]) == pytest.approx(2.0**2 / (2 * 0.3 * 9.81), rel=0.01)  # the greater of .2 and .3


def test_defaults_of_an_asset_do_not_reach_what_is_added(tmp_path: Path):
    (tmp_path / "plain").mkdir()
    (tmp_path / "classes").mkdir()
    classes = """<default><mesh scale=".001 .001 .001"/><geom condim="6" margin=".02" solmix="4" priority="2"/>
    <site size=".2"/><tendon range="-1 1" stiffness="9"/><general dyntype="integrator"/></default>"""
    trimesh.creation.box((1.0, 1.0, 1.0)).export(tmp_path / "block.stl")
    scene = Scene(shapes=(Mesh(file=str(tmp_path / "block.stl")),))
    extent = []
    for name, defaults in (("plain", ""), ("classes", classes)):
        robot = declared(tmp_path / name, defaults=defaults)
        model = build_model(robot, scene).model
        geom = int(np.flatnonzero(model.geom_type == int(mujoco.mjtGeom.mjGEOM_MESH))[0])
        extent.append(float(model.geom_rbound[geom]))
        assert (int(model.geom_condim[geom]), float(model.geom_solmix[geom])) == (3, 1.0)
    assert extent[0] == extent[1] > 0.5


@pytest.mark.parametrize("turn", ['zaxis="1 1 1"', 'euler="10 20 30"', 'quat=".5 .5 .1 .2"'])
@pytest.mark.parametrize("of_geoms", ["true", "auto"])
def test_inertias_of_a_total_mass_are_turned_as_in_plain_mujoco(turn: str, of_geoms: str, tmp_path: Path):
    inertial = f'<inertial pos=".1 0 0" mass="2" diaginertia=".01 .02 .025" {turn}/>'
    text = SLED.format(**GIVEN | {"compiler": f'settotalmass="14" inertiafromgeom="{of_geoms}"'})
    path = tmp_path / "sled.xml"
    path.write_text(text.replace("<freejoint", f"{inertial}<freejoint"))
    spec = read_spec(path)
    keep_masses(path, spec)
    ours, own = spec.compile(), mujoco.MjModel.from_xml_path(str(path))
    assert ours.body_iquat == pytest.approx(own.body_iquat, abs=1e-12)
    assert ours.body_inertia == pytest.approx(own.body_inertia, rel=1e-12)


DC = """<mujoco><worldbody><body><joint name="a" axis="0 1 0" armature="0.01" range="-114 114"/>
<geom type="capsule" fromto="0 0 0 .3 0 0" size=".03" mass="1"/></body></worldbody><actuator>
<dcmotor name="m" joint="a" motorconst="0.05 0.05" resistance="1.5" gear="40" ctrlrange="-24 24"/></actuator>
</mujoco>"""


def test_the_effort_of_a_dc_motor_is_its_stall_torque(tmp_path: Path):
    (tmp_path / "dc.xml").write_text(DC)
    facts = read_facts(tmp_path / "dc.xml")
    assert facts.joints[0].effort == pytest.approx(0.05 / 1.5 * 24 * 40)
    assert any("'m' is left out: gain dcmotor" in note for note in facts.notes)


TWINS = """<mujoco><worldbody><body><joint name="a" type="slide" axis="0 0 1" armature=".006"/>
<joint name="b" type="slide" axis="0 0 1" armature=".006"/><geom size=".1" mass="200"/></body></worldbody>
<actuator><motor joint="a" ctrlrange="-1 1"/><motor joint="b" ctrlrange="-1 1"/></actuator></mujoco>"""


def test_joints_that_move_a_heavy_body_alike_differ_by_their_rotors_alone(tmp_path: Path):
    (tmp_path / "twins.xml").write_text(TWINS)
    mechanism = declared_mechanism(load(declare(tmp_path / "twins.xml", tmp_path / "twins").path.parent), None)[0]
    tree, still = Tree(mechanism, mechanism.quantities().__getitem__), [0.0, 0.0]
    found = tree.accelerations(tree.motions(still, still), still, [1.0, -1.0])
    assert (found[0] - found[1]) / 2 == pytest.approx(1 / 0.006, rel=1e-6)


SKID = '<body name="skid" pos="0 0 -.1"><geom type="sphere" size=".02"/></body></body>'
EXCLUDED = '<contact><exclude body1="skid" body2="sled"/></contact>'
SEEN = '<sensor><framepos objtype="body" objname="skid"/></sensor>'
FILMED = '<camera name="film" mode="targetbody" target="skid"/></worldbody>'


@pytest.mark.parametrize("referring", ["", EXCLUDED, SEEN, FILMED])
def test_bodies_are_fused_as_in_plain_mujoco(referring: str, tmp_path: Path):
    text = SLED.format(**GIVEN | {"compiler": 'fusestatic="true"'}).replace("</body>\n</world", f"{SKID}\n</world")
    end = "</worldbody>" if "camera" in referring else "</mujoco>"
    text = text.replace(end, referring + end * ("camera" not in referring))
    (tmp_path / "sled.xml").write_text(text)
    robot, own = (
        load(declare(tmp_path / "sled.xml", tmp_path / "sled").path.parent),
        mujoco.MjModel.from_xml_string(text),
    )
    assert own.nbody == (4 if referring else 3)
    model = build_model(robot, robot.named_ground("flat")).model
    assert model.body_invweight0[: own.nbody] == pytest.approx(own.body_invweight0, rel=1e-9)


def test_bodies_that_weigh_by_a_declared_density_are_fused_too(tmp_path: Path):
    text = SLED.format(**GIVEN | {"compiler": 'fusestatic="true"'})
    light = '<body name="ball" pos="0 0 2"><freejoint/><geom name="shell" type="sphere" size=".1" mass="0"/></body>'
    (tmp_path / "sled.xml").write_text(text.replace("</worldbody>", f"{light}</worldbody>"))
    spec = read_spec(tmp_path / "sled.xml", densities={"shell": 500.0})
    assert spec.compile().body("ball").mass == pytest.approx(500.0 * 4.0 / 3.0 * math.pi * 0.1**3)


def test_limits_in_degrees_are_declared_to_the_last_digit(tmp_path: Path):
    robot = declared(tmp_path)
    own = mujoco.MjModel.from_xml_path(str(tmp_path / "sled.xml"))
    assert robot.joints[1].lower == pytest.approx(own.jnt_range[1, 0], abs=1e-11)
