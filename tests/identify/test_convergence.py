# SPDX-License-Identifier: Apache-2.0
"""A search that has converged is told from one that has not, with the reason."""

import dataclasses

import pytest
import torch

from neurodyn.identify.confidence.parameter_search import SearchEnd, curvature, far_minima, judge
from neurodyn.identify.fit.intervals import identifiability
from neurodyn.identify.fit.least_squares import fitted, levenberg_marquardt
from neurodyn.identify.fit.residuals import Point, Residuals
from tests.identify import pendulum

ASKED = ("elbow.mass", "elbow.com.z", "shoulder.friction")
TRUTH = {"elbow.mass": 1.3, "elbow.com.z": -0.2}
SETTLED = SearchEnd(settled=True, moved=True, iterations=7)


@pytest.fixture(scope="module")
def problem() -> Residuals:
    model = pendulum.dynamics(*ASKED)
    return Residuals(model, pendulum.windows(model, TRUTH, count=12), pendulum.true_noise())


@pytest.fixture(scope="module")
def solution(problem: Residuals) -> tuple[Residuals, Point]:
    residuals, found = fitted(problem, problem.start(problem.space.nominal[None]), 40)
    return residuals, found.point


def test_a_minimum_is_believed(solution: tuple[Residuals, Point]):
    analysis = identifiability(*solution)
    found = judge(SETTLED, analysis, curvature(*solution, analysis))
    assert found.converged, found.reason
    assert "standard deviations long" in found.reason


def test_costs_about_a_minimum_are_the_parabola_on_which_intervals_stand(solution: tuple[Residuals, Point]):
    found = curvature(*solution, identifiability(*solution))
    measured = found[torch.isfinite(found)]
    assert len(measured) >= 2
    torch.testing.assert_close(measured, torch.ones_like(measured), rtol=0.1, atol=0)


@pytest.mark.parametrize(
    ("end", "message"),
    [
        (
            SearchEnd(settled=False, moved=True, iterations=3),
            "costs still fell after 3 iterations: the gradient asks to move",
        ),
        (SearchEnd(settled=True, moved=False, iterations=3), "no step was accepted"),
        (
            SearchEnd(settled=True, moved=True, iterations=3),
            "the gradient is not small: it asks|the gradient is not small",
        ),
        (SearchEnd(settled=False, moved=True, iterations=3, out_of_time=True), "the time was up after 3 iterations"),
    ],
)
def test_a_search_that_stops_on_its_way_is_not_believed(problem: Residuals, end: SearchEnd, message: str):
    early = levenberg_marquardt(problem, problem.start(problem.space.nominal[None]), 1)
    found = judge(end, identifiability(problem, early.point))
    assert not found.converged
    assert any(part in found.reason for part in message.split("|")), found.reason


def test_a_population_is_believed_where_it_has_settled(solution: tuple[Residuals, Point]):
    analysis = identifiability(*solution)
    assert judge(dataclasses.replace(SETTLED, derivatives=False), analysis).converged
    assert not judge(dataclasses.replace(SETTLED, derivatives=False, settled=False), analysis).converged


def test_rough_costs_are_said(solution: tuple[Residuals, Point]):
    found = judge(SETTLED, identifiability(*solution), torch.tensor([1.0, 40.0, torch.nan], dtype=torch.float64))
    assert not found.converged
    assert "elbow.com.z" in found.reason or "elbow.mass" in found.reason
    assert "40 times what derivatives say" in found.reason


def test_ends_that_fit_as_well_and_lie_elsewhere_are_said(solution: tuple[Residuals, Point]):
    analysis = identifiability(*solution)
    here = solution[0].values(solution[1].x)
    there = here + 10.0 * analysis.deviations
    costs = torch.tensor([1.0, 1.001], dtype=torch.float64)
    found = far_minima(torch.cat([here, there]), costs, analysis)
    assert found is not None
    assert "2 of 2 searches fit equally well" in found.reason
    assert far_minima(torch.cat([here, there]), torch.tensor([1.0, 1.5], dtype=torch.float64), analysis) is None
    assert far_minima(torch.cat([here, here]), costs, analysis) is None


def test_what_is_pressed_against_its_bound_has_no_part_in_the_others(solution: tuple[Residuals, Point]):
    """The pendulum has no friction: the fit ends on the bound, or an interval's width above it."""
    analysis = identifiability(*solution)
    name = analysis.names.index("shoulder.friction")
    value = float(solution[0].values(solution[1].x)[0, name])
    assert value == 0.0 if bool(analysis.bound[name]) else value < 4.0 * float(analysis.deviations[name])
    assert torch.isfinite(analysis.deviations).all()
