# SPDX-License-Identifier: Apache-2.0
"""How far returns in dynamics are apart, and how well that is known."""

import pytest
import torch

from neurodyn.policy.evaluation import reward_errors


def test_each_two_are_compared_and_the_simulator_is_the_reference():
    model, real, other = (torch.tensor(x) for x in ([13.0, 15.0], [10.0, 20.0], [0.0, 0.0]))
    found = reward_errors({"model": [model], "analytic": [real], "other": [other]})
    assert [(pair.a, pair.b) for pair in found] == [("analytic", "model"), ("analytic", "other"), ("model", "other")]
    assert found[0].difference == pytest.approx(-1.0)
    assert found[0].relative == pytest.approx(1.0 / 15.0)
    assert found[0].by_episode == pytest.approx(4.0)


def test_a_difference_that_all_episodes_share_is_known_exactly():
    real = [torch.full((8,), 10.0), torch.full((8,), 10.0)]
    (found,) = reward_errors({"analytic": real, "model": [1.1 * one for one in real]})
    assert found.interval == pytest.approx((0.1, 0.1), abs=1e-6)


def test_an_interval_has_the_width_of_the_mean_of_paired_differences():
    generator = torch.Generator().manual_seed(0)
    real = 100.0 + 10.0 * torch.randn(400, generator=generator)
    noise = 5.0 * torch.randn(400, generator=generator)
    (found,) = reward_errors({"analytic": [real], "model": [real + 2.0 + noise]})
    low, high = found.interval
    assert low < found.difference / float(real.mean()) < high
    assert high - low == pytest.approx(2 * 1.96 * 5.0 / 400**0.5 / 100.0, rel=0.15)


def test_policies_that_differ_widen_the_interval():
    real = [torch.full((50,), 10.0)] * 3
    apart = [torch.full((50,), value) for value in (8.0, 10.0, 12.0)]
    (found,) = reward_errors({"analytic": real, "model": apart})
    assert found.relative == pytest.approx(0.0, abs=1e-6)
    assert found.interval[0] < -0.1 < 0.1 < found.interval[1]


def test_episodes_with_other_starts_are_not_paired():
    generator = torch.Generator().manual_seed(0)
    real = 100.0 + 10.0 * torch.randn(400, generator=generator)
    model = real + 2.0  # would be known exactly from the same starts
    same, other, logs = reward_errors({"analytic": [real], "model": [model], "log": [model]}, logged=["log"])
    assert (same.paired, other.paired, logs.paired) == (True, False, False)
    assert same.interval[1] - same.interval[0] < 2e-3
    assert other.interval[1] - other.interval[0] == pytest.approx(2 * 1.96 * 10.0 * 2**0.5 / 400**0.5 / 100.0, rel=0.15)
    assert other.difference == same.difference
    assert same.by_episode == pytest.approx(2.0, rel=1e-5)
    assert other.by_episode is None


def test_one_episode_has_no_interval():
    (found,) = reward_errors({"analytic": [torch.ones(1)], "model": [torch.ones(1)]})
    assert found.interval is None
