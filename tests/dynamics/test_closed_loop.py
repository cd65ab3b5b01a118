# SPDX-License-Identifier: Apache-2.0
"""A model under its controller: the loop of `Control` with PD targets, differentiable by targets and gains."""

import pytest
import torch

from neurodyn.core.description.drive import Controller
from neurodyn.core.description.parameter import Parameter, select_parameters
from neurodyn.core.errors import InputError
from neurodyn.dynamics.batch import Control, State
from neurodyn.dynamics.hybrid.closed_loop import ClosedLoop
from neurodyn.dynamics.hybrid.model import HybridDynamics
from neurodyn.multibody.engine import EngineConfig, nominal
from tests.multibody import machines

F64 = torch.float64
JOINTS = ("shoulder", "elbow")
PD = Controller(kp={"shoulder": 20.0, "elbow": 8.0}, kd={"shoulder": 1.0, "elbow": 0.4})
FREE = (
    Parameter(name="controller.elbow.kp", nominal=8.0, lower=0.0),
    Parameter(name="controller.shoulder.kd", nominal=1.0, lower=0.0),
)


@pytest.fixture(scope="module")
def plant():
    mechanism = machines.pendulum()
    free = select_parameters(nominal(mechanism, None), ["elbow.mass"])
    return HybridDynamics(machines.spec(mechanism, JOINTS), mechanism, EngineConfig(substeps=4), free)


def given(frames=6):
    q, qd = torch.tensor([[0.2, -0.1], [0.6, 0.3]], dtype=F64), torch.tensor([[1.0, 0.5], [-1.0, 0.0]], dtype=F64)
    time = torch.arange(frames, dtype=F64)
    targets = torch.stack([torch.sin(0.5 * time), 0.5 * torch.cos(0.3 * time)], -1).expand(2, frames, 2)
    return State(q, qd), targets


def test_a_loop_is_what_pd_targets_do_frame_by_frame(plant):
    state, targets = given()
    path, torque = ClosedLoop(plant, PD).driven(state, targets, plant.physical(), plant.weights)
    kp, kd = torch.tensor([20.0, 8.0], dtype=F64), torch.tensor([1.0, 0.4], dtype=F64)
    carry, now = plant.begin(state), state
    for frame in range(targets.shape[1]):
        carry, step = plant.step(carry, now, Control(target=targets[:, frame], kp=kp, kd=kd))
        torch.testing.assert_close(torque[:, frame], kp * (targets[:, frame] - now.q) - kd * now.qd)
        now = step.state
        torch.testing.assert_close(path.q[:, frame + 1], now.q)
        torch.testing.assert_close(path.qd[:, frame + 1], now.qd)


def test_torques_stay_within_limits_and_updates_split_frames(plant):
    state, targets = given()
    limited = Controller(kp=20.0, kd=1.0, limit={"shoulder": 0.5, "elbow": 100.0}, updates=4)
    path, torque = ClosedLoop(plant, limited).driven(state, targets, plant.physical(), plant.weights)
    assert torque[..., 0].abs().max() == 0.5
    assert 0.5 < torque[..., 1].abs().max() < 100.0
    once = Controller(kp=20.0, kd=1.0, limit=limited.limit)
    other = ClosedLoop(plant, once).rollout(state, targets)
    assert 1e-4 < float((path.q - other.q).abs().max().detach()) < 0.2
    with pytest.raises(InputError, match="updates is 3; valid: a divisor of the 4 substeps"):
        ClosedLoop(plant, Controller(updates=3))


@pytest.mark.parametrize("kind", ["pd", "velocity"])
def test_gradients_by_state_targets_quantities_and_gains(plant, kind):
    controller = PD if kind == "pd" else Controller(kind="velocity", kd=0.5)
    free = FREE if kind == "pd" else ()
    loop = ClosedLoop(plant, controller, free)
    state, targets = given(3)
    parameters = loop.physical().detach().expand(2, -1)
    inputs = [x.clone().requires_grad_() for x in (state.q, state.qd, targets, parameters)]

    def path(q, qd, targets, parameters):
        found, torque = loop.driven(State(q, qd), targets, parameters, plant.weights.detach())
        return torch.cat([found.q, found.qd], -1), torque

    assert torch.autograd.gradcheck(path, inputs, eps=1e-6, atol=1e-6, rtol=1e-4)


def test_a_loop_settles_into_its_plant(plant):
    loop = ClosedLoop(plant, PD, FREE)
    before = plant.physical().detach().clone()
    loop.physical.set_values(torch.tensor([1.3, 9.0, 2.0], dtype=F64))
    assert loop.settle() is plant
    torch.testing.assert_close(plant.physical().detach(), torch.tensor([1.3], dtype=F64))
    plant.physical.set_values(before)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"kind": "mpc"}, "unknown controller 'mpc'; valid: pd, velocity"),
        ({"kp": {"shoulder": 1.0}}, "kp has no 'elbow'; valid: one for each of shoulder, elbow"),
        ({"kd": {"wrist": 1.0}}, "kd names 'wrist', which is not driven"),
        ({"kp": -1.0}, "kp is -1.0; valid: finite numbers of at least 0"),
        ({"kp": float("inf")}, "kp is inf"),
        ({"kind": "velocity", "kp": 1.0}, "kp is given, but 'velocity' has kd alone"),
        ({"updates": 0}, "updates is 0; valid: at least 1"),
    ],
)
def test_controllers_that_make_no_sense_are_refused(plant, wrong, message):
    with pytest.raises((InputError, ValueError), match=message):
        ClosedLoop(plant, Controller(**wrong))
