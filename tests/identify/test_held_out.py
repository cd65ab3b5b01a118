# SPDX-License-Identifier: Apache-2.0
"""The floor that noise sets, and forecasts that start from the past: known noise of a known pendulum."""

import pytest
import torch

from neurodyn.dynamics.batch import Environment, RecordedEnvironments, State, Window
from neurodyn.identify.fit.readings import Noise
from neurodyn.identify.ladder.held_out import FromPast, horizon_errors, hybrid_forecast, noise_floor
from neurodyn.identify.ladder.initial_states import estimate_starts
from neurodyn.identify.result import HorizonErrors
from tests.identify.pendulum import SPEC, dynamics, windows

PAST, FRAMES = 8, 20


class _Nowhere(RecordedEnvironments):
    """Free space."""

    def __init__(self) -> None:
        pass

    def at(self, pose, parameters=None):
        return None


@pytest.fixture(scope="module")
def model():
    return dynamics()


def floor(model, size: float, start="past") -> dict[str, HorizonErrors]:
    recorded = windows(model, {}, count=64, frames=PAST + FRAMES)
    noise = Noise(torch.full((2,), size).double(), torch.full((2,), 10 * size).double())
    context = PAST if start == "past" else 0
    forecast = hybrid_forecast(model, start, context, noise, _Nowhere())
    return horizon_errors(noise_floor(forecast, model, recorded, PAST, noise, _Nowhere(), seed=0), (SPEC.dt, 0.4))


@pytest.mark.parametrize("start", ["past", "logged"])
def test_the_floor_is_of_the_size_of_the_noise_and_grows_with_it(model, start):
    small, large = floor(model, 1e-5, start), floor(model, 1e-3, start)
    mark = f"{SPEC.dt:g}"
    # The mean absolute difference of a state that is known to about the noise, and a measurement with that noise.
    assert 0.5e-3 < large[mark].errors.q_mean < 3e-3
    assert small["0.4"].errors.q_mean < 0.05 * large["0.4"].errors.q_mean


def test_more_of_the_past_lowers_the_floor_below_that_of_a_noisy_state(model):
    assert floor(model, 1e-3)["0.4"].errors.q_mean < 0.8 * floor(model, 1e-3, "logged")["0.4"].errors.q_mean


def test_a_model_that_starts_from_the_past_does_not_see_velocities_or_the_future(model):
    recorded = windows(model, {}, count=16, frames=PAST + FRAMES, noise=(1e-4, 1.0))
    noise = Noise(torch.full((2,), 1e-4).double(), torch.ones(2).double())
    wrapped = FromPast(model, PAST, noise)
    assert wrapped.spec.context == PAST
    past = Window(recorded.q[:, : PAST + 1], recorded.qd[:, : PAST + 1], recorded.control[:, :PAST])
    other = Window(past.q, past.qd + 5.0, past.torque)
    control = recorded.control[:, PAST:]
    path, again = wrapped.rollout(past, control), wrapped.rollout(other, control)
    assert torch.equal(path.q, again.q)
    assert (path.q[:, -1] - recorded.q[:, -1]).abs().mean() < 0.01
    expected = estimate_starts(model, recorded.after(PAST), PAST, "past", noise)
    assert torch.allclose(path.q[:, 0], expected.q[:, 0], atol=1e-9)
    state = State(recorded.q[:, 0], recorded.qd[:, 0])
    assert torch.equal(wrapped.rollout(state, control).q, model.rollout(state, control).q)


@pytest.mark.parametrize("strength", [1.62, 9.81])
def test_starts_from_the_past_are_estimated_where_the_log_took_place(model, strength):
    """A pendulum on the Moon, followed for so long that its state cannot be explained by the Earth's gravity."""
    where = Environment(gravity=torch.tensor([0.0, 0.0, -strength]).double())
    start = windows(model, {}, count=16, frames=PAST + FRAMES)
    path = model.rollout(State(start.q[:, 0], start.qd[:, 0]), start.control, where)
    noise = Noise(torch.full((2,), 1e-5).double(), torch.full((2,), 1e-4).double())
    past = Window(path.q[:, : PAST + 1], path.qd[:, : PAST + 1], start.control[:, :PAST])
    found = FromPast(model, PAST, noise).rollout(past, start.control[:, PAST:], where)
    assert (found.qd[:, 0] - path.qd[:, PAST]).abs().max() < 1e-3
