# SPDX-License-Identifier: Apache-2.0
"""Blocks, weights of windows, and intervals by block bootstrap."""

import dataclasses

import pytest
import torch

from neurodyn.core.errors import InputError
from neurodyn.data.windows import Origin, blocks_of
from neurodyn.identify.fit.intervals import bootstrap, identifiability, require_blocks
from neurodyn.identify.fit.least_squares import Weights, fitted, levenberg_marquardt
from neurodyn.identify.fit.residuals import Point, ResidualOptions, Residuals
from tests.identify import pendulum

ASKED = ("elbow.mass", "elbow.com.z", "*.damping")
TRUTH = {"elbow.mass": 1.3, "elbow.com.z": -0.2, "shoulder.damping": 0.2}


@pytest.fixture(scope="module")
def model():
    return pendulum.dynamics(*ASKED)


@pytest.fixture(scope="module")
def solution(model) -> tuple[Residuals, Point]:
    residuals = Residuals(model, pendulum.windows(model, TRUTH, logs=12), pendulum.true_noise())
    residuals, found = fitted(residuals, residuals.start(residuals.space.nominal[None]), 40)
    return residuals, found.point


def test_bootstrap_and_sandwich_agree_where_the_model_is_right(solution: tuple[Residuals, Point]):
    residuals, point = solution
    found = bootstrap(residuals, point, 60)
    assert found.enough
    assert found.blocks.count == 12
    analysis = identifiability(residuals, point)
    ratio = found.deviations / analysis.deviations
    assert ((ratio > 0.4) & (ratio < 1.6)).all(), ratio
    values = residuals.values(point.x)[0]
    free = torch.full_like(values, torch.inf)
    for value, (low, high) in zip(values.tolist(), found.intervals(values, -free, free), strict=True):
        assert low < value < high
    assert [low for low, _ in found.intervals(values, values, free)] == values.tolist(), "bounds are kept"


def test_the_seed_decides_what_is_drawn(solution: tuple[Residuals, Point]):
    one, again, other = (bootstrap(*solution, 6, seed=seed).values for seed in (1, 1, 2))
    assert torch.equal(one, again)
    assert not torch.equal(one, other)


def test_a_window_that_counts_twice_counts_as_two(model):
    windows = pendulum.windows(model, TRUTH, count=6)
    options = ResidualOptions(initial=False)
    twice = Residuals(model, windows.rows(torch.tensor([0, 1, 1, 2])), pendulum.true_noise(), options)
    residuals = Residuals(model, windows, pendulum.true_noise(), options)
    weights = Weights(
        torch.tensor([[1.0, 2.0, 1.0, 0.0, 0.0, 0.0]], dtype=torch.float64),
        torch.ones(1, 1, dtype=torch.float64),
        torch.zeros(1, 0, dtype=torch.float64),
    )
    start = residuals.start(residuals.space.nominal[None])
    assert float(weights.cost(residuals, start)) == pytest.approx(float(twice.cost(twice.start(start.x))), rel=1e-12)
    one = levenberg_marquardt(residuals, start, 30, weights=weights)
    other = levenberg_marquardt(twice, twice.start(start.x), 30)
    torch.testing.assert_close(one.point.x, other.point.x, rtol=1e-4, atol=1e-6)


def test_stretches_of_logs_are_blocks_where_there_are_few_logs(model):
    windows = pendulum.windows(model, TRUTH, count=24, logs=2)
    blocks = blocks_of(windows)
    assert not blocks.logs
    assert blocks.count == 8
    for block in range(blocks.count):
        rows = blocks.of_window == block
        assert windows.log[rows].unique().numel() == 1, "a block lies within a log"
        starts = windows.episode[rows]
        assert (starts.diff() == 2).all(), "its windows follow each other"
    many = Origin.of_logs(torch.arange(24), [str(k) for k in range(24)])
    assert blocks_of(dataclasses.replace(windows, origin=many)).logs


def test_too_few_windows_are_refused(model):
    residuals = Residuals(model, pendulum.windows(model, TRUTH, count=1), pendulum.true_noise())
    with pytest.raises(InputError, match=r"bootstrap: 1 log\(s\) with 1 window\(s\).*valid: at least 5"):
        require_blocks(residuals)
