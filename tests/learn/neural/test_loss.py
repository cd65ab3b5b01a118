# SPDX-License-Identifier: Apache-2.0
"""Losses against sums done by hand, on a model that predicts constant velocity."""

import pytest
import torch
from torch import Tensor

from neurodyn.data.windows import Windows
from neurodyn.dynamics.coordinates import wrap_angle
from neurodyn.dynamics.neural.model import NeuralDynamics
from neurodyn.learn.neural.settings import Phase
from neurodyn.learn.neural.trainer import LossPart, LossScale, _mean, _weights, training_loss
from tests import plant

SCALE = LossScale(torch.tensor([0.1, 0.2]).double(), torch.tensor([0.5, 2.0]).double())
LOSSES = {"absolute": torch.abs, "squared": torch.square}


@pytest.fixture(scope="module", params=["mlp", "gru"])
def coasting(request: pytest.FixtureRequest) -> NeuralDynamics:
    """A model whose output is zero: velocities stay, positions follow."""
    model = plant.make_model(request.param)
    with torch.no_grad():
        for parameter in model.predictor.parameters():
            parameter.zero_()
    model.predictor.denormaliser.std.fill_(1.0)
    model.predictor.denormaliser.gain.fill_(1.0)
    return model


def make_batch(frames: int, worlds: int = 4) -> Windows:
    generator = torch.Generator().manual_seed(3)
    draw = lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64)  # noqa: E731
    # The hinge sits near half a turn, so that an error that is not wrapped is a large one.
    q = 0.1 * draw(worlds, frames + 1, 2) + torch.tensor([0.0, torch.pi])
    q[..., 1] = wrap_angle(q[..., 1])
    return Windows(q, draw(worlds, frames + 1, 2), draw(worlds, frames, 1))


def coasted(batch: Windows, start: int, end: int) -> Tensor:
    return batch.q[:, start] + (end - start) * float(torch.tensor(plant.robot().dt)) * batch.qd[:, start]


@pytest.mark.parametrize("loss", list(LOSSES))
def test_teacher_forcing_is_the_mean_over_frames_and_normalised_outputs(coasting: NeuralDynamics, loss: str):
    batch, phase = make_batch(5), Phase(share=1, rate=1, batch=4, frames=5, loss=loss)
    kappa, dt = coasting.encoding.kappa, coasting.encoding.dt
    dqd = batch.qd[:, 1:] - batch.qd[:, :-1]
    dq = batch.q[:, 1:] - batch.q[:, :-1]
    dq[..., 1] = wrap_angle(dq[..., 1])
    residual = dq - dt * (batch.qd[:, :-1] + kappa * dqd)
    expected = LOSSES[loss](torch.cat([dqd, residual], -1)).mean()
    torch.testing.assert_close(training_loss(coasting, [LossPart(batch)], phase, SCALE), expected[None])


@pytest.mark.parametrize("context", [0, 2])
@pytest.mark.parametrize("loss", list(LOSSES))
def test_a_forecast_is_scored_in_units_of_one_frames_change(coasting: NeuralDynamics, loss: str, context: int):
    batch, phase = make_batch(context + 4), Phase(share=1, rate=1, batch=4, forecast=4, context=context, loss=loss)
    total = torch.zeros((), dtype=torch.float64)
    for end in range(context + 1, context + 5):
        position = coasted(batch, context, end) - batch.q[:, end]
        position[:, 1] = wrap_angle(position[:, 1])
        velocity = batch.qd[:, context] - batch.qd[:, end]
        total = total + LOSSES[loss](torch.cat([position / SCALE.dq, velocity / SCALE.dqd], -1)).mean()
    torch.testing.assert_close(training_loss(coasting, [LossPart(batch)], phase, SCALE), total[None] / 4)


@pytest.mark.parametrize("kind", list(plant.NETS))
def test_what_the_model_itself_predicted_costs_nothing(kind: str):
    model = plant.make_model(kind)
    with torch.no_grad():
        torques = plant.make_torques(4, 6)
        own = model.rollout(plant.make_states(4), torques)
    batch = Windows(own.q, own.qd, torques)
    forecast = Phase(share=1, rate=1, batch=4, forecast=6)
    assert float(training_loss(model, [LossPart(batch)], forecast, SCALE).detach()) < 1e-12
    assert (
        float(training_loss(model, [LossPart(batch)], Phase(share=1, rate=1, batch=4, frames=6), SCALE).detach()) < 1e-8
    )


def test_a_forecast_uses_the_history_before_it():
    model = plant.make_model("transformer")
    batch = make_batch(8)
    phase = Phase(share=1, rate=1, batch=4, forecast=4, context=4)
    other = Windows(batch.q.clone(), batch.qd.clone(), batch.control.clone())
    other.control[:, 1] += 3.0
    losses = [float(training_loss(model, [LossPart(b)], phase, SCALE).detach()) for b in (batch, other)]
    assert losses[0] != losses[1]


def test_a_forecast_is_differentiated_through_all_its_frames():
    """The gradient of the whole forecast is not that of frames taken by themselves."""
    model, batch = plant.make_model("mlp"), make_batch(3)
    phase = Phase(share=1, rate=1, batch=4, forecast=3, loss="squared")
    weight = model.predictor.skip.weight
    loss = training_loss(model, [LossPart(batch)], phase, SCALE)
    (gradient,) = torch.autograd.grad(loss, weight)
    h, direction = 1e-6, torch.randn_like(weight)
    ends = []
    for sign in (1, -1):
        with torch.no_grad():
            weight.add_(sign * h * direction)
            ends.append(float(training_loss(model, [LossPart(batch)], phase, SCALE)))
            weight.sub_(sign * h * direction)
    assert (ends[0] - ends[1]) / (2 * h) == pytest.approx(float((gradient * direction).sum()), rel=1e-5)


def test_quiet_windows_count_as_much_as_violent_ones_where_asked_for():
    qd = torch.zeros(2, 3, 2, dtype=torch.float64)
    qd[0, 1:] = torch.tensor([[0.5, 2.0], [1.0, 4.0]])  # one spread of change in each frame; the other rests
    batch = Windows(torch.zeros_like(qd), qd, torch.zeros(2, 2, 1, dtype=torch.float64))
    errors = torch.tensor([1.0, 0.1], dtype=torch.float64)
    assert float(_mean(errors, None)) == pytest.approx(0.55)
    balanced = float(_mean(errors, _weights([batch], 0.25, SCALE)))
    assert balanced == pytest.approx((1.0 / 1.25 + 0.1 / 0.25) / (1 / 1.25 + 1 / 0.25))
    with pytest.raises(ValueError, match="balance is 0"):
        Phase(share=1, rate=1, batch=2, balance=0.0)
