# SPDX-License-Identifier: Apache-2.0
"""A LogWriter of rsl_rl follows our trainings."""

from pathlib import Path

import pytest

pytest.importorskip("rsl_rl")

from neurodyn.core.errors import InputError, Notice
from neurodyn.learn.budget import TrainingBudget
from neurodyn.learn.loop import TrainingLoop
from neurodyn.learn.metrics import read_metrics, show_results
from neurodyn.learn.tracking import read_tracker_file, require_tracker, tracking
from tests.learn.tracking.models import RECORD, Kept
from tests.learn.tracking.writers import Alone, Remembers

HERE = "tests.learn.tracking.writers"
REMEMBERS = {"class_name": f"{HERE}:Remembers", "project": "mine"}


def train(run: Path, steps: int = 4) -> None:
    TrainingLoop(Kept(run), TrainingBudget(steps), run, record=RECORD, validations=steps).run()


def test_it_gets_what_rsl_rl_would_give_it(tmp_path: Path):
    run = tmp_path / "run"
    with tracking(REMEMBERS, run):
        train(run)
    film = run / "play.mp4"
    calls = list(Remembers.calls)
    assert calls[0] == ("init", str(run), "mine")
    assert calls[-1] == ("stop",)
    (config,) = [call for call in calls if call[0] == "config"]
    assert config[1]["robot"] == "cartpole"
    assert config[2]["seed"] == 3
    assert config[2]["manifest"]["training"] == "train"
    scalars = {(tag, step): value for kind, tag, value, step in (c for c in calls if c[0] == "scalar")}
    for line in read_metrics(run)[:-1]:
        assert scalars["rollout_score", line["step"]] == line["rollout_score"]
    models = [call for call in calls if call[0] == "model"]
    assert models[-1] == ("model", str(run / "model" / "model.safetensors"), 4)
    film.write_bytes(b"film")
    show_results(run, REMEMBERS, films=[film])
    assert ("video", "play.mp4", 4) in Remembers.calls


def test_one_that_fails_is_given_up_once_and_the_metrics_are_whole(tmp_path: Path):
    run = tmp_path / "run"
    with (
        tracking(f"{HERE}:Alone", run),
        pytest.warns(Notice, match="Alone's log ends here, because the server is gone;"),
    ):
        train(run, 6)
    assert [line["step"] for line in read_metrics(run)] == [0, 1, 2, 3, 4, 5, 6, 6]
    assert max(call[3] for call in Alone.calls if call[0] == "scalar") == 2
    assert read_tracker_file(run)["lost"] == {"step": 3, "reason": "the server is gone"}


def test_one_that_a_file_names_is_not_imported(tmp_path: Path):
    run = tmp_path / "run"
    with tracking(f"{HERE}:Alone", run):
        train(run, 2)
    Alone.calls.clear()
    with pytest.warns(Notice, match="name it again by --logger"):
        assert require_tracker(None, run) == "tensorboard"
    assert Alone.calls == []


@pytest.mark.parametrize(
    ("logger", "words"),
    [
        (f"{HERE}:Remembers", r"missing a required argument: 'project'; valid: from Python, logger="),
        (f"{HERE}:Unfinished", "does not define add_scalar"),
        (f"{HERE}:Nothing", "cannot be imported"),
        (f"{HERE}:function", "is no class"),
        ("pathlib:Path", "has no add_scalar"),
        ({**REMEMBERS, "colour": "red"}, "unexpected keyword argument 'colour'"),
        ({"project": "mine"}, "needs class_name"),
    ],
)
def test_what_is_no_writer_is_refused_before_work(tmp_path: Path, logger, words: str):
    with pytest.raises(InputError, match=words), tracking(logger, tmp_path):
        raise AssertionError
    assert not list(tmp_path.iterdir())


def test_one_that_cannot_begin_is_refused_before_anything_is_written(tmp_path: Path):
    run = tmp_path / "run"
    with tracking(f"{HERE}:Broken", run), pytest.raises(InputError, match=r"Broken: 'TOKEN'; valid: another --logger"):
        train(run)
    assert not list(run.iterdir())
    train(run)  # and the folder can be used
