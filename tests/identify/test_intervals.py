# SPDX-License-Identifier: Apache-2.0
"""Intervals: blocks against refits without them, moves that are no noise, initial states of windows."""

import pytest
import torch

from neurodyn.core.description.parameter import select_parameters
from neurodyn.dynamics.hybrid.model import HybridDynamics
from neurodyn.identify.fit.intervals import identifiability, shift_towards
from neurodyn.identify.fit.least_squares import fitted, levenberg_marquardt
from neurodyn.identify.fit.residuals import Point, ResidualOptions, Residuals
from neurodyn.identify.stages.growing_windows import settled
from neurodyn.multibody.engine import EngineConfig, nominal
from tests.identify import pendulum

ASKED = ("elbow.mass", "elbow.com.z", "*.damping")
TRUTH = {"elbow.mass": 1.3, "elbow.com.z": -0.2, "shoulder.damping": 0.2}
LOGS = 12


@pytest.fixture(scope="module")
def solution() -> tuple[Residuals, Point]:
    model = pendulum.dynamics(*ASKED)
    residuals = Residuals(model, pendulum.windows(model, TRUTH, logs=LOGS), pendulum.true_noise())
    residuals, found = fitted(residuals, residuals.start(residuals.space.nominal[None]), 40)
    return residuals, found.point


def test_deviations_are_those_of_refits_without_a_block(solution: tuple[Residuals, Point]):
    residuals, point = solution
    ends = []
    for log in range(LOGS):
        rows = torch.nonzero(residuals.windows.log != log)[:, 0]
        kept = Point(point.x, point.local, point.initial[:, rows])
        ends.append(residuals.values(levenberg_marquardt(residuals.of_windows(rows), kept, 20).point.x)[0])
    values = torch.stack(ends)
    jackknife = ((LOGS - 1) / LOGS * (values - values.mean(0)).square().sum(0)).sqrt()
    ratio = identifiability(residuals, point).deviations / jackknife
    assert ((ratio > 0.6) & (ratio < 2.0)).all(), ratio


def test_a_move_is_that_of_a_fit_with_the_other_model(solution: tuple[Residuals, Point]):
    residuals, point = solution
    built = pendulum.mechanism()
    specs = select_parameters(nominal(built, None), ASKED)
    other = residuals.with_dynamics(HybridDynamics(pendulum.SPEC, built, EngineConfig(substeps=8), specs))
    moved = levenberg_marquardt(other, point, 30).point.x[0] - point.x[0]
    found = shift_towards(residuals, point, other.errors(point))
    assert float(moved.abs().max()) > 3e-3, "the test needs a model whose steps are too long"
    torch.testing.assert_close(found, moved, rtol=0.15, atol=3e-4)


def test_moves_widen_deviations_but_not_at_bounds(solution: tuple[Residuals, Point]):
    analysis = identifiability(*solution)
    moves = torch.stack([3.0 * analysis.deviations, 4.0 * analysis.deviations])
    wider = analysis.widened(moves)
    torch.testing.assert_close(wider.deviations, 26.0**0.5 * analysis.deviations)
    assert analysis.widened(None) is analysis


def test_initial_states_are_fitted_at_given_values(solution: tuple[Residuals, Point]):
    residuals, point = solution
    start = residuals.start(point.x)
    found = settled(residuals, start)
    assert torch.equal(found.x, point.x)
    assert float(residuals.cost(found)) < 0.7 * float(residuals.cost(start))
    assert float(residuals.cost(found)) == pytest.approx(float(residuals.cost(point)), rel=1e-3)
    logged = Residuals(residuals.dynamics, residuals.windows, residuals.noise, ResidualOptions(initial=False))
    nothing = logged.start(point.x)
    assert settled(logged, nothing) is nothing
