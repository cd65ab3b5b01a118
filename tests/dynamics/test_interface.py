# SPDX-License-Identifier: Apache-2.0
"""What all dynamics share: the protocol, and differences of angles."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from neurodyn.core.errors import InputError
from neurodyn.dynamics.analytic import AnalyticDynamics
from neurodyn.dynamics.batch import Control, Environment, State, Window, present_state
from neurodyn.dynamics.coordinates import wrap_angle
from neurodyn.dynamics.interface import Dynamics, EagerFrame
from tests import plant


def test_neural_and_analytic_dynamics_answer_the_same_calls():
    assert isinstance(plant.make_model("mlp"), Dynamics)
    assert isinstance(AnalyticDynamics(plant.robot()), Dynamics)
    assert plant.make_model("mlp").differentiable
    assert not AnalyticDynamics(plant.robot()).differentiable


def test_what_lacks_a_call_is_no_dynamics():
    class Half:
        spec, differentiable = None, True

        def step(self, carry, state, control): ...

    assert not isinstance(Half(), Dynamics)


@given(st.floats(-1e3, 1e3))
def test_wrapped_angles_are_the_same_angle_within_half_a_turn(angle: float):
    wrapped = float(wrap_angle(torch.tensor(angle, dtype=torch.float64)))
    assert -math.pi <= wrapped <= math.pi
    assert math.sin(wrapped) == pytest.approx(math.sin(angle), abs=1e-9)
    assert math.cos(wrapped) == pytest.approx(math.cos(angle), abs=1e-9)


def test_a_window_ends_in_the_present():
    q, qd = torch.randn(2, 5, 3), torch.randn(2, 5, 3)
    present = present_state(Window(q, qd, torch.zeros(2, 4, 1)))
    assert torch.equal(present.q, q[:, 4])
    assert torch.equal(present.qd, qd[:, 4])
    state = State(q[:, 0], qd[:, 0])
    assert present_state(state) is state


def test_a_frame_continues_with_its_history_in_another_environment():
    model = plant.make_model("gru")
    worlds = 3
    before, after = (model.resolve_environment(Environment(gravity=torch.tensor([0.0, 0.0, g]))) for g in (-9.8, -1.6))
    state = State(torch.zeros(worlds, 2), torch.ones(worlds, 2))
    control = Control(torque=torch.ones(worlds, 1))
    frame = EagerFrame(model, worlds, before, state.q)
    frame.torque.copy_(control.torque)
    frame.qd.copy_(state.qd)
    frame.run()
    frame.in_environment(after).run()
    carry, _ = model.step(model.begin(state, before), state, control)
    _, step = model.step(model.change_environment(carry, after), state, control)
    torch.testing.assert_close(frame.q_next, step.state.q, check_dtype=False)
    torch.testing.assert_close(frame.qd_next, step.state.qd, check_dtype=False)


def test_dynamics_that_stay_in_one_environment_refuse_another():
    analytic = AnalyticDynamics(plant.robot())
    with pytest.raises(
        InputError, match="dynamics of 'cartpole': a roll-out cannot change its environment; call begin again"
    ):
        analytic.change_environment(None, Environment())
