# SPDX-License-Identifier: Apache-2.0
"""What is said about a world model's honesty follows from its errors and its spread."""

import numpy as np
import torch

from neurodyn.data.store import Split
from neurodyn.evaluate.calibration import coverage_at, disagreement_at, unlike, with_noise
from neurodyn.evaluate.forecasts import Forecasts, windows_of
from tests import worlds


def forecasts(scale: float) -> Forecasts:
    """Errors drawn from a known spread, which differs from start to start, and is said to be `scale` times as large."""
    generator = torch.Generator().manual_seed(0)
    spread = torch.rand(4000, 1, 1, generator=generator).expand(-1, 3, 5) + 0.1
    error = spread * torch.randn(4000, 3, 5, generator=generator)
    return Forecasts(error, scale * spread, spread.clone(), error, np.zeros(4000, int))


def test_coverage_is_that_of_a_normal_distribution_where_the_spread_is_right():
    model = worlds.make_model()
    right, narrow = coverage_at(model, forecasts(1.0), 2), coverage_at(model, forecasts(0.25), 2)
    assert abs(right["1"] - 0.683) < 0.01
    assert abs(right["2"] - 0.954) < 0.01
    assert narrow["2"] < 0.45
    assert right["seconds"] == 2 * model.spec.dt


def test_disagreement_that_follows_the_error_is_seen():
    model, found = worlds.make_model(), forecasts(1.0)
    assert disagreement_at(model, found, 3)["rank_correlation"] > 0.5
    shuffled = Forecasts(found.error, found.spread, found.epistemic.flip(0), found.held, found.group)
    assert abs(disagreement_at(model, shuffled, 3)["rank_correlation"]) < 0.1


def test_members_that_differ_disagree_more_on_states_unlike_the_log():
    store, model = worlds.make_store(), worlds.exact_model(context=3)
    with torch.no_grad():  # members that differ in how velocities fade
        assert model.net.skip is not None
        model.net.skip.weight[1, 1] *= 1.1
    found = unlike(model, windows_of(store, Split.TEST, 6, 500), 3)
    assert 1.5 < found["2"]["ratio"] < 2.5
    assert found["3"]["ratio"] > found["2"]["ratio"]
    assert found["2"]["chance_above_usual"] > 0.55


def test_noise_on_the_history_is_an_error_of_the_forecast():
    store, model = worlds.make_store(), worlds.exact_model()
    found = with_noise(model, windows_of(store, Split.TEST, 10, 500), 0, [1, 10], 0)
    assert found["0"]["1"]["spreads"] < 1e-4
    assert 0.5 < found["0.1"]["1"]["spreads"] / (10 * found["0.01"]["1"]["spreads"]) < 2.0
