# SPDX-License-Identifier: Apache-2.0
"""MJCF files with several joints on a body: the dynamics are those of MuJoCo itself."""

import mujoco
import numpy as np
import pytest
import torch

from neurodyn.core.config import from_dict
from neurodyn.core.errors import InputError
from neurodyn.multibody.articulated import Tree
from neurodyn.multibody.drives.drive import passive_torque
from neurodyn.robots import Robot
from neurodyn.sim.newton.asset import prepare_mjcf
from neurodyn.sim.newton.simulator import ReferenceSimulator
from neurodyn.sim.simulators import articulation, mechanism

# Slides and hinges on rotated bodies, anchors off the origin, masses off centre, classes, references and springs.
CRANE = """
<mujoco model="crane">
  <compiler angle="{angle}" {compiler}/>
  <option integrator="{integrator}" timestep="0.002"/>
  <default>
    <joint armature="0.02" damping="0.3"/>
    <default class="soft"><joint stiffness="4" springref="{spring}" damping="0.1"/></default>
  </default>
  <worldbody>
    <geom type="plane" size="5 5 .1"/>
    <body name="cart" pos="0.2 0 1.3" euler="{euler}">
      <joint name="x" type="slide" axis="1 0 0" armature="0" pos="0 0 -1"/>
      <joint name="z" type="slide" axis="0 0.6 0.8" ref="1.3" pos="0 0 -1"/>
      <joint name="turn" type="hinge" axis="0 1 0" pos="0.1 0.05 -0.2"/>
      {inertial}
      <geom name="box" type="box" size="0.2 0.1 0.05" pos="0.15 0.02 -0.1" mass="3"/>
      <body name="arm" pos="0.3 0 0" childclass="soft" quat="0.9 0.1 0.3 -0.2">
        <joint type="hinge" axis="0 0 1" pos="-0.05 0.1 0" ref="{ref}" stiffness="2"/>
        <joint name="roll" type="hinge" axis="1 0 0" pos="0 0.03 0"/>
        <geom type="capsule" fromto="0 0 0 0.5 0.1 0" size="0.05" mass="0.7"/>
        <body name="tip" pos="0.5 0.1 0">
          <joint name="wag" type="hinge" axis="0 1 0"/>
          <geom type="sphere" size="0.06" pos="0.1 0 0.1" mass="0.4"/>
        </body>
      </body>
    </body>
  </worldbody>
</mujoco>
"""
INERTIAL = '<inertial pos="0.1 -0.05 0.2" mass="2.5" diaginertia="0.03 0.05 0.06" quat="0.8 0.2 0 0.4"/>'
JOINTS = {"x": "prismatic", "z": "prismatic", "turn": "revolute", "arm_joint_0": "revolute", "roll": "revolute"}
VARIANTS = {
    "degrees": {"angle": "degree", "euler": "10 -20 30", "ref": "20", "spring": "15", "integrator": "Euler"},
    "radians and inertials": {
        "angle": "radian", "euler": "0.2 -0.3 0.5", "ref": "0.3", "spring": "0.2", "integrator": "RK4",
        "inertial": INERTIAL,
    },
    "inertia from shapes and total mass": {
        "angle": "radian", "euler": "0.2 -0.3 0.5", "ref": "0.3", "spring": "0.2", "integrator": "RK4",
        "inertial": INERTIAL, "compiler": 'inertiafromgeom="true" settotalmass="7"',
    },
}  # fmt: skip


@pytest.fixture(params=list(VARIANTS))
def crane(request, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # MuJoCo writes its warnings to a file where it runs
    text = CRANE.format(**{"inertial": "", "compiler": ""} | VARIANTS[request.param])
    (tmp_path / "crane.xml").write_text(text)
    joints = [{"name": name, "kind": kind} for name, kind in {**JOINTS, "wag": "revolute"}.items()]
    data = {
        "name": "crane", "asset": "crane.xml", "joints": joints, "actuated": {"x": 5.0, "arm_joint_0": 1.0},
        "dt": 0.02, "simulator": {"solver": "mujoco", "substeps": 10},
    }  # fmt: skip
    model = mujoco.MjModel.from_xml_string(text)
    model.opt.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_CONTACT)
    return from_dict(data, Robot).locate(tmp_path), model


def test_trajectories_are_those_of_mujoco(crane):
    robot, model = crane
    simulator = ReferenceSimulator(robot, 1, capture=False)
    rng = np.random.default_rng(0)
    q, qd = rng.uniform(-0.5, 0.5, 6), rng.uniform(-1, 1, 6)
    torque = rng.uniform(-1, 1, (12, 2)) * [5.0, 1.0]
    data = mujoco.MjData(model)
    data.qpos[:], data.qvel[:] = q + model.qpos0, qd  # Newton counts coordinates from the reference
    path = [data.qpos - model.qpos0]
    for frame in torque:
        data.qfrc_applied[[0, 3]] = frame
        mujoco.mj_step(model, data, 10)
        path.append(data.qpos - model.qpos0)
    q_all, _ = simulator.rollout(
        torch.tensor(q[None]).float(), torch.tensor(qd[None]).float(), torch.tensor(torque[None]).float()
    )
    moved = np.abs(path[-1] - path[0]).max()
    assert moved > 0.3
    np.testing.assert_allclose(q_all[0].numpy(), path, atol=1e-5 * moved)


def test_the_mechanism_accelerates_as_mujoco_does(crane):
    robot, model = crane
    found = mechanism(articulation(robot), robot)
    quantity = found.quantities().__getitem__
    tree, rng, data = Tree(found, quantity), np.random.default_rng(1), mujoco.MjData(model)
    assert sum(link.mass for link in found.links) == pytest.approx(model.body_mass.sum(), rel=1e-5)
    for _ in range(3):
        q, qd, torque = (rng.uniform(-1, 1, 6).tolist() for _ in range(3))
        data.qpos[:], data.qvel[:], data.qfrc_applied[:] = q + model.qpos0, qd, torque
        mujoco.mj_forward(model, data)
        given = [
            tau + passive_torque(link, quantity, *at) for link, tau, *at in zip(found.links, torque, q, qd, strict=True)
        ]
        mine = tree.accelerations(tree.motions(q, qd), q, given)
        np.testing.assert_allclose(mine, data.qacc, atol=2e-5 * np.abs(data.qacc).max())


def test_locked_joints_leave_the_others_on_their_body(tmp_path):
    (tmp_path / "crane.xml").write_text(CRANE.format(**{"inertial": "", "compiler": ""} | VARIANTS["degrees"]))
    prepared = prepare_mjcf(tmp_path / "crane.xml", locked=("x", "roll"))
    assert prepared.massless == {"cart_at_z": "cart"}
    assert prepared.total_mass is None


def test_a_total_mass_that_is_no_number_is_refused(tmp_path):
    text = CRANE.format(**VARIANTS["degrees"] | {"inertial": "", "compiler": 'settotalmass="heavy"'})
    (tmp_path / "crane.xml").write_text(text)
    with pytest.raises(InputError, match="settotalmass is 'heavy'; valid: a mass in kg"):
        prepare_mjcf(tmp_path / "crane.xml")


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("<worldbody>", '<worldbody><replicate count="2"/>', "<replicate> is not read; save the model"),
        ('angle="degree"', 'coordinate="global"', "coordinate='global' is not read; valid: local"),
    ],
)
def test_what_would_be_passed_over_is_refused(tmp_path, before, after, said):
    text = CRANE.format(**{"inertial": "", "compiler": ""} | VARIANTS["degrees"])
    (tmp_path / "crane.xml").write_text(text.replace(before, after, 1))
    with pytest.raises(InputError, match=said):
        prepare_mjcf(tmp_path / "crane.xml")
