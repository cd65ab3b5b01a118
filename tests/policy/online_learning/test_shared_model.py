# SPDX-License-Identifier: Apache-2.0
"""Tasks of one robot that share a model in `policy online`."""

from pathlib import Path

import pytest

from neurodyn.core import artifacts
from neurodyn.core.config import read_plain
from neurodyn.core.errors import InputError
from neurodyn.core.interruption import Interrupted
from neurodyn.policy import load_policy, online
from neurodyn.policy.online_learning.record import SharedResult
from neurodyn.policy.online_learning.rounds import EarlierRounds, RoundInProgress
from neurodyn.tasks import load
from tests.policy.online_learning.test_loop import figures, settings
from tests.policy.online_learning.test_record import made

pytest.importorskip("newton")
pytest.importorskip("rsl_rl")

FIRST, SECOND = "pendubot-swingup", "acrobot-swingup"


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shared")
    lines: list[str] = []
    result = online(FIRST, folder / "out", tasks=(SECOND,), settings=settings(folder), report=lines.append)
    assert isinstance(result, SharedResult)
    return folder, result, lines


@pytest.mark.slow
def test_one_model_a_round_learns_from_the_logs_of_all_policies(both):
    _, result, lines = both
    assert list(result.tasks) == [FIRST, SECOND]
    runs = [[one.model.run for one in loop.rounds] for loop in result.tasks.values()]
    assert runs[0] == runs[1]
    logs = [loop.rounds[0].log.path for loop in result.tasks.values()]
    config = read_plain(Path(runs[0][1]) / "config.yaml")
    assert list(config["data"])[1:] == logs
    assert config["shares"][1] == config["shares"][2]
    calibrated = read_plain(Path(runs[0][1]).parent / "calibrated-run" / "config.yaml")
    assert list(calibrated["data"])[1:] == logs
    assert lines[0].startswith(f"{FIRST}, round 1: return ")
    assert lines[1].startswith(f"{SECOND}, round 1: return ")


@pytest.mark.slow
def test_frames_of_all_tasks_are_counted_together(both):
    folder, result, _ = both
    first = result.tasks[FIRST].first_frames
    assert result.tasks[SECOND].first_frames == first
    logged = sum(one.log.frames for loop in result.tasks.values() for one in loop.rounds)
    assert result.frames == first + logged
    assert artifacts.read_json(folder / "out" / "online.json") == result.plain()
    for name in result.tasks:
        assert load_policy(folder / "out" / name / "policy")[0].task == name
        assert (folder / "out" / name / "report.html").is_file()


@pytest.mark.slow
def test_a_loop_of_several_tasks_that_was_killed_continues(both, tmp_path, monkeypatch):
    folder, whole, _ = both
    log, calls = RoundInProgress._log, []

    def stop(self):
        calls.append(self.problem.task.name)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return log(self)

    monkeypatch.setattr(RoundInProgress, "_log", stop)
    with pytest.raises(Interrupted):
        online(FIRST, tmp_path / "out", tasks=(SECOND,), settings=settings(folder))
    monkeypatch.undo()
    again = online(FIRST, tmp_path / "out", tasks=(SECOND,), settings=settings(folder), resume=True)
    assert calls == [FIRST, SECOND, FIRST, SECOND]
    assert again.frames == whole.frames
    for name in whole.tasks:
        assert figures(tmp_path / "out" / name) == figures(folder / "out" / name)


@pytest.mark.slow
def test_what_several_tasks_cannot_share_is_refused(both, tmp_path):
    with pytest.raises(InputError, match="cartpole-swingup of cartpole; valid: tasks of one robot"):
        online(FIRST, tmp_path / "a", tasks=("cartpole-swingup",), settings=settings(tmp_path))
    with pytest.raises(InputError, match="--tasks and --policy exclude each other"):
        online(FIRST, tmp_path / "b", tasks=(SECOND,), policy="runs/policy", settings=settings(tmp_path))
    with pytest.raises(InputError, match="each of them once"):
        online(FIRST, tmp_path / "c", tasks=(FIRST,), settings=settings(tmp_path))


def test_the_last_logs_of_all_tasks_share_their_part():
    own, others = ((made(number, 1.0, 1.0), made(number + 1, 1.0, 1.0)) for number in (1, 11))
    known = EarlierRounds(("random",), own, ((load(SECOND), others),))
    assert known.data == ("random", "1.h5", "11.h5", "2.h5", "12.h5")
    assert known.shares(0.2, 0.6) == pytest.approx((0.2, 0.16, 0.16, 0.24, 0.24))
    assert list(known.tasks) == ["11.h5", "12.h5"]
