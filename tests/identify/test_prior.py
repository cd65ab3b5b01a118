# SPDX-License-Identifier: Apache-2.0
"""Priors: what they cost, what they fix, and what is refused."""

import pytest
import torch

from neurodyn.core.description.parameter import select_parameters
from neurodyn.core.errors import InputError
from neurodyn.identify.fit.intervals import bootstrap, identifiability, require_seen
from neurodyn.identify.fit.least_squares import fitted, levenberg_marquardt
from neurodyn.identify.fit.residuals import ResidualOptions, Residuals
from neurodyn.identify.unknowns.priors import parse_priors, prior_of
from tests.identify import pendulum
from tests.identify.test_least_squares import of_point_masses

KNOWN = {"elbow.mass": 1.0, "elbow.damping": 0.0, "shoulder.damping": 0.1}


def specs():
    return select_parameters(KNOWN, ("*",))


def test_deviations_are_numbers_or_shares():
    found = prior_of(specs(), {"*.damping": 0.5, "elbow.mass": "20%"})
    assert found is not None
    names = [specs()[k].name for k in found.columns.tolist()]
    assert dict(zip(names, found.deviation.tolist(), strict=True)) == pytest.approx(
        {"elbow.mass": 0.2, "elbow.damping": 0.5, "shoulder.damping": 0.5}
    )
    assert prior_of(specs(), {}) is None


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (["elbow.mass=0"], "its width is not a finite number above 0"),
        (["elbow.mass=-1"], "its width is not a finite number above 0"),
        (["elbow.mass=wide"], "its width is not a finite number above 0"),
        (["elbow.damping=10%"], "the nominal value of elbow.damping is 0"),
        (["wrist.mass=1"], "'wrist.mass' is not a free quantity; valid: "),
        (["elbow.mass"], "prior 'elbow.mass' is malformed; valid: NAME=STANDARD_DEVIATION"),
    ],
)
def test_bad_priors_are_refused(asked: list[str], message: str):
    with pytest.raises(InputError, match=message):
        prior_of(specs(), parse_priors(asked))


@pytest.fixture(scope="module")
def floating() -> Residuals:
    """Masses that a log without gravity and torques gives as a ratio only, and a prior on one of them."""
    model = of_point_masses(pendulum.dynamics("*.mass", gravity=0.0))
    windows = pendulum.windows(model, {"elbow.mass": 1.5}, torque=0.0)
    prior = prior_of(model.physical.specs, {"shoulder.mass": "5%"})
    return Residuals(model, windows, pendulum.true_noise(), ResidualOptions(huber=None), prior=prior)


def test_combinations_that_nothing_depends_on_are_refused_with_the_way_out():
    model = of_point_masses(pendulum.dynamics("*.mass", gravity=0.0))
    residuals = Residuals(model, pendulum.windows(model, {}, torque=0.0), pendulum.true_noise())
    analysis = identifiability(residuals, residuals.start(residuals.space.nominal[None]))
    with pytest.raises(InputError, match=r"cannot tell apart .*mass.*mass.*valid: .*prior: NAME=DEVIATION"):
        require_seen(analysis, "double-pendulum")
    assert set(analysis.combined) == {"shoulder.mass", "elbow.mass"}


def test_a_prior_fixes_a_combination_and_gives_it_its_width(floating: Residuals):
    start = floating.start(floating.space.nominal[None])
    require_seen(identifiability(floating, start), "double-pendulum")
    residuals, solution = fitted(floating, start, 40, rescalings=0)
    values = residuals.values(solution.point.x)[0]
    shoulder = residuals.space.names.index("shoulder.mass")
    assert float(values[shoulder]) == pytest.approx(1.0, abs=1e-4)
    assert float(values[1 - shoulder]) == pytest.approx(1.5, rel=0.02)
    analysis = identifiability(residuals, solution.point)
    assert float(analysis.deviations[shoulder]) == pytest.approx(0.05, rel=0.05)
    assert float(analysis.deviations[1 - shoulder]) == pytest.approx(0.075, rel=0.1)
    drawn = bootstrap(residuals, solution.point, 60)
    assert float(drawn.values[:, shoulder].std()) == pytest.approx(0.05, rel=0.35), "means of priors are drawn, too"


def test_the_gradient_of_a_prior_is_that_of_differences(floating: Residuals):
    x = floating.space.nominal[None] + 0.2
    _, gradient = floating.gradients(floating.start(x))
    for k in range(x.shape[1]):
        step = torch.zeros_like(x)
        step[0, k] = 1e-6
        costs = [float(floating.cost(floating.start(x + sign * step))) for sign in (1, -1)]
        assert float(gradient.x[0, k]) == pytest.approx((costs[0] - costs[1]) / 2e-6, rel=1e-5, abs=1e-4)


def test_least_squares_and_their_prior_go_downhill(floating: Residuals):
    solution = levenberg_marquardt(floating, floating.start(floating.space.nominal[None] + 0.5), 60)
    assert bool(solution.converged[0])
    assert float(floating.gradients(solution.point)[1].x.abs().max()) < 1.0
