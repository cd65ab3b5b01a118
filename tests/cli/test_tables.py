# SPDX-License-Identifier: Apache-2.0
"""Results on the terminal show the figures of their pages."""

import pytest
import torch

from neurodyn.cli.terminal.results import evaluation_tables, print_evaluation
from neurodyn.data.header import Split
from neurodyn.evaluate import beside_log, forecast_log
from neurodyn.evaluate.records import Tossed
from tests import plant, worlds
from tests.evaluate.test_tosses import CUBE, Coasting, coasting_store


def tossed(bad: int) -> Tossed:
    """Predictions that are off by 12.3 mm, of which the first `bad` roll-outs leave the finite."""

    def spoil(found):
        found.q[..., 0] += 0.0123
        found.q[:bad, -1] = torch.nan
        return found

    result = beside_log(Coasting(spoil), CUBE, coasting_store(), split=Split.TEST, horizon=10)  # type: ignore[arg-type]
    assert isinstance(result, Tossed)
    return result


def test_errors_of_tosses_are_from_all_starts_and_from_the_first_states(capsys: pytest.CaptureFixture[str]):
    print_evaluation(tossed(0))
    text = capsys.readouterr().out
    assert "51 roll-outs of 10 frames" in text
    assert "in 4 episodes (test)" in text
    assert "Base position, from all starts (51 roll-outs)" in text
    assert "Base position, from first states (4 roll-outs)" in text
    assert text.count("12.3 mm") >= 4  # mean and median
    assert "finite 100 %" in text


def test_errors_that_are_not_finite_are_a_dash(capsys: pytest.CaptureFixture[str]):
    print_evaluation(tossed(51))
    text = capsys.readouterr().out
    assert "  –  " in text
    assert "finite 0 %" in text


def test_logs_and_world_models_have_tables_with_rows(plant_store):
    logged = beside_log(plant.PlantDynamics(), plant.robot(), plant_store, split=None, horizon=10)  # type: ignore[arg-type]
    titles = [table.title for table in evaluation_tables(logged)]
    assert any(title.startswith("All windows: ") for title in titles)
    assert "Mean joint position error at the longest horizon" in titles
    found = forecast_log(worlds.make_model(), worlds.make_store(), split=Split.TEST, horizon=20)
    tables = {table.title: table for table in evaluation_tables(found)}
    assert len(tables["Coverage and rank correlations"].rows) == len(found.marks)
    assert [row[0] for row in tables["Contacts by frame, termination by forecast"].rows] == ["pad", "termination"]
