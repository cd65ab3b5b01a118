# SPDX-License-Identifier: Apache-2.0
"""Metrics are JSON lines, whatever the numbers; a resumed log has no line twice."""

import json
import shutil
from pathlib import Path

import pytest

from neurodyn.core.errors import Notice
from neurodyn.learn.metrics import MetricsLog, best_metric, read_metrics


def write(run: Path, steps: range, start: int = 0) -> None:
    with MetricsLog(run, start) as log:
        for step in steps:
            log.write(step, loss=0.5, rollout_q={"slider": 0.1})


def test_lines_come_back(tmp_path: Path):
    write(tmp_path, range(3))
    assert read_metrics(tmp_path) == [{"step": k, "loss": 0.5, "rollout_q": {"slider": 0.1}} for k in range(3)]


def test_what_is_not_finite_becomes_null(tmp_path: Path):
    with MetricsLog(tmp_path) as log:
        log.write(1, loss=float("nan"), deep={"x": float("inf"), "y": 1.0}, name="a")
    line = (tmp_path / "metrics.jsonl").read_text()
    found = json.loads(line, parse_constant=lambda name: (_ for _ in ()).throw(ValueError(name)))
    assert found == {"step": 1, "loss": None, "deep": {"x": None, "y": 1.0}, "name": "a"}


def test_going_on_drops_what_came_after_the_saved_step(tmp_path: Path):
    write(tmp_path, range(8))
    write(tmp_path, range(5, 7), start=4)
    assert [line["step"] for line in read_metrics(tmp_path)] == [0, 1, 2, 3, 4, 5, 6]


def test_a_line_cut_off_by_a_kill_is_dropped(tmp_path: Path):
    write(tmp_path, range(3))
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 3, "lo')
    assert [line["step"] for line in read_metrics(tmp_path)] == [0, 1, 2]
    write(tmp_path, range(3, 5), start=2)
    assert [line["step"] for line in read_metrics(tmp_path)] == [0, 1, 2, 3, 4]


def test_a_new_run_begins_an_empty_log(tmp_path: Path):
    write(tmp_path, range(3))
    write(tmp_path, range(1))
    assert [line["step"] for line in read_metrics(tmp_path)] == [0]


def test_a_run_without_metrics_has_none(tmp_path: Path):
    assert read_metrics(tmp_path) == []


def test_the_best_of_a_metric_is_that_of_most_finite_roll_outs(tmp_path: Path):
    with MetricsLog(tmp_path) as log:
        for step, (score, finite) in enumerate([(float("inf"), 0.0), (1.0, 0.5), (3.0, 1.0), (2.0, 1.0)]):
            log.write(step, rollout_score=score, finite_fraction=finite, loss=float(step))
    assert best_metric(tmp_path, "rollout_score", min) == 2.0
    assert best_metric(tmp_path, "return_training", max) is None


def test_numbers_also_go_to_tensorboard(tmp_path: Path):
    write(tmp_path, range(3))
    assert list((tmp_path / "tensorboard").glob("events.*"))


def test_a_damaged_line_is_left_out_and_hinders_nothing(tmp_path: Path):
    with MetricsLog(tmp_path) as log:
        log.write(1, loss=1.0)
        log.write(2, loss=0.5)
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(path.read_bytes() + b'{"step": 3, "lo\xff\x00\n[]\n{}\n{"step": 4, "loss": 0.1}\n')
    with pytest.warns(Notice, match="left out a damaged line"):
        assert [entry["step"] for entry in read_metrics(tmp_path)] == [1, 2, 4]
    with MetricsLog(tmp_path, 2) as log:
        log.write(3, loss=0.2)
    assert [entry["step"] for entry in read_metrics(tmp_path)] == [1, 2, 3]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # of what was under way
def test_a_run_folder_that_vanishes_ends_only_the_board(tmp_path: Path):
    run = tmp_path / "run"
    with MetricsLog(run) as log:
        log.write(1, loss=1.0)
        shutil.rmtree(run)
        with pytest.warns(Notice, match="TensorBoard's log ends here"):
            log.write(2, loss=1.0)
        log.write(3, loss=1.0)
