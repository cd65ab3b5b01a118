# SPDX-License-Identifier: Apache-2.0
"""Torques and PD targets become frame-start torques, in the order of the controls."""

import math

import pytest
import torch

from neurodyn.core.description.spec import JointSpec, StateSpec
from neurodyn.core.errors import InputError
from neurodyn.dynamics.batch import Control, State
from neurodyn.dynamics.control import frame_torque
from neurodyn.robots import load
from tests import plant

SPEC = StateSpec(
    robot="probe",
    joints=(
        JointSpec(name="slide", kind="prismatic"),
        JointSpec(name="hinge", kind="revolute", lower=-4.0, upper=4.0),
        JointSpec(name="wheel", kind="revolute", continuous=True),
    ),
    controls=("wheel", "slide"),
    dt=0.01,
)
STATE = State(torch.tensor([[0.5, 1.0, 3.0], [0.0, 0.0, -3.0]]), torch.tensor([[2.0, 9.0, -1.0], [0.0, 0.0, 4.0]]))


def test_torques_pass_through():
    torque = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    assert frame_torque(SPEC, STATE, Control(torque=torque)) is torque


def test_no_control_is_no_torque():
    assert torch.equal(frame_torque(SPEC, STATE, Control()), torch.zeros(2, 2))


def test_pd_control_follows_the_order_of_the_controls_and_adds_to_torques():
    target = torch.tensor([[3.5, 1.0], [-3.0, 0.0]])
    kp, kd = torch.tensor([10.0, 100.0]), torch.tensor([2.0, 3.0])
    torque = torch.tensor([[1.0, 1.0], [0.0, 0.0]])
    found = frame_torque(SPEC, STATE, Control(torque=torque, target=target, kp=kp, kd=kd))
    expected = [[1.0 + 10 * 0.5 - 2 * -1.0, 1.0 + 100 * 0.5 - 3 * 2.0], [-2 * 4.0, 0.0]]
    torch.testing.assert_close(found, torch.tensor(expected))


def test_a_continuous_joint_takes_the_short_way_round():
    target = torch.tensor([[-3.0, 0.5], [3.0, 0.0]])
    found = frame_torque(SPEC, STATE, Control(target=target, kp=torch.tensor([10.0, 100.0])))
    short = 2 * math.pi - 6.0
    torch.testing.assert_close(found, torch.tensor([[10 * short, 0.0], [-10 * short, 0.0]]))


def test_a_joint_with_ends_never_goes_round():
    spec = StateSpec(robot="probe", joints=SPEC.joints, controls=("hinge",), dt=0.01)
    state = State(torch.tensor([[0.0, 3.5, 0.0]]), torch.zeros(1, 3))
    found = frame_torque(spec, state, Control(target=torch.tensor([[-3.5]]), kp=torch.ones(1)))
    torch.testing.assert_close(found, torch.tensor([[-7.0]]))


def test_gradients_reach_target_gains_and_state():
    q, qd = STATE.q.double().requires_grad_(), STATE.qd.double().requires_grad_()
    target = torch.tensor([[1.0, 1.0], [-2.0, 0.3]], dtype=torch.float64, requires_grad=True)
    kp, kd = (torch.tensor(x, dtype=torch.float64, requires_grad=True) for x in ([10.0, 100.0], [2.0, 3.0]))

    def torque(q, qd, target, kp, kd):
        return frame_torque(SPEC, State(q, qd), Control(target=target, kp=kp, kd=kd))

    assert torch.autograd.gradcheck(torque, (q, qd, target, kp, kd))


def test_torques_of_another_width_are_refused_in_one_line():
    still = State(torch.zeros(4, 2), torch.zeros(4, 2))
    with pytest.raises(InputError, match=r"torques for 'cartpole' have shape \[4, 3\]; valid: 1 in the last axis"):
        frame_torque(
            load("cartpole").spec, State(torch.zeros(4, 2), torch.zeros(4, 2)), Control(torque=torch.zeros(4, 3))
        )
    model = plant.make_model("mlp", torch.float32)
    with pytest.raises(InputError, match="valid: 1 in the last axis"):
        model.rollout(still, torch.zeros(4, 5, 2))
