# SPDX-License-Identifier: Apache-2.0
"""The learning rate rises, then falls along half a cosine."""

import numpy as np
import pytest

from neurodyn.learn.optimiser import Schedule


def test_the_rate_rises_to_its_highest_and_falls_to_its_final_share():
    shares = np.linspace(0, 1, 1001)
    rates = np.array([Schedule(warmup=0.1, final=0.05).rate(0.02, share) for share in shares])
    peak = int(rates.argmax())
    assert 0.09 <= shares[peak] <= 0.11
    assert rates[peak] == pytest.approx(0.02, rel=0.03)
    assert (np.diff(rates[: peak + 1]) > 0).all()
    assert (np.diff(rates[peak:]) < 0).all()
    assert 0 < rates[0] < 0.05 * 0.02
    assert rates[-1] == pytest.approx(0.05 * 0.02)


def test_without_warm_up_it_is_half_a_cosine():
    shares = np.array([0.0, 0.25, 0.5, 0.75, 1.0])
    rates = [Schedule().rate(0.02, share) for share in shares]
    np.testing.assert_allclose(rates, 0.01 * (1 + np.cos(np.pi * shares)), atol=1e-12)
    assert Schedule(offset=0.01).rate(0.02, 1.0) == pytest.approx(0.0002)


def test_it_may_rise_over_steps():
    rates = [Schedule(warmup_steps=4).rate(1.0, 0.0, step) for step in range(6)]
    assert rates == [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]


def test_beyond_its_end_the_rate_stays_at_its_final_share():
    schedule = Schedule(warmup=0.02, final=0.01)
    assert schedule.rate(0.02, 1.0) == schedule.rate(0.02, 1.3)
