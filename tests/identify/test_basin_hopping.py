# SPDX-License-Identifier: Apache-2.0
"""Parallel basin hopping: it finds what local search does not, depends on its seed alone, and can be resumed."""

from pathlib import Path

import pytest
import torch

from neurodyn.identify.fit.least_squares import levenberg_marquardt
from neurodyn.identify.fit.population_search import Population, basin_hopping, draw_starts, rounds_done
from neurodyn.identify.fit.residuals import Residuals
from tests.identify import pendulum


@pytest.fixture(scope="module")
def residuals() -> Residuals:
    return pendulum.mirrored_masses()


def hop(residuals: Residuals, **options) -> Population:
    return basin_hopping(residuals, 12, 4, 8, **{"seed": 1, **options})


def test_it_finds_the_truth_where_local_search_from_nominal_does_not(residuals: Residuals):
    local = levenberg_marquardt(residuals, residuals.start(residuals.space.nominal[None]), 60)
    members = hop(residuals)
    assert float(members.cost[0]) < 0.1 * float(local.cost[0])
    values = residuals.space.values(members.x[0])
    torch.testing.assert_close(values, pendulum.values(residuals.dynamics, pendulum.MIRRORED), rtol=0.02, atol=0.01)


def test_the_same_seed_gives_the_same_result_and_another_one_another(residuals: Residuals):
    one, again, other = (hop(residuals, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(one.x, again.x)
    assert not torch.equal(one.x, other.x)


def test_a_search_that_was_killed_and_resumed_ends_in_the_same_bits(residuals: Residuals, tmp_path: Path):
    whole = hop(residuals)
    hop(residuals, run=tmp_path, report=lambda rounds, _: rounds == 2)
    assert rounds_done(tmp_path) == 2
    resumed = hop(residuals, run=tmp_path, resume=True)
    assert resumed.rounds == 4
    assert torch.equal(resumed.x, whole.x)
    assert torch.equal(resumed.cost, whole.cost)


def test_everything_stays_within_the_bounds(residuals: Residuals):
    space = residuals.space
    starts = draw_starts(space, 200, torch.Generator().manual_seed(0))
    members = hop(residuals)
    for x in (starts, members.x):
        assert (x >= space.lower).all()
        assert (x <= space.upper).all()
    assert torch.equal(starts[0], space.nominal)
    assert (starts.std(0) > 0.2 * (space.upper - space.lower)).all()


def test_costs_never_rise_from_round_to_round(residuals: Residuals):
    best = []
    hop(residuals, report=lambda _, members: bool(best.append(float(members.cost[0]))))
    assert best == sorted(best, reverse=True)
