# SPDX-License-Identifier: Apache-2.0
"""What a motion is expected to tell, and for which quantity it is designed."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from neurodyn.identify.motion.expected_widths import ExpectedWidths


def widths(information: Tensor, deviations: list[float], moved: list[float] | None = None, **more: Any):
    """Return expected widths where a fit to both logs sees all of both."""
    n = len(deviations)
    analysis = SimpleNamespace(
        information=information.double(), deviations=torch.tensor(deviations).double(), variance=1.0,
        moved=None if moved is None else torch.tensor(moved).double(), bound=torch.zeros(n, dtype=torch.bool),
        degrees=14, unexplained=0.0,
    )  # fmt: skip
    unseen = more.pop("unseen", None)
    analysis.__dict__.update(more)
    return ExpectedWidths(analysis, lambda seconds: (1.0, 1.0, 8.0), unseen)


def told(*values: float) -> Tensor:
    return torch.diag(torch.tensor(values)).double()


def test_noise_averages_out_and_the_rest_stays():
    one = widths(told(24.0, 24.0), [0.5, 1.3], [0.0, 1.2])
    assert one.now.tolist() == pytest.approx([0.5, 1.0])  # no interval is wider than its prior
    then = one.then(told(75.0, 75.0), 60.0)
    assert then.tolist() == pytest.approx([0.25, 1.0])
    partly = widths(told(24.0), [0.5], [0.3])
    assert float(partly.then(told(75.0), 60.0)) == pytest.approx((0.2**2 + 0.3**2) ** 0.5)


def test_residuals_smaller_than_the_assumed_noise_count_as_they_are():
    """The covariance of a fit with priors, with a variance of its residuals below 1."""
    one = widths(told(24.0), [0.1], variance=0.04)
    after = (0.04 * 99.0 + 1.0) ** 0.5 / 100.0
    before = (0.04 * 24.0 + 1.0) ** 0.5 / 25.0
    assert float(one.then(told(75.0), 60.0)) == pytest.approx(0.1 * after / before)


def test_what_a_model_lacks_errs_in_further_blocks_too():
    """Of eight times as many windows there are four times as many blocks: 60 for 15."""
    one = widths(told(24.0), [0.5], unexplained=0.25)
    narrowed = 0.25 * ((1.0 + 0.25 * 59.0) / (1.0 + 0.25 * 14.0)) ** 0.5
    assert float(one.then(told(75.0), 60.0)) == pytest.approx(narrowed)
    assert float(one.then(told(0.0), 60.0)) == pytest.approx(0.5)


def test_what_is_only_told_together_does_not_narrow():
    both = torch.ones(2, 2)
    one = widths(torch.zeros(2, 2), [1.0, 1.0])
    assert one.then(1e4 * both.double(), 60.0).tolist() == pytest.approx([0.5**0.5] * 2, rel=1e-3)
    assert one.rival(0, 1e4 * both.double(), 60.0) == 1
    assert one.rival(0, told(1e4, 0.0), 60.0) is None


def test_what_fits_ignore_is_not_promised():
    """Logs are said to tell nothing of the common scale of masses and torques, whatever an engine sees of it."""
    scale = torch.tensor([1.0, 1.0]).double()
    one = widths(torch.zeros(2, 2), [1.0, 1.0], unseen=scale)
    then = one.then(told(1e6, 1e6), 60.0)
    assert then.tolist() == pytest.approx([0.5**0.5] * 2, rel=1e-3)  # only their difference is told


def test_quantities_at_a_bound_are_left_out():
    one = widths(told(3.0, 3.0), [0.5, 0.5], bound=torch.tensor([True, False]))
    assert one.ratios(told(1e4, 1e4), 60.0)[0] == 1.0
    assert one.choose([told(1e4, 1e4)], 20.0, 6).target == 1


def test_a_motion_is_for_the_widest_interval_that_it_can_halve():
    """The first is the widest, but only the second part tells of it, and little."""
    one = widths(told(0.2, 3.0, 99.0), [0.9, 0.5, 0.1])
    pool = [told(0.0, 6.0, 0.0), told(0.05, 0.0, 0.0), told(0.0, 0.0, 1e4)]
    choice = one.choose(pool, 20.0, 6)
    assert choice.target == 1
    assert choice.order == (0,) * 4  # as long as it takes
    assert choice.ratio == pytest.approx((4.0 / 28.0) ** 0.5, abs=1e-6)


def test_without_one_that_halves_it_is_for_the_one_that_narrows_most():
    one = widths(told(3.0, 3.0), [0.5, 0.4], [0.45, 0.3])
    choice = one.choose([told(1.0, 1.0)], 20.0, 3)
    assert choice.target == 1
    assert len(choice.order) == 3
    assert 0.75 < choice.ratio < 1.0


def test_a_quantity_that_stays_unknown_is_no_aim():
    one = widths(told(0.1, 3.0), [0.95, 0.5], [0.5, 0.4])
    pool = [told(0.4, 0.5)]
    assert one.choose(pool, 20.0, 3).target == 0
    assert one.choose(pool, 20.0, 3, told_below=0.6).target == 1
