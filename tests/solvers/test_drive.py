# SPDX-License-Identifier: Apache-2.0
import math

import newton
import pytest
import torch

from neurodyn.core.errors import InputError
from neurodyn.solvers import SolverNeural
from tests.solvers.loop import DT, cartpoles, coordinates, forces, start, table


def one_step(run, model, control):
    out = model.state()
    SolverNeural(model, run).step(start(model), out, control, None, DT)
    return coordinates(model, out)


def with_force(run, worlds, torque):
    model = cartpoles(worlds)
    control = model.control()
    table(control.joint_f, model)[:, 0] = torque
    return one_step(run, model, control)


def servo(worlds, ke, kd):
    model = cartpoles(worlds)
    table(model.joint_target_ke, model)[:, 0] = ke
    table(model.joint_target_kd, model)[:, 0] = kd
    return model


def test_targets_equal_the_torques_of_newtons_law(run):
    model = servo(3, ke=400.0, kd=30.0)
    control, state = model.control(), start(model)
    target, speed = torch.tensor([0.5, -0.2, 1.0]), torch.tensor([0.0, 1.0, -2.0])
    extra = forces(model, 1)[:, 0, 0]
    table(control.joint_f, model)[:, 0] = extra
    table(control.joint_target_q, model)[:, 0] = target
    table(control.joint_target_qd, model)[:, 0] = speed
    q, qd = table(state.joint_q, model)[:, 0], table(state.joint_qd, model)[:, 0]
    torque = extra + 400.0 * (target - q) + 30.0 * (speed - qd)
    seen = one_step(run, model, control)
    torch.testing.assert_close(seen, with_force(run, 3, torque), rtol=1e-6, atol=1e-6)
    assert (seen - with_force(run, 3, extra)).abs().max() > 1e-3


@pytest.mark.trains
def test_a_drive_pushes_as_in_featherstone(run):
    model = servo(2, ke=500.0, kd=20.0)
    control = model.control()
    table(control.joint_target_q, model)[:, 0] = torch.tensor([0.8, -0.6])
    out = model.state()
    solver = newton.solvers.SolverFeatherstone(model, angular_damping=0.0)
    state = start(model)
    for _ in range(20):
        solver.step(state, out, control, None, DT / 20)
        state, out = out, state
    change = coordinates(model, state)[:, 2] - coordinates(model, start(model))[:, 2]
    seen = one_step(run, model, control)[:, 2] - coordinates(model, start(model))[:, 2]
    torch.testing.assert_close(seen, change, rtol=0.1, atol=0.01)


def test_targets_of_the_model_act_without_a_control(run):
    model = servo(2, ke=400.0, kd=0.0)
    table(model.joint_target_q, model)[:, 0] = 1.0
    control = model.control()
    assert torch.equal(one_step(run, model, None), one_step(run, model, control))
    assert not torch.equal(one_step(run, model, None), with_force(run, 2, torch.zeros(2)))


def test_effort_limit_holds_the_drive_but_not_the_force(run):
    model = servo(2, ke=1e6, kd=0.0)
    control, state = model.control(), start(model)
    table(control.joint_target_q, model)[:, 0] = torch.tensor([10.0, -10.0])
    table(control.joint_f, model)[:, 0] = 100.0
    limit = table(model.joint_effort_limit, model)[0, 0]
    assert limit == 1500.0
    assert table(state.joint_q, model)[:, 0].abs().max() < 4
    expected = with_force(run, 2, torch.tensor([1600.0, -1400.0]))
    torch.testing.assert_close(one_step(run, model, control), expected)


def test_errors_of_drives_count_turns(run, tmp_path):
    """Newton's angles count turns, so a target one turn away pulls for a whole turn."""
    from neurodyn.core.description.spec import JointSpec, StateSpec
    from neurodyn.solvers.drive import SolverDrive

    spec = StateSpec("robot", (JointSpec("slider", "prismatic"), JointSpec("hinge", "revolute", True)), ("hinge",), DT)
    model = cartpoles(1)
    table(model.joint_target_ke, model)[:, 1] = 2.0
    control = model.control()
    table(control.joint_target_q, model)[:, 1] = 2 * math.pi
    torque = torch.zeros(1, 1)
    SolverDrive(spec, torch.zeros(1, 2), torch.zeros(1, 2), torque, "test").read(model, model.state(), control)
    torch.testing.assert_close(torque, torch.full((1, 1), 4 * math.pi))


@pytest.mark.parametrize("what", ["joint_f", "joint_target_ke", "joint_target_kd"])
def test_refuses_what_the_model_does_not_drive(run, what):
    model = cartpoles(2)
    control = model.control()
    array = control.joint_f if what == "joint_f" else getattr(model, what)
    table(array, model)[1, 1] = 7.0
    with pytest.raises(InputError, match=rf"{what} is 7 at joint 'hinge' in world 1.*anything at slider"):
        one_step(run, model, control)
