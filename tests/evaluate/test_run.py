# SPDX-License-Identifier: Apache-2.0
"""The one entry: which episodes count, which page an evaluation owns, and what is refused."""

import dataclasses
import json
from pathlib import Path

import pytest

from neurodyn.core.errors import InputError
from neurodyn.data.header import Split
from neurodyn.data.store import Store
from neurodyn.evaluate import evaluate
from neurodyn.evaluate.records import Logged
from neurodyn.evaluate.rollouts import chosen_split
from neurodyn.evaluate.run import doubts_of_adaptation
from tests.cli.calls import call


def without_tests(store: Store, path: Path) -> Path:
    """Write a store whose test episodes are for training."""
    table = store.table.copy()
    table["split"][table["split"] == Split.TEST] = Split.TRAIN
    dataclasses.replace(store, table=table).write(path)
    return path


def test_without_test_episodes_the_validation_episodes_count(trained_run: Path, plant_store: Store, tmp_path: Path):
    path = without_tests(plant_store, tmp_path / "plant.h5")
    found = evaluate(trained_run, data=str(path), horizon=5)
    assert isinstance(found, Logged)
    assert found.split == "validation"
    assert found.episodes == len(plant_store.episodes(Split.VALIDATION))
    assert evaluate(trained_run, horizon=5).plain()["split"] == "test"
    assert evaluate(trained_run, data=str(path), split="all", horizon=5).plain()["episodes"] == 60


def test_what_adapt_doubted_another_log_does_not_acquit(tmp_path: Path):
    assert not doubts_of_adaptation(tmp_path)
    doubted = [{"name": name, "grade": "warning", "what": f"{name} is odd", "advice": "look"} for name in ("a", "b")]
    (tmp_path / "adaptation.json").write_text(json.dumps({"findings": doubted}))
    (found,) = doubts_of_adaptation(tmp_path)
    assert str(found) == f"warning: adapt doubted this model: a is odd and 1 more; see {tmp_path / 'report.html'}"


def test_a_split_that_is_none_is_named(plant_store: Store):
    with pytest.raises(InputError, match="valid: train, validation, test or all"):
        chosen_split(plant_store, "half")


def test_only_an_evaluation_with_all_defaults_replaces_the_report(trained_run: Path, tmp_path: Path, capsys):
    import shutil

    run = shutil.copytree(trained_run, tmp_path / "run")
    (run / "report.html").write_text("of an evaluation with all defaults")
    call("evaluate", run, "--horizon", 5, "--split", "all", "--data", _data(run))
    page = run / f"report-horizon-5-data-{Path(_data(run)).stem}-split-all.html"
    assert str(page) in capsys.readouterr().out
    assert page.is_file()
    assert (run / "report.html").read_text() == "of an evaluation with all defaults"
    call("evaluate", run)
    assert (run / "report.html").read_text() != "of an evaluation with all defaults"


def _data(run: Path) -> str:
    text = (run / "config.yaml").read_text()
    return next(line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: "))


def test_what_a_model_cannot_do_is_refused(trained_run: Path):
    with pytest.raises(InputError, match="--horizon is 0; valid: at least 1"):
        evaluate(trained_run, horizon=0)
    with pytest.raises(InputError, match=r"--beside compares models along a log; give --data, or .*neurodyn compare /"):
        evaluate(trained_run, data="simulator", beside=(str(trained_run),))
