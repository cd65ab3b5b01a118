# SPDX-License-Identifier: Apache-2.0
"""Judges that no update sees: which policy is kept, when a training ends, and the interval of a return."""

import contextlib
import json
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
import torch

pytest.importorskip("rsl_rl")

from neurodyn.cli.terminal.results import print_promise
from neurodyn.control.resolve import ResolvedDynamics, open_dynamics
from neurodyn.core import artifacts
from neurodyn.data.store import Store
from neurodyn.dynamics.hybrid.artifact import HYBRID
from neurodyn.dynamics.hybrid.declared import declared_hybrid
from neurodyn.identify.confidence.refits import write_refits
from neurodyn.identify.result import IdentificationFigures
from neurodyn.learn.budget import TrainState
from neurodyn.learn.metrics import read_metrics
from neurodyn.policy.artifact import behaviour
from neurodyn.policy.episodes.evaluation import PolicyEvaluation
from neurodyn.policy.episodes.logs import record_log
from neurodyn.policy.episodes.report import returns
from neurodyn.policy.learners.learner import PolicyLearner
from neurodyn.policy.learners.training import open_training
from neurodyn.policy.learners.training import train as train_policy
from neurodyn.policy.requests import TrainPolicyRequest
from neurodyn.policy.settings import AimSettings, NetworkSettings, PolicySettings, ShacSettings
from neurodyn.policy.trust.judges import (
    Judges,
    Promise,
    interval_of,
    judges_of,
    promises_of,
    read_promise,
    reward_misfit,
)
from neurodyn.policy.trust.judging import Judging, findings_of_training, shortcomings
from neurodyn.policy.worlds.randomisation import over_posterior, seen_by_critic
from neurodyn.robots import load as load_robot
from neurodyn.sim.draws import POSTERIOR, SampledDraws
from neurodyn.tasks import load as load_task
from tests.policy.small_worlds import Mass


def judging(patience: int | None = 3, count: int = 24) -> Judging:
    draws = SampledDraws(("mass",), torch.arange(float(count))[:, None], in_turn=True)
    return Judging(Judges(ResolvedDynamics("model", Mass()), draws, "models"), patience)


def test_judges_that_choose_do_not_state_the_interval():
    ours = judging()
    assert ours.choosing.draws.rows[:, 0].tolist() == list(range(8))
    assert ours.stating.draws.rows[:, 0].tolist() == list(range(8, 24))
    few = judging(count=6)
    assert few.choosing.count == few.stating.count == 6


def test_each_world_keeps_its_judge():
    draws = SampledDraws(("mass",), torch.tensor([[1.0], [2.0], [3.0]]), in_turn=True)
    assert draws.draw(5, torch.Generator())[:, 0].tolist() == [1.0, 2.0, 3.0, 1.0, 2.0]
    judges = Judges(ResolvedDynamics("model", Mass()), draws, "models")
    assert judges.means(torch.tensor([1.0, 2.0, 3.0, 3.0, 4.0, 5.0])) == [2.0, 3.0, 4.0]


def test_a_training_ends_when_the_return_falls_in_the_judges_alone():
    noise, ours = torch.linspace(-1.0, 1.0, 32), judging(patience=2)
    ours.watch(100.0 + noise, 98.0 + noise)
    ours.keep()
    ours.watch(90.0 + noise, 88.0 + noise)  # falls in both: a detour of the training
    assert ours.falls == 0
    ours.watch(110.0 + noise, 80.0 + noise.flip(0))
    assert (ours.falls, ours.over) == (1, False)
    ours.watch(115.0 + noise, 70.0 + noise.flip(0))
    assert (ours.falls, ours.over) == (2, True)
    ours.keep()
    assert not ours.over
    assert not judging(patience=None).over


def test_the_interval_holds_judges_episodes_and_the_misfit_of_the_log():
    generator = torch.Generator().manual_seed(0)
    alike = 100.0 + torch.randn(16 * 16, generator=generator)
    low, high = interval_of(alike, 16, 0.0)
    assert low < 100.0 < high
    assert high - low < 0.6
    apart = alike + 10.0 * torch.randn(16, generator=generator).repeat(16)
    assert interval_of(apart, 16, 0.0)[1] - interval_of(apart, 16, 0.0)[0] > 20.0
    wide = interval_of(alike, 16, 10.0)
    assert 30.0 < wide[1] - wide[0] < 40.0


def promise(imagined: float) -> Promise:
    return Promise(
        imagined=imagined, judges=[90.0, 110.0], interval=(80.0, 120.0), believed=(90.0, 110.0), judged_by="2 models"
    )


@pytest.mark.parametrize(("imagined", "grade"), [(100.0, "ok"), (130.0, "warning"), (70.0, "ok")])
def test_a_return_that_the_judges_do_not_believe_is_a_warning(imagined: float, grade: str):
    found = promise(imagined).finding()
    assert (found.name, found.grade) == ("promise", grade)
    assert grade == "ok" or "130, and its judges (2 models) 90 to 110" in found.what


def test_a_promise_is_printed():
    assert promise(130.0).in_words() == [
        "The return on the robot is 80 to 120 with 90% confidence: 2 models return 100 on average.",
        "The model itself imagines 130, 30.0% more than they do.",
    ]
    worst = msgspec.structs.replace(promise(130.0), worst_tenth=60.0)
    assert worst.in_words()[1].endswith("more than they do; the worst tenth of its episodes returns 60.")


def line(step: int, **values):
    return {"step": step, "return_training": 1.0, **values}


def still():
    return {"speed [m/s]": {"commanded": 0.6, "achieved": 0.01, "moved": 0.01}}


def test_a_training_without_learning_and_a_policy_that_stands_are_found():
    lines = [line(10, commands=still(), failed_training=0.0), line(20), line(30), line(40)]
    assert [one.name for one in findings_of_training(lines, 10, 40)] == ["no-learning", "stands"]
    assert "update 10 of 40" in findings_of_training(lines, 10, 40)[0].what
    assert "keep policies/first," in str(findings_of_training(lines, 10, 40, initial=Path("policies/first"))[0])
    assert findings_of_training(lines, 20, 40) == []
    assert findings_of_training(lines[:3], 10, 30)[0].name == "stands"  # too few evaluations to tell


def test_a_posterior_that_no_policy_holds_is_found_instead_of_a_mean_over_fallen_robots():
    lines = [line(10, commands=still(), failed_training=0.36)]
    (finding,) = findings_of_training(lines, 10, 40, posterior_of="runs/cf")
    assert finding.name == "fails-in-posterior"
    assert "36% of the episodes fail: not all robots that the logs of runs/cf allow" in finding.what
    assert "--one-robot" in finding.advice
    assert findings_of_training(lines, 10, 40)[0].name == "stands"  # of one robot
    lines = [line(10, commands=still(), failed_training=0.05)]
    assert findings_of_training(lines, 10, 40, posterior_of="runs/cf")[0].name == "stands"


def walks(error: float, failed: float):
    return {"commands": {"speed [m/s]": {"commanded": 0.6, "achieved": 0.5, "moved": 0.5, "error": error}},
            "failed_training": failed}  # fmt: skip


def test_a_policy_that_does_not_achieve_what_is_asked_is_found():
    asked = AimSettings(error=0.1, falls=0.02)
    lines = [line(10, **walks(0.05, 0.0)), line(20, **walks(0.13, 0.03))]
    assert shortcomings(lines, 10, asked) == ""
    words = "3.0% of its episodes fail, asked 2%, its speed has an error of 0.13 m/s, asked 0.1"
    assert shortcomings(lines, 20, asked) == words
    (finding,) = findings_of_training(lines, 20, 40, asked)
    assert (finding.name, finding.grade, finding.what) == ("inaccurate", "warning", f"after 40 updates {words}")
    assert findings_of_training(lines, 20, 40) == []


@pytest.mark.parametrize(
    ("lines", "over"),
    [
        ([line(40, **walks(0.05, 0.0))], True),
        ([line(40, **walks(0.13, 0.0))], False),
        ([line(40, commands=still(), failed_training=0.0)], True),  # more of the same would not help
    ],
)
def test_a_training_goes_on_until_its_policy_walks_as_asked(lines, over: bool, tmp_path: Path):
    learner = object.__new__(PolicyLearner)
    learner._settings = ShacSettings(aim=AimSettings(updates=30))
    learner._out, learner._support = tmp_path, None
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lines))
    state = TrainState(step=40, phase_step=40, best_step=40)
    with pytest.warns(UserWarning, match="30 more updates") if not over else contextlib.nullcontext():
        assert learner.end_phase(SimpleNamespace(state=state)) is over


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cartpole as `adapt` leaves one: a model, a posterior and refits of the cart's mass."""
    out = tmp_path_factory.mktemp("runs") / "cartpole"
    HYBRID.save(out, declared_hybrid(load_robot("cartpole")))
    masses = torch.linspace(45.0, 55.0, 24)
    artifacts.write_tensors(out / POSTERIOR, {"slider.mass": masses})
    write_refits(out, ("slider.mass",), masses[:, None])
    figures = IdentificationFigures(robot="cartpole", parameters=[], chosen="identified")
    artifacts.write_json(out / "adaptation.json", figures.plain())
    return out


def test_a_policy_is_trained_over_the_posterior_unless_asked_otherwise(run: Path, tmp_path: Path):
    assert over_posterior((), str(run)) == (str(run),)
    assert over_posterior(("slider.damping=0:5",), str(run)) == (str(run), "slider.damping=0:5")
    assert over_posterior((str(run),), str(run)) == (str(run),)
    assert over_posterior((), "analytic") == ()
    job = open_training(TrainPolicyRequest(task="cartpole-swingup", dynamics=str(run), out=tmp_path / "p"))
    assert job.settings.randomise == (str(run),)
    alone = TrainPolicyRequest(task="cartpole-swingup", dynamics=str(run), out=tmp_path / "p", one_robot=True)
    assert open_training(alone).settings.randomise == ()


def test_a_posterior_of_a_model_that_was_not_kept_is_not_drawn_from(run: Path, tmp_path: Path):
    other = tmp_path / "declared"
    artifacts.write_tensors(other / POSTERIOR, {"slider.mass": torch.ones(3)})
    (other / "model").mkdir()
    figures = IdentificationFigures(robot="cartpole", parameters=[], chosen="declared")
    artifacts.write_json(other / "adaptation.json", figures.plain())
    assert over_posterior((), str(other)) == ()


def test_a_critic_of_another_posterior_continues():
    assert seen_by_critic(("runs/a",), privileged=False) == seen_by_critic((), privileged=False)
    assert seen_by_critic(("runs/a",), privileged=True) == ("runs/a",)
    assert seen_by_critic(("root.mass=1:2",), privileged=False) == ("root.mass=1:2",)


SETTINGS = PolicySettings(
    worlds=8, horizon=4, iterations=4, evaluations=2, evaluation_worlds=8, minibatches=2, threads=1,
    network=NetworkSettings(hidden=(8,)),
)  # fmt: skip


def test_a_training_writes_its_promise(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    task = load_task("cartpole-swingup")
    dynamics = open_dynamics(task, str(run))
    judges = judges_of(dynamics)
    assert judges is not None
    assert judges.count == 24
    settings = msgspec.structs.replace(SETTINGS, randomise=(str(run),))
    train_policy(task, dynamics, tmp_path / "policy", settings)
    found = read_promise(tmp_path / "policy")
    assert found is not None
    assert len(found.judges) == 16
    assert found.judged_by == "16 models fitted to other episodes"
    assert found.interval[0] <= found.believed[0] < found.judged < found.believed[1] <= found.interval[1]
    assert found.interval[0] < found.imagined < found.interval[1]
    assert found.updates == 4
    assert isinstance(found.worst_tenth, float)
    played = [one for one in read_metrics(tmp_path / "policy") if "return_judge" in one]
    assert [one["judged_by"] for one in played] == ["8 models fitted to other episodes"] * 2
    assert json.loads((tmp_path / "policy" / "promise.json").read_text())["imagined"] == found.imagined
    print_promise(tmp_path / "policy", found.update, found.updates)
    shown = capsys.readouterr().out
    assert f"The kept policy is of update {found.update} of 4; trained over the posterior of {run}" in shown
    assert "The return on the robot is" in shown
    name = str(tmp_path / "policy")
    result = PolicyEvaluation(
        task="t", policy=name, episodes=1, seed=0, results=[], reward_error=[], promises=promises_of([name])
    )
    (table,) = [table for table in returns(result) if table.title == "What the training promises"]
    assert table.rows[0][-1] == f"{found.update} of 4"
    assert result.plain()["promises"][name]["imagined"] == found.imagined


def test_a_task_without_judges_has_no_promise(tmp_path: Path):
    assert judges_of(ResolvedDynamics("model", Mass())) is None
    assert read_promise(tmp_path) is None


def test_the_misfit_of_a_log_is_that_of_the_reward(tmp_path: Path):
    task, robot = load_task("cartpole-swingup"), declared_hybrid(load_robot("cartpole"))
    path = tmp_path / "log.h5"
    record_log(task, robot, [behaviour("swing", task)], path, transitions=2400, worlds=8, noise=0.5)
    log = Store.open(path)
    own = reward_misfit(task, robot, [log])
    other = robot.freeing(["slider.mass"])
    other.physical.set_values(torch.tensor([80.0]))
    worse = reward_misfit(task, other, [log])
    assert own is not None
    assert worse is not None
    assert own < 0.01 < worse
    assert reward_misfit(task, robot, []) is None
