# SPDX-License-Identifier: Apache-2.0
"""Neural dynamics: one function of state, torque and history, with exact gradients and no hidden state."""

import pytest
import torch
from torch import Tensor
from torch.func import functional_call

from neurodyn.core.description.mechanism import Fingerprint
from neurodyn.core.errors import InputError
from neurodyn.dynamics.batch import Control, Environment, State, Window
from neurodyn.dynamics.neural.base_prediction import BasePrediction
from neurodyn.dynamics.neural.model import NeuralDynamics
from tests import plant

KINDS = list(plant.NETS)
WORLDS, FRAMES = 3, 8


@pytest.fixture(params=KINDS)
def model(request: pytest.FixtureRequest) -> NeuralDynamics:
    return plant.make_model(request.param)


def make_window(model: NeuralDynamics, frames: int, worlds: int = WORLDS) -> Window:
    """History that the model itself would have predicted, slightly off, as recorded history is."""
    state = plant.make_states(worlds, next(model.parameters()).dtype, seed=5)
    torque = plant.make_torques(worlds, frames, state.q.dtype, seed=6)
    with torch.no_grad():
        past = model.rollout(state, torque)
    return Window(past.q + 0.01, past.qd - 0.01, torque)


def run(model: NeuralDynamics, carry, state: State, torques: Tensor, *, fast: bool = False) -> Tensor:
    advance = model.step_ if fast else model.step
    states = []
    for torque in torques.unbind(1):
        carry, step = advance(carry, state, Control(torque=torque))
        state = step.state
        states.append(torch.cat([state.q, state.qd], -1))
    return torch.stack(states, 1)


def test_gradients_of_a_rollout_with_respect_to_state_and_torques(model: NeuralDynamics):
    state, torques = plant.make_states(2), plant.make_torques(2, 6)

    def end(q: Tensor, qd: Tensor, torques: Tensor) -> Tensor:
        trajectory = model.rollout(State(q, qd), torques)
        return torch.cat([trajectory.q[:, 1:], trajectory.qd[:, 1:]], -1)

    inputs = tuple(x.clone().requires_grad_() for x in (state.q, state.qd, torques))
    assert torch.autograd.gradcheck(end, inputs, rtol=1e-5, atol=1e-7)


def test_gradients_of_a_rollout_with_respect_to_weights_are_central_differences(model: NeuralDynamics):
    state, torques = plant.make_states(2), plant.make_torques(2, 6)

    def loss(weights: dict[str, Tensor]) -> Tensor:
        class Rollout(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.model = model

            def forward(self) -> Tensor:
                trajectory = self.model.rollout(state, torques)
                return (trajectory.q[:, -1].square().sum() + trajectory.qd.square().mean()).reshape(())

        return functional_call(Rollout(), {f"model.{name}": w for name, w in weights.items()}, ())

    weights = {name: p.detach().clone().requires_grad_() for name, p in model.named_parameters()}
    gradients = torch.autograd.grad(loss(weights), list(weights.values()))
    generator, h = torch.Generator().manual_seed(0), 1e-6
    for (name, weight), gradient in zip(weights.items(), gradients, strict=True):
        direction = torch.randn(weight.shape, generator=generator, dtype=weight.dtype)
        ends = [float(loss({**weights, name: (weight + s * h * direction).detach()}).detach()) for s in (1, -1)]
        slope = (ends[0] - ends[1]) / (2 * h)
        assert slope == pytest.approx(float((gradient * direction).sum()), rel=2e-5, abs=1e-7), name


def test_every_weight_is_reached_by_the_gradient(model: NeuralDynamics):
    trajectory = model.rollout(plant.make_states(2), plant.make_torques(2, 12))
    trajectory.q.sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().max() > 0, name


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 2e-5)])
@pytest.mark.parametrize("kind", KINDS)
def test_the_fast_path_is_the_differentiable_path(kind: str, dtype: torch.dtype, tolerance: float):
    model = plant.make_model(kind, dtype)
    state, torques = plant.make_states(WORLDS, dtype), plant.make_torques(WORLDS, 3 * FRAMES, dtype)
    slow = run(model, model.begin(state), state, torques)
    fast = run(model, model.begin(state), state, torques, fast=True)
    torch.testing.assert_close(fast, slow.detach(), rtol=tolerance, atol=tolerance)


def test_a_rollout_takes_the_fast_path_only_where_nothing_asks_for_gradients(model: NeuralDynamics):
    state, torques = plant.make_states(WORLDS), plant.make_torques(WORLDS, FRAMES)
    tracked = model.rollout(state, torques)
    assert tracked.q.requires_grad
    model.requires_grad_(False)
    plain = model.rollout(state, torques)
    assert not plain.q.requires_grad
    torch.testing.assert_close(plain.q, tracked.q.detach())
    assert model.rollout(state, torques.clone().requires_grad_()).q.requires_grad
    assert model.rollout(State(state.q.clone().requires_grad_(), state.qd), torques).q.requires_grad


def test_a_rollout_is_its_steps_and_begins_with_the_given_state(model: NeuralDynamics):
    state, torques = plant.make_states(WORLDS), plant.make_torques(WORLDS, FRAMES)
    trajectory = model.rollout(state, torques)
    assert trajectory.q.shape == (WORLDS, FRAMES + 1, 2)
    assert torch.equal(trajectory.q[:, 0], state.q)
    assert torch.equal(trajectory.qd[:, 0], state.qd)
    steps = run(model, model.begin(state), state, torques)
    assert torch.equal(torch.cat([trajectory.q, trajectory.qd], -1)[:, 1:], steps)


def test_teacher_forcing_predicts_what_stepping_along_true_states_predicts(model: NeuralDynamics):
    window = make_window(model, 12)
    _, whole = model(window.q[:, :-1], window.qd[:, :-1], window.torque)
    carry = model.begin(State(window.q[:, 0], window.qd[:, 0]))
    for t in range(12):
        state = State(window.q[:, t], window.qd[:, t])
        carry, step = model.step(carry, state, Control(torque=window.torque[:, t]))
        target = model.encoding.target(BasePrediction(state.q, state.qd), step.state.q, step.state.qd)
        torch.testing.assert_close(model.predictor.normalise_target(target), whole[:, t], rtol=1e-8, atol=1e-8)


def test_two_futures_can_be_tried_from_one_past(model: NeuralDynamics):
    state, torques = plant.make_states(WORLDS), plant.make_torques(WORLDS, FRAMES)
    carry = model.begin(make_window(model, 5))
    first = run(model, carry, state, torques)
    run(model, carry, state, -torques)
    again = run(model, carry, state, torques)
    assert torch.equal(first, again)


def test_the_state_that_is_passed_in_wins(model: NeuralDynamics):
    """A user who edits the state gets the same prediction as one who never had the other state."""
    window = make_window(model, 5)
    edited = plant.make_states(WORLDS, seed=9)
    torque = plant.make_torques(WORLDS, 1)[:, 0]
    _, from_edit = model.step(model.begin(window), edited, Control(torque=torque))
    _, untouched = model.step(model.begin(window), window.present, Control(torque=torque))
    assert not torch.allclose(from_edit.state.q, untouched.state.q)
    # q' - q and qd' - qd are predicted, so that a mere shift of the cart shifts the prediction alone.
    shifted = State(window.present.q + torch.tensor([0.25, 0.0]), window.present.qd)
    _, moved = model.step(model.begin(window), shifted, Control(torque=torque))
    torch.testing.assert_close(moved.state.q - untouched.state.q, torch.tensor([[0.25, 0.0]]).double().expand(3, 2))


def test_beginning_with_a_window_is_stepping_through_it(model: NeuralDynamics):
    window = make_window(model, 7)
    carry = model.begin(State(window.q[:, 0], window.qd[:, 0]))
    for t in range(7):
        state = State(window.q[:, t], window.qd[:, t])
        carry, _ = model.step(carry, state, Control(torque=window.torque[:, t]))
    torques = plant.make_torques(WORLDS, FRAMES)
    stepped = run(model, carry, window.present, torques)
    begun = run(model, model.begin(window), window.present, torques)
    torch.testing.assert_close(begun, stepped, rtol=1e-12, atol=1e-12)


def test_history_changes_predictions_exactly_where_the_network_has_a_memory(model: NeuralDynamics):
    window, torques = make_window(model, 7), plant.make_torques(WORLDS, 1)
    with_past = run(model, model.begin(window), window.present, torques)
    without = run(model, model.begin(window.present), window.present, torques)
    assert torch.equal(with_past, without) == (model.spec.context == 0)


@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize("context", ["state", "window"])
def test_a_masked_reset_leaves_other_worlds_bitwise_alone(model: NeuralDynamics, context: str, fast: bool):
    model.requires_grad_(False)
    window, torques = make_window(model, 6), plant.make_torques(WORLDS, FRAMES)
    mask = torch.tensor([False, True, False])
    past = make_window(model, 4)
    anew = past if context == "window" else past.present
    undisturbed = run(model, model.begin(window), window.present, torques, fast=fast)
    q, qd = (
        torch.where(mask[:, None], b, a)
        for a, b in ((window.present.q, past.present.q), (window.present.qd, past.present.qd))
    )
    after = run(model, model.reset(model.begin(window), anew, mask), State(q, qd), torques, fast=fast)
    assert torch.equal(after[~mask], undisturbed[~mask])
    fresh = run(model, model.begin(anew), past.present, torques, fast=fast)
    torch.testing.assert_close(after[mask], fresh[mask], rtol=1e-10, atol=1e-10)


def test_a_reset_of_no_world_changes_nothing(model: NeuralDynamics):
    window, torques = make_window(model, 6), plant.make_torques(WORLDS, FRAMES)
    carry = model.begin(window)
    nothing = model.reset(carry, window.present, torch.zeros(WORLDS, dtype=torch.bool))
    assert torch.equal(run(model, nothing, window.present, torques), run(model, carry, window.present, torques))


def test_a_world_that_left_the_finite_does_not_spoil_the_one_that_follows_it(model: NeuralDynamics):
    """After a reset, what a diverged world left in its memory has no effect."""
    model.requires_grad_(False)
    state, torques = plant.make_states(WORLDS), plant.make_torques(WORLDS, FRAMES)
    mask = torch.tensor([True, False, False])
    bad = State(torch.where(mask[:, None], torch.nan, state.q), state.qd)
    carry, _ = model.step(model.begin(state), bad, Control(torque=torques[:, 0]))
    after = run(model, model.reset(carry, state, mask), state, torques)
    assert torch.isfinite(after[mask]).all()
    fresh = run(model, model.begin(state), state, torques)
    torch.testing.assert_close(after[mask], fresh[mask], rtol=1e-10, atol=1e-10)


def test_worlds_do_not_see_each_other(model: NeuralDynamics):
    state, torques = plant.make_states(WORLDS), plant.make_torques(WORLDS, FRAMES)
    together = model.rollout(state, torques)
    for world in range(WORLDS):
        rows = slice(world, world + 1)
        alone = model.rollout(State(state.q[rows], state.qd[rows]), torques[rows])
        torch.testing.assert_close(alone.q, together.q[rows], rtol=1e-9, atol=1e-9)


def test_pd_targets_are_the_torques_that_they_mean(model: NeuralDynamics):
    state = plant.make_states(WORLDS)
    target, kp, kd = torch.full((WORLDS, 1), 0.3).double(), torch.tensor([5.0]).double(), torch.tensor([2.0]).double()
    torque = kp * (target - state.q[:, :1]) - kd * state.qd[:, :1]
    _, driven = model.step(model.begin(state), state, Control(target=target, kp=kp, kd=kd))
    _, direct = model.step(model.begin(state), state, Control(torque=torque))
    torch.testing.assert_close(driven.state.qd, direct.state.qd)


def test_the_context_that_helps_is_declared():
    assert plant.make_model("mlp").spec.context == 0
    assert plant.make_model("gru").spec.context == 4
    assert plant.make_model("transformer").spec.context == 4  # two blocks that each look two frames back


def test_another_gravity_is_refused_and_its_own_is_not():
    model = plant.make_model("mlp")
    model.fingerprint = Fingerprint(joints=(), bodies=(), gravity=(0.0, 0.0, -9.81))
    state = plant.make_states(WORLDS)
    model.begin(state, Environment(gravity=torch.tensor([0.0, 0.0, -9.81])))
    model.begin(state, Environment(gravity=torch.tensor([[0.0, 0.0, -9.81]]).expand(WORLDS, 3)))
    with pytest.raises(InputError, match="gravity"):
        model.begin(state, Environment(gravity=torch.tensor([0.0, 0.0, -1.62])))
