# SPDX-License-Identifier: Apache-2.0
"""End effectors and contacts by depth, beside the simulator."""

import torch

from neurodyn.dynamics.analytic import AnalyticDynamics
from neurodyn.dynamics.artifact import load
from neurodyn.dynamics.batch import Control, Environment, State
from neurodyn.dynamics.control import frame_torque
from neurodyn.dynamics.quantities import StateReader, declared_end_effector
from neurodyn.geometry.ground import Ground
from neurodyn.robots import load as load_robot
from neurodyn.sim.engine import import_newton
from neurodyn.sim.newton.build import build
from neurodyn.sim.simulators import articulation
from neurodyn.tasks.task import reset_states


def test_the_declared_chain_is_the_one_that_is_built():
    robot = load_robot("franka")
    built = articulation(robot).joints
    assert robot.end_effector is not None
    for mine, theirs in zip(robot.end_effector.joints, built, strict=True):
        assert (mine.name, mine.kind, mine.parent) == (theirs.name, theirs.kind, theirs.parent)
        for field in ("parent_frame", "child_frame", "axis"):
            torch.testing.assert_close(
                torch.tensor(getattr(mine, field)), torch.tensor(getattr(theirs, field)), rtol=0.0, atol=1e-6
            )


def test_the_end_effector_is_where_the_simulator_has_it():
    import warp as wp

    robot = load_robot("franka")
    newton, model = import_newton(), build(robot, worlds=3)
    q = reset_states(robot, 3, torch.Generator().manual_seed(0)).q
    world = model.state()
    world.joint_q.assign(q.flatten().numpy())
    newton.eval_fk(model, world.joint_q, world.joint_qd, world)
    places = wp.to_torch(world.body_q).view(3, -1, 7)
    last = next(i for i, label in enumerate(model.body_label) if label.endswith("panda_link7"))
    pose = places[:, last]
    from neurodyn.geometry import rotation

    wanted = pose[:, :3] + rotation.rotate(pose[:, 3:], torch.tensor(robot.end_effector.point).expand(3, 3))
    reader = StateReader(robot.spec, owner="a test", more=declared_end_effector(robot))
    found = reader.read(State(q, torch.zeros_like(q)))["end_effector_position"]
    torch.testing.assert_close(found, wanted, rtol=0.0, atol=1e-5)


def test_robots_without_an_end_effector_have_none():
    assert declared_end_effector(load_robot("cartpole")) == {}


def test_contacts_by_depth_are_those_by_force_once_the_robot_stands():
    robot = load_robot("anymal-c")
    home = Environment(ground=Ground(robot.named_ground()))
    real, model = AnalyticDynamics(robot), load("pretrained:anymal-c")
    state = reset_states(robot, 4, torch.Generator().manual_seed(0))
    carry = real.begin(state, home)
    control = Control(
        target=torch.tensor([robot.nominal_q()] * 4), kp=torch.full((1, 12), 250.0), kd=torch.full((1, 12), 10.0)
    )
    seen = model.quantities(state, environment=home)
    assert seen["contact"].sum() == 0.0  # in the air
    step = None
    for _ in range(60):
        carry, step = real.step(carry, state, Control(torque=frame_torque(robot.spec, state, control)))
        state = step.state
    feet = ("LF_FOOT", "RF_FOOT", "LH_FOOT", "RH_FOOT")
    by_force = real.quantities(state, step, environment=home)
    by_depth = model.quantities(state, environment=home)
    assert by_force.contact_names == by_depth.contact_names
    assert by_force.contacts(feet).min() == 1.0
    assert torch.equal(by_depth["contact"], by_force["contact"])
