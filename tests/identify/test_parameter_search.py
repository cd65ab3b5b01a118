# SPDX-License-Identifier: Apache-2.0
"""Searches from several starts, horizons that grow, and profiles of what they find."""

import pytest
import torch

from neurodyn.core.progress import showing, tell
from neurodyn.identify.confidence.certainty import profiles
from neurodyn.identify.confidence.parameter_search import needs_more_starts, search
from neurodyn.identify.fit.intervals import identifiability
from neurodyn.identify.fit.least_squares import levenberg_marquardt
from neurodyn.identify.fit.residuals import ResidualOptions, Residuals
from neurodyn.identify.settings import IdentificationSettings, changed
from tests.identify import pendulum

SETTINGS = IdentificationSettings(horizon=1.2, initial="logged", velocities=False, rounds=2, round_iterations=6)


@pytest.fixture(scope="module")
def residuals() -> Residuals:
    return pendulum.mirrored_masses()


def quiet(*_: object) -> bool:
    return False


def test_growing_horizons_find_what_the_whole_horizon_does_not():
    """Over four seconds a pendulum with another gravity is whole periods off."""
    model = pendulum.dynamics("gravity.z=-25:-40:-1")
    windows = pendulum.windows(model, {"gravity.z": -9.81}, count=2, frames=200, seed=5, torque=0.0)
    long = Residuals(model, windows, pendulum.true_noise(), ResidualOptions(velocities=False, initial=False))
    at_once = levenberg_marquardt(long, long.start(long.space.nominal[None]), 60)
    assert float(long.values(at_once.point.x)) < -15.0
    settings = IdentificationSettings(
        horizon=4.0, horizons=(0.2, 0.6, 1.5), initial="logged", velocities=False, reweigh=False
    )
    found = search(long, settings, 1, quiet)
    assert float(long.values(found.point.x)) == pytest.approx(-9.81, rel=2e-3)
    assert found.end.settled
    assert not len(found.ends)


@pytest.mark.parametrize("horizons", [(0.3, 0.1), (0.1, 0.1), (0.0, 0.1), (0.1, 2.0)])
def test_horizons_that_do_not_grow_are_refused(horizons: tuple[float, ...]):
    with pytest.raises(ValueError, match=r"horizons is .*valid: growing horizons above 0 and below 0\.5"):
        IdentificationSettings(horizons=horizons)


def test_contacts_may_be_searched_from_several_starts_unless_asked_otherwise():
    assert IdentificationSettings().starts_of(["elbow.mass", "contact.friction"]) > 1
    assert IdentificationSettings().starts_of(["elbow.mass", "contacts.of.a.link.mass"]) == 1
    assert IdentificationSettings(starts=1).starts_of(["contact.friction"]) == 1
    assert IdentificationSettings(optimiser="cma-es", initial="logged").starts_of(["contact.friction"]) == 1


def test_the_ends_of_several_starts_are_kept(residuals: Residuals):
    asked = changed(SETTINGS, starts=8)
    found = search(residuals, asked, 8, quiet)
    assert 2 <= len(found.ends) <= 8
    assert found.costs.tolist() == sorted(found.costs.tolist())
    other = search(residuals, changed(asked, seed=1), 8, quiet)
    assert not torch.equal(found.ends, other.ends)


def test_a_fit_from_one_start_that_explains_the_log_is_the_last():
    model = pendulum.dynamics("elbow.mass", "shoulder.damping")
    near = Residuals(model, pendulum.windows(model, {"elbow.mass": 1.2}, count=8), pendulum.true_noise())
    stages = []
    found = search(near, SETTINGS, 8, lambda stage, *_: stages.append(stage))
    assert set(stages) == {"parameters"}
    assert not len(found.ends)
    assert not needs_more_starts(found.residuals, found.point)


def test_a_fit_that_ends_at_a_bound_or_far_from_the_log_is_searched_from_several_starts(residuals: Residuals):
    stages = []
    alone = search(residuals, changed(SETTINGS, starts=1), 1, quiet)
    assert bool((alone.residuals.excess(alone.point) > 3.0).any())
    found = search(residuals, SETTINGS, 8, lambda stage, *_: stages.append(stage))
    assert "basin-hopping" in stages
    assert len(found.ends) > 1
    assert float(residuals.cost(found.point)) < 0.01 * float(residuals.cost(alone.point))
    model = pendulum.dynamics("elbow.mass=1:.9:1.1")
    narrow = Residuals(model, pendulum.windows(model, {"elbow.mass": 1.2}, count=8), pendulum.true_noise())
    at_bound = narrow.start(narrow.space.upper[None])
    assert needs_more_starts(narrow, at_bound)


@pytest.mark.parametrize("starts", [1, 8])
def test_the_time_left_of_a_search_does_not_grow(starts: int, residuals: Residuals):
    """At equal times for all iterations, where the search has no more parts than it may have."""
    shown: list[float] = []

    class Display:
        def update(self, done: float, text: str) -> None:
            shown.append(done)

    with showing(Display()):
        search(residuals, changed(SETTINGS, starts=starts), starts, lambda name, done, *_: tell(done, name))
    assert shown == sorted(shown)
    assert shown[-1] == 1.0
    if starts == 1:
        steps = [done for done in dict.fromkeys(shown) if 0.0 < done < 1.0]
        left = [(1.0 - done) / done * (number + 1) for number, done in enumerate(steps)]
        assert len(steps) > 10
        assert left == sorted(left, reverse=True)


def test_profiles_of_a_smooth_problem_are_parabolas():
    model = pendulum.dynamics("elbow.mass", "shoulder.damping")
    residuals = Residuals(model, pendulum.windows(model, {"elbow.mass": 1.2}, count=8), pendulum.true_noise())
    point = levenberg_marquardt(residuals, residuals.start(residuals.space.nominal[None]), 40, tolerance=1e-12).point
    analysis = identifiability(residuals, point)
    found = profiles(residuals, point, analysis, 5)
    assert set(found) == {"elbow.mass", "shoulder.damping"}
    for curve in found.values():
        middle = curve.values[2]
        half = (curve.values[4] - middle) / 1.5
        expected = [curve.bound * ((value - middle) / half) ** 2 for value in curve.values]
        assert curve.rise == pytest.approx(expected, rel=0.15, abs=0.05)
