# SPDX-License-Identifier: Apache-2.0
"""The section on whole runs of a log shows the residuals of consecutive roll-outs from recorded states."""

from pathlib import Path

import numpy as np
import pytest
import torch

from neurodyn.data.header import Split
from neurodyn.data.store import Store
from neurodyn.dynamics.batch import RecordedEnvironments, State
from neurodyn.dynamics.neural.model import NEURAL
from neurodyn.identify.ladder.held_out import model_forecast, whole_runs
from neurodyn.identify.result import RunFit
from neurodyn.report import log
from neurodyn.report.numbers import digits
from neurodyn.report.page import page
from tests.report.pages import check_self_contained


def recorded(run: Path, store: Store, frames: int, split: int | None) -> list[RunFit]:
    model = NEURAL.load(run)
    forecasts = {"model": model_forecast(model, RecordedEnvironments(store))}
    return whole_runs(forecasts, store, split, frames=frames, past=model.spec.context)


def test_each_roll_out_starts_from_the_recorded_state(trained_run: Path, plant_store: Store):
    found = recorded(trained_run, plant_store, 10, Split.TEST)
    assert len(found) == 3
    tests = plant_store.episodes(Split.TEST)
    q, qd, control = (torch.as_tensor(rows) for rows in plant_store.episode(int(sorted(tests)[0])))
    first = np.array(found[0].residuals["model"]).T
    assert first.shape == (50, 2)
    with torch.no_grad():
        again = NEURAL.load(trained_run).rollout(State(q[None, 20], qd[None, 20]), control[None, 20:30])
    assert first[20:30] == pytest.approx((again.q[0, 1:] - q[21:31]).numpy(), abs=1e-6)


def test_without_an_episode_that_is_long_enough_there_is_nothing(trained_run: Path, plant_store: Store):
    found = recorded(trained_run, plant_store, 1000, None)
    assert found == []
    assert log.whole_runs(found) == ""


def test_the_page_shows_a_plot_for_each_coordinate(trained_run: Path, plant_store: Store):
    found = recorded(trained_run, plant_store, 25, Split.TEST)[:1]
    shown = check_self_contained(page("p", [log.whole_runs(found)]))
    assert shown.tags.count("svg") == 2
    rms = float(np.sqrt(np.square(found[0].residuals["model"][0]).mean()))
    assert f"slider: root mean square {digits(rms)}" in shown.text
