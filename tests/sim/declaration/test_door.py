# SPDX-License-Identifier: Apache-2.0
"""A door, which nothing drives, and an arm that pushes it: from the asset to data, a hybrid model and a trained one."""

import pytest
import torch

import neurodyn
from neurodyn.data.store import Store
from neurodyn.dynamics.batch import State
from neurodyn.dynamics.hybrid.declared import declared_hybrid
from neurodyn.learn.training import train
from neurodyn.sim.declaration.declare import declare
from neurodyn.sim.generation import generate

DOOR = """<mujoco><compiler angle="radian" autolimits="true"/>
<option timestep=".005" integrator="implicitfast" cone="elliptic"/><worldbody>
  <body name="arm" pos=".45 0 0"><joint name="swing" axis="0 0 1" range="-.5 2" damping=".5" armature=".02"/>
    <geom name="arm" type="capsule" fromto="0 0 0 0 .3 0" size=".03" mass=".5"/>
    <site name="gripper" pos="0 .3 0"/></body>
  <body name="door" pos=".25 0 0"><joint name="hinge" axis="0 0 1" range="-1.5 1.5" damping=".05" frictionloss=".02"/>
    <geom name="leaf" type="box" size=".02 .2 .3" pos="0 .22 .1" mass="2"/></body>
</worldbody><actuator>
  <position name="swing" joint="swing" kp="20" ctrlrange="-.5 2" forcerange="-20 20"/></actuator>
<keyframe><key name="away" qpos="0 0"/></keyframe></mujoco>"""


@pytest.fixture(scope="module")
def robot(tmp_path_factory):
    folder = tmp_path_factory.mktemp("door")
    (folder / "door.xml").write_text(DOOR)
    made = declare(folder / "door.xml", folder / "door", dt=0.02)
    made.path.write_text(made.path.read_text() + "evaluation_horizon: 20\n")
    return neurodyn.robots.load(folder / "door")


def test_it_is_declared_as_a_joint_without_a_drive_that_the_arm_can_touch(robot):
    assert [joint.name for joint in robot.joints] == ["swing", "hinge"]
    assert list(robot.actuated) == ["swing"]
    assert robot.self_contacts
    assert robot.end_effector is not None
    assert (robot.end_effector.joint, robot.end_effector.point) == ("swing", (0.0, 0.3, 0.0))


def test_the_hybrid_opens_it_as_mujoco_does(robot):
    hybrid = declared_hybrid(robot).double()
    q, qd = torch.tensor([[0.0, 0.0], [0.2, 0.1]]), torch.zeros(2, 2)
    push = torch.full((2, 40, 1), 1.5)
    truth = neurodyn.dynamics.AnalyticDynamics(robot).rollout(State(q, qd), push)
    path = hybrid.rollout(State(q.double(), qd.double()), push.double())
    assert truth.q[:, -1, 1].abs().min() > 0.3  # it opens
    torch.testing.assert_close(path.q.float(), truth.q, rtol=0, atol=1e-4)
    end = hybrid.quantities(State(q.double(), qd.double()))["end_effector_position"]
    wanted = torch.stack([0.45 - 0.3 * q[:, 0].sin(), 0.3 * q[:, 0].cos(), torch.zeros(2)], -1)
    torch.testing.assert_close(end.float(), wanted, rtol=0, atol=1e-6)


@pytest.mark.slow
def test_a_network_learns_it_from_data(robot, tmp_path):
    generate(robot, 400, tmp_path / "door.h5")
    assert Store.open(tmp_path / "door.h5").header.spec.q_names == ("swing", "hinge")
    train(robot=robot.folder, data=tmp_path / "door.h5", out=tmp_path / "run", steps=4, base="contact")
    model = neurodyn.load(str(tmp_path / "run"))
    path = model.rollout(State(torch.zeros(1, 2), torch.zeros(1, 2)), torch.full((1, 20, 1), 1.5))
    assert path.q.isfinite().all()
    assert path.q[0, -1, 1].abs() > 0.1
