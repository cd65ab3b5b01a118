# SPDX-License-Identifier: Apache-2.0
"""Errors that last over many frames: none of a model that holds the robot, and those of one that lacks a part."""

from dataclasses import replace

import pytest
import torch

from neurodyn.identify.fit.readings import Noise
from neurodyn.identify.fit.residuals import Point, Residuals
from neurodyn.identify.stages.lasting_errors import TIMES, LastingError, lasting_errors, of_lasting_errors
from tests.identify import pendulum

FRAMES = 33


@pytest.fixture(scope="module")
def logged() -> Residuals:
    model = pendulum.dynamics("shoulder.damping", "elbow.damping")
    windows = pendulum.windows(model, {}, count=40, frames=FRAMES, logs=4)
    return Residuals(model, windows, pendulum.true_noise())


def at(residuals: Residuals, factor: float) -> Point:
    """Return a point where the shoulder has so many times the damping that it had in the log."""
    x = residuals.space.nominal.clone()
    x[0] *= factor
    return residuals.start(x[None])


def test_noise_averages_out(logged: Residuals):
    found = lasting_errors(logged, at(logged, 1.0))
    assert found
    assert all(0.7 < one.times < 1.3 for one in found), found
    assert not of_lasting_errors(found, 0.0, "")


def test_what_a_model_lacks_does_not(logged: Residuals):
    found = lasting_errors(logged, at(logged, 2.5))
    assert found[0].times > TIMES[1]
    assert found[0].size > 1e-3
    (finding,) = of_lasting_errors(found, 100.0, "networks may learn it")
    assert finding.name == "lasting"
    assert found[0].name in finding.what


def test_small_errors_are_doubted_where_they_matter_beside_the_declaration():
    small = [LastingError("elbow", 1e-4, 1.6)]
    assert of_lasting_errors(small, 0.02, "")
    assert not of_lasting_errors(small, 0.03, "")


def test_one_stretch_alone_is_left_out(logged: Residuals):
    windows, wrong = logged.windows, 0.1 * torch.ones(FRAMES + 1, 2, dtype=torch.float64)
    q = windows.q.clone()
    q[3] += torch.linspace(0.0, 1.0, FRAMES + 1, dtype=torch.float64)[:, None] * wrong
    found = lasting_errors(logged.with_windows(replace(windows, q=q), None), at(logged, 1.0))
    assert all(one.times < 1.3 for one in found), found


def test_of_joints_at_rest_exact_logs_and_short_windows_nothing_is_said(logged: Residuals):
    point, still = at(logged, 2.5), logged.windows.q[:, :1].expand_as(logged.windows.q).clone()
    assert not lasting_errors(logged.with_windows(replace(logged.windows, q=still), None), point)
    assert not lasting_errors(logged.within(9), point)
    exact = Noise(*(torch.full((2,), 1e-6, dtype=torch.float64) for _ in range(2)))
    assert not lasting_errors(logged.with_scale(logged.scale, exact), point)
