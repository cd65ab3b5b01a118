# SPDX-License-Identifier: Apache-2.0
"""A model behind the drives of a log of targets: the loop of `Control` with PD targets, differentiable by gains."""

import msgspec
import pytest
import torch

from neurodyn.core.description.drive import Drive, combine_drives
from neurodyn.core.description.parameter import select_parameters
from neurodyn.core.errors import InputError
from neurodyn.dynamics.batch import Control, State
from neurodyn.dynamics.hybrid.model import HybridDynamics
from neurodyn.multibody.engine import EngineConfig, nominal
from tests.multibody import machines

F64 = torch.float64
JOINTS = ("shoulder", "elbow")
PD = {"shoulder": Drive(kind="pd", kp=20.0, kd=1.0, updates=1), "elbow": Drive(kind="pd", kp=8.0, kd=0.4, updates=1)}
LIMITED = {
    "shoulder": Drive(kind="pd", kp=20.0, kd=1.0, effort_limit=0.5),
    "elbow": Drive(kind="pd", kp=20.0, kd=1.0, effort_limit=100.0),
}


def model(drives=None, free=("elbow.mass",)):
    mechanism = msgspec.structs.replace(machines.pendulum(), drives=drives or {})
    spec = machines.spec(mechanism, JOINTS, kind="target" if drives else "torque")
    parameters = select_parameters(nominal(mechanism, None), free)
    return HybridDynamics(spec, mechanism, EngineConfig(substeps=4), parameters)


def start(frames=6):
    q, qd = torch.tensor([[0.2, -0.1], [0.6, 0.3]], dtype=F64), torch.tensor([[1.0, 0.5], [-1.0, 0.0]], dtype=F64)
    time = torch.arange(frames, dtype=F64)
    targets = torch.stack([torch.sin(0.5 * time), 0.5 * torch.cos(0.3 * time)], -1).expand(2, frames, 2)
    return State(q, qd), targets


@pytest.mark.parametrize("by_frame", [False, True])
def test_laws_evaluated_once_a_frame_give_the_motion_of_pd_targets(by_frame):
    plant, behind = model(), model(PD)
    state, targets = start()
    kp, kd = torch.tensor([20.0, 8.0], dtype=F64), torch.tensor([1.0, 0.4], dtype=F64)
    path = behind.rollout(state, targets)
    carry, now, own = plant.begin(state), state, behind.begin(state)
    for frame in range(targets.shape[1]):
        carry, step = plant.step(carry, now, Control(target=targets[:, frame], kp=kp, kd=kd))
        if by_frame:
            own, other = behind.step(own, now, Control(target=targets[:, frame]))
            torch.testing.assert_close(other.state.q, step.state.q)
        now = step.state
        torch.testing.assert_close(path.q[:, frame + 1], now.q)
        torch.testing.assert_close(path.qd[:, frame + 1], now.qd)


def test_updates_split_frames_and_torques_stay_within_limits():
    state, targets = start()
    paths = {}
    for updates in (1, 2, 4):
        drives = {name: msgspec.structs.replace(drive, updates=updates) for name, drive in LIMITED.items()}
        paths[updates] = model(drives).rollout(state, targets).q
    torch.testing.assert_close(paths[4], model(LIMITED).rollout(state, targets).q)
    assert 1e-4 < float((paths[4] - paths[1]).abs().max().detach()) < 0.2
    assert (paths[2] - paths[4]).abs().max() < (paths[1] - paths[4]).abs().max()
    weak = {name: msgspec.structs.replace(drive, effort_limit=1e-6) for name, drive in LIMITED.items()}
    still = model().rollout(state, torch.zeros_like(targets))
    torch.testing.assert_close(model(weak).rollout(state, targets).q, still.q, atol=1e-6, rtol=0.0)


@pytest.mark.parametrize("kind", ["pd", "velocity_servo"])
def test_gradients_by_state_targets_quantities_and_gains(kind):
    drives = PD if kind == "pd" else dict.fromkeys(JOINTS, Drive(kind=kind, kd=0.5, updates=2))
    loop = model(drives, ("elbow.mass", "actuator.*.kd"))
    state, targets = start(3)
    parameters = loop.physical().detach().expand(2, -1)
    inputs = [x.clone().requires_grad_() for x in (state.q, state.qd, targets, parameters)]

    def path(q, qd, targets, parameters):
        after = loop.simulate(State(q, qd), targets, parameters, loop.weights.detach())
        return torch.cat([after.q, after.qd], -1)

    assert torch.autograd.gradcheck(path, inputs, eps=1e-6, atol=1e-6, rtol=1e-4)


def test_a_velocity_servo_pulls_towards_its_target_velocity():
    plant, behind = model(), model(dict.fromkeys(JOINTS, Drive(kind="velocity_servo", kd=0.5, updates=1)))
    state, targets = start(1)
    torque = 0.5 * (targets - state.qd[:, None])
    torch.testing.assert_close(behind.rollout(state, targets).qd, plant.rollout(state, torque).qd)


def test_a_model_without_the_drives_keeps_its_other_quantities():
    behind = model(PD, ("elbow.mass", "actuator.elbow.kp"))
    behind.physical.set_values(torch.tensor([1.3, 9.0], dtype=F64))
    plant = behind.with_drives({})
    assert [parameter.name for parameter in plant.physical.specs] == ["elbow.mass"]
    assert plant.spec.control_kind == "torque"
    torch.testing.assert_close(plant.physical().detach(), torch.tensor([1.3], dtype=F64))


def test_updates_that_do_not_divide_a_frame_are_refused():
    with pytest.raises(InputError, match=r"actuator.shoulder.updates is 3; valid: a divisor of the 4 substeps"):
        model(dict.fromkeys(JOINTS, Drive(kind="pd", kp=1.0, kd=0.0, updates=3)))


def test_the_stages_of_both_drives_are_kept():
    own = {"shoulder": Drive(delay=0.01, effort_limit=5.0, coulomb=0.1)}
    first = {"*": Drive(kind="pd", kp=3.0, kd=1.0, effort_limit=8.0, updates=2)}
    combined = combine_drives(own, first, JOINTS)
    assert combined["elbow"] == first["*"]
    assert combined["shoulder"] == Drive(
        kind="pd", kp=3.0, kd=1.0, effort_limit=5.0, updates=2, delay=0.01, coulomb=0.1
    )


@pytest.mark.parametrize(
    ("own", "leading", "message"),
    [
        ({}, {"shoulder": PD["shoulder"]}, "'elbow' has none; valid: one for each of shoulder, elbow"),
        ({}, {**PD, "wrist": PD["elbow"]}, "there is no driven joint 'wrist'"),
        ({}, {"*": Drive(kind="pd", kp=1.0)}, "is of kind 'pd' and has no kd"),
        ({"elbow": PD["elbow"]}, PD, "the robot's own drive of 'elbow' is of kind 'pd'; valid: torque"),
    ],
)
def test_drives_that_do_not_fit_are_refused(own, leading, message):
    with pytest.raises(InputError, match=message):
        combine_drives(own, leading, JOINTS)
