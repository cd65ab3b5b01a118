# SPDX-License-Identifier: Apache-2.0
"""Verdicts on a world model's calibration follow from its errors and its standard deviation."""

from dataclasses import replace

import torch

from neurodyn.data.header import Split
from neurodyn.dynamics.batch import Trajectory
from neurodyn.evaluate.calibration import ColumnErrors, coverage_at, out_of_distribution, ranks_at, with_noise
from neurodyn.evaluate.rollouts import log_starts
from tests import worlds


def forecasts(scale: float) -> ColumnErrors:
    """Errors drawn from a known deviation, which differs from start to start, and is said to be `scale` as large."""
    generator = torch.Generator().manual_seed(0)
    deviation = 0.5 * torch.rand(4000, 1, 1, generator=generator).expand(-1, 3, 5) + 0.05
    error = torch.zeros(4000, 4, 5)
    error[:, 1:] = deviation * torch.randn(4000, 3, 5, generator=generator)
    zero, parts = torch.zeros(4000, 4, 5), (2, 2, 1)
    path = Trajectory(*error.split(parts, -1), aleatoric=zero[:, 1:], epistemic=scale * deviation)
    return ColumnErrors.of(worlds.make_model(), path, Trajectory(*zero.split(parts, -1)))


def test_coverage_is_that_of_a_normal_distribution_where_the_deviation_is_right():
    right, narrow = coverage_at(forecasts(1.0), 2), coverage_at(forecasts(0.25), 2)
    assert right.one_sigma is not None
    assert right.two_sigma is not None
    assert narrow.two_sigma is not None
    assert abs(right.one_sigma - 0.683) < 0.01
    assert abs(right.two_sigma - 0.954) < 0.01
    assert narrow.two_sigma < 0.45
    assert right.seconds == 2 * worlds.SPEC.dt


def test_a_deviation_that_follows_the_error_is_seen():
    found = forecasts(1.0)
    assert (ranks_at(found, 3).epistemic_rank or 0) > 0.5
    path = replace(found.compared.predicted, epistemic=found.epistemic.flip(0))
    other = ColumnErrors.of(worlds.make_model(), path, found.compared.truth)
    assert abs(ranks_at(other, 3).epistemic_rank or 1) < 0.1


def test_members_that_differ_disagree_more_out_of_distribution():
    store, model = worlds.make_store(), worlds.exact_model(context=3)
    with torch.no_grad():  # members that differ in how velocities fade
        assert model.net.skip is not None
        model.net.skip.weight[1, 1] *= 1.1
    found = out_of_distribution(model, store, log_starts(store, Split.TEST, 3, 3)[0]).by_factor
    assert 1.5 < found["2"].ratio < 2.5
    assert found["3"].ratio > found["2"].ratio
    assert found["2"].chance_above_usual > 0.55


def test_noise_on_the_history_is_an_error_of_the_forecast():
    store, model = worlds.make_store(), worlds.exact_model()
    found = with_noise(model, store, log_starts(store, Split.TEST, 0, 10)[0], [1, 10], 0)
    clean, little, much = (found[size].marks["1"].scaled or 0.0 for size in ("0", "0.01", "0.1"))
    assert clean < 1e-4
    assert 0.5 < much / (10 * little) < 2.0
