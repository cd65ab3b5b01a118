# SPDX-License-Identifier: Apache-2.0
"""Samples of what a robot may be, given its logs."""

import types

import pytest
import torch

from neurodyn.identify.confidence.certainty import posterior_sample


class Doubled:
    """Coordinates of which quantities are twice the values."""

    lower, upper = torch.tensor([-8.0, -8.0, 0.0], dtype=torch.float64), torch.full((3,), 8.0, dtype=torch.float64)
    quantities = ("a", "b", "c")

    def values(self, x):
        return 2.0 * x


def test_a_sample_has_the_widths_and_the_correlations_of_the_fit():
    correlation = torch.eye(3, dtype=torch.float64)
    correlation[0, 1] = correlation[1, 0] = -0.9
    analysis = types.SimpleNamespace(
        deviations=torch.tensor([0.1, torch.inf, 0.5], dtype=torch.float64),
        bound=torch.tensor([False, False, True]), correlation=correlation, degrees=10**6,
    )  # fmt: skip
    x = torch.tensor([1.0, -1.0, 0.0], dtype=torch.float64)
    sample = posterior_sample(Doubled(), x, analysis, count=20000)
    a, b, c = (sample[name] for name in "abc")
    assert (float(a.mean()), float(a.std())) == pytest.approx((2.0, 0.2), rel=0.02)
    assert (float(b.mean()), float(b.std())) == pytest.approx((-2.0, 2.0), rel=0.02)  # no wider than what was known
    assert float(torch.corrcoef(torch.stack([a, b]))[0, 1]) == pytest.approx(-0.9, abs=0.01)
    assert torch.equal(c, torch.zeros(20000))  # at its bound
    assert float(a.double().mean()) == pytest.approx(2.0, abs=1e-6)  # about the model's value
    analysis.degrees = 5
    assert float(posterior_sample(Doubled(), x, analysis, count=20000)["a"].std() / a.std()) == pytest.approx(
        1.225, 0.01
    )
    analysis.degrees = 10**6
    again = posterior_sample(Doubled(), x, analysis, count=20000)
    assert torch.equal(again["a"], a)
