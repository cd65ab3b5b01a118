# SPDX-License-Identifier: Apache-2.0
"""Which tracker a training has: names, resumed runs, loops of several runs, one of your own."""

from pathlib import Path

import pytest

from neurodyn.cli.main import run as cli
from neurodyn.core.artifacts import write_json
from neurodyn.core.errors import InputError, Notice
from neurodyn.learn import TRACKERS, Opening, Tracker, show_results
from neurodyn.learn.budget import TrainingBudget
from neurodyn.learn.loop import TrainingLoop
from neurodyn.learn.metrics import MetricsLog, read_metrics
from neurodyn.learn.tracking import FILE, read_tracker_file, require_tracker, tracking
from tests.learn.callbacks import StopAt, Stopped
from tests.learn.tracking.boards import texts
from tests.learn.tracking.models import RECORD, Kept


class Own(Tracker):
    """Remembers openings and calls."""

    title = "Own"
    openings: list[Opening] = []
    calls: list[tuple] = []

    def __init__(self, opening, colour="red"):
        super().__init__(opening)
        self.openings.append(opening)
        self.colour = colour

    @classmethod
    def require(cls, options):
        super().require({name: value for name, value in options.items() if name != "colour"})

    def identity(self):
        return {"id": "seven", "colour": self.colour}

    def write(self, step, scalars):
        self.calls.append((step, dict(scalars)))

    def close(self, failed):
        self.calls.append(("closed", failed))


@pytest.fixture(autouse=True)
def own():
    Own.openings, Own.calls = [], []
    TRACKERS.add("own", Own)
    yield
    TRACKERS.remove("own")


def train(run: Path, steps: int = 4, stop: int | None = None, resume: bool = False) -> None:
    callbacks = [] if stop is None else [StopAt(stop)]
    loop = TrainingLoop(Kept(run), TrainingBudget(steps), run, record=RECORD, validations=steps, callbacks=callbacks)
    if resume:
        loop.resume()
    loop.run()


def test_one_of_your_own_by_its_name(tmp_path: Path):
    run = tmp_path / "run"
    with tracking({"class_name": "own", "colour": "blue"}, run):
        train(run)
    assert Own.openings == [Opening(run, "run", "", 0, {})]
    assert [call[0] for call in Own.calls] == [0, 1, 2, 3, 4, 4, "closed"]
    assert Own.calls[-1] == ("closed", False)
    assert read_tracker_file(run) == {"logger": "own", "runs": {"own": {"id": "seven", "colour": "blue"}}}
    assert not (run / "tensorboard").exists()


def test_a_run_that_continues_keeps_its_tracker_and_may_change_it(tmp_path: Path):
    run = tmp_path / "run"
    with tracking("own", run), pytest.raises(Stopped):
        train(run, stop=2)
    assert Own.calls[-1] == ("closed", True)
    with tracking(None, run):
        train(run, resume=True)
    assert (Own.openings[1].step, Own.openings[1].known["id"]) == (2, "seven")
    with tracking("none", run):
        train(run, steps=6, resume=True)
    assert read_tracker_file(run) == {"logger": "none", "runs": {"own": {"id": "seven", "colour": "red"}}}
    assert len(Own.openings) == 2


def test_runs_of_a_loop_share_its_tracker_and_group(tmp_path: Path):
    root = tmp_path / "loop"
    with tracking("own", root):
        MetricsLog(root).__exit__(None, None, None)
        inner = root / "rounds" / "01" / "policy"
        with tracking(None, inner):
            MetricsLog(inner).__exit__(None, None, None)
    assert [(one.name, one.group) for one in Own.openings] == [("loop", ""), ("loop/rounds/01/policy", "loop")]


def test_a_tracker_that_cannot_begin_within_a_loop_is_a_notice(tmp_path: Path, monkeypatch):
    inner = tmp_path / "rounds" / "01"
    with tracking("own", tmp_path):
        monkeypatch.setattr(Own, "identity", lambda self: 1 / 0)
        with pytest.warns(Notice, match=r"01: Own's log ends here, because division by zero"), MetricsLog(inner) as log:
            log.write(1, loss=1.0)
    assert len(read_metrics(inner)) == 1


def test_tensorboard_is_the_default_and_leaves_no_tracker_file(tmp_path: Path):
    with tracking(None, tmp_path):
        train(tmp_path)
    assert not (tmp_path / FILE).exists()
    events = {path.name for path in (tmp_path / "tensorboard").iterdir()}
    show_results(tmp_path, "tensorboard", tables=[("Errors", ("a", "b"), [["1|2", "3"]])], summary={"verdict": "ok"})
    assert {path.name for path in (tmp_path / "tensorboard").iterdir()} > events
    assert texts(tmp_path)["Errors"] == "| a | b |\n| --- | --- |\n| 1\\|2 | 3 |"
    assert "robot: cartpole" in texts(tmp_path)["config"]


def test_none_writes_metrics_alone(tmp_path: Path):
    with tracking("none", tmp_path):
        train(tmp_path)
    assert not (tmp_path / "tensorboard").exists()
    assert len(read_metrics(tmp_path)) == 6


def test_an_unknown_name_is_refused_with_those_that_there_are(tmp_path: Path, capsys):
    with pytest.raises(InputError, match=r"unknown logger 'wandbb' \(did you mean 'wandb'\?\); valid: .*tensorboard"):
        require_tracker("wandbb", tmp_path)
    with pytest.raises(InputError, match="W&B: takes no options, and was given team"):
        require_tracker({"class_name": "wandb", "team": "a"}, tmp_path)
    out = str(tmp_path / "run")
    assert cli(["train", "cartpole", "--data", "none.h5", "--out", out, "--logger", "tensorbord"]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "did you mean 'tensorboard'?" in said
    assert not (tmp_path / "run").exists()


def test_a_damaged_tracker_file_is_named(tmp_path: Path):
    write_json(tmp_path / FILE, [])
    with pytest.raises(InputError, match=rf"{FILE}: not the tracker file"):
        require_tracker(None, tmp_path)


def test_results_of_what_ships_have_no_tracker(capsys):
    assert cli(["evaluate", "pretrained:cartpole", "--logger", "tensorboard"]) == 2
    assert "ships with the package" in capsys.readouterr().err
