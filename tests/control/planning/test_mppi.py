# SPDX-License-Identifier: Apache-2.0
"""MPPI on returns that are quadratic in the actions, for which the plan it converges to is known."""

import pytest
import torch

from neurodyn.control.planning.sampling import Mppi, MppiSettings

LIMIT, NOISE, TEMPERATURE, WIDTH = 20.0, 0.05, 0.5, 2.0
SPREAD = NOISE * LIMIT
BEST = torch.tensor([[[0.8], [-0.4]], [[0.0], [1.2]]])


class Quadratic:
    """Returns -|u - best|^2 / (2 width^2) in each of two worlds."""

    limit = LIMIT

    def returns(self, plans):
        return -(plans - BEST[:, None]).square().sum((2, 3)) / (2 * WIDTH**2)


def improved(plan, **settings):
    given = MppiSettings(horizon=2, noise=NOISE, temperature=TEMPERATURE, **settings)
    optimiser = Mppi(given, torch.Generator().manual_seed(0))
    return optimiser.improve(Quadratic(), plan, first=False)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("start", [0.0, 0.7])
def test_one_round_leads_to_the_mean_of_optimal_control_wherever_it_starts(start):
    """It weighs candidates as if all were drawn about zero: N(0, sigma^2) times exp(R / lambda) is a normal, too."""
    found = improved(torch.full((2, 2, 1), start), samples=200_000)
    share = SPREAD**2 / (SPREAD**2 + TEMPERATURE * WIDTH**2)
    torch.testing.assert_close(found, share * BEST, rtol=0.0, atol=0.02)


def test_a_plan_stays_within_the_limits():
    found = improved(torch.full((2, 2, 1), LIMIT), samples=500, rounds=3)
    assert found.abs().max() <= LIMIT * (1 + 1e-6)
