# SPDX-License-Identifier: Apache-2.0
"""Residuals over whole runs are those of consecutive roll-outs from recorded states."""

from pathlib import Path

import numpy as np
import pytest
import torch

from neurodyn.data.header import Split
from neurodyn.data.store import Store
from neurodyn.dynamics.batch import State
from neurodyn.dynamics.neural.model import NEURAL
from neurodyn.report.log import record_whole_runs, whole_runs
from neurodyn.report.numbers import digits
from neurodyn.report.page import page
from neurodyn.robots import Robot
from tests.report.pages import check_self_contained


def test_each_roll_out_starts_from_the_recorded_state(trained_run: Path, plant_store: Store):
    model = NEURAL.load(trained_run)
    found = record_whole_runs(model, plant_store, frames=10, split=Split.TEST)
    assert len(found) == 3
    tests = plant_store.episodes(Split.TEST)
    q, qd, control = (torch.as_tensor(rows) for rows in plant_store.episode(int(sorted(tests)[0])))
    first = found[0].residuals
    assert first.shape == (50, 2)
    with torch.no_grad():
        again = model.rollout(State(q[None, 20], qd[None, 20]), control[None, 20:30])
    assert first[20:30] == pytest.approx((again.q[0, 1:] - q[21:31]).numpy(), abs=1e-6)


def test_without_an_episode_that_is_long_enough_there_is_nothing(
    trained_run: Path, plant_store: Store, cartpole: Robot
):
    found = record_whole_runs(NEURAL.load(trained_run), plant_store, frames=1000, split=None)
    assert found == []
    assert whole_runs(found, cartpole.spec, 1000) == ""


def test_the_page_shows_a_plot_for_each_coordinate(trained_run: Path, plant_store: Store, cartpole: Robot):
    found = record_whole_runs(NEURAL.load(trained_run), plant_store, frames=25, split=Split.TEST)[:1]
    shown = check_self_contained(page("p", [whole_runs(found, cartpole.spec, 25)]))
    assert shown.tags.count("svg") == 2
    rms = float(np.sqrt(np.square(found[0].residuals[:, 0].numpy()).mean()))
    assert f"slider: root mean square {digits(rms)}" in shown.text
