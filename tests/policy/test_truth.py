# SPDX-License-Identifier: Apache-2.0
"""Verdicts on policies: the declared simulator is no truth about a model that logs of the robot made."""

from types import SimpleNamespace
from typing import Any

import pytest

from neurodyn.control.resolve import ResolvedDynamics
from neurodyn.control.returns import Returns
from neurodyn.data.training_range import TrainingRange
from neurodyn.policy.evaluation import PolicyEvaluation, _judged
from neurodyn.policy.learner import PolicyLearner
from neurodyn.policy.online_learning.record import verdict
from neurodyn.policy.report import returns
from tests.policy.online_learning.test_record import made
from tests.policy.worlds import Mass


def results(**means: float) -> list[Returns]:
    return [Returns(name, mean, std=1.0, length=10.0, episodes=4, failed=0.0) for name, mean in means.items()]


def judged(from_logs: tuple[str, ...], **means: float) -> str:
    return str(_judged(results(**means), from_logs))


def test_a_model_of_logs_is_not_blamed_by_the_declared_simulator():
    assert judged((), analytic=1000.0, worn=3000.0).startswith("fails: the simulator contradicts")
    found = judged(("worn",), analytic=1000.0, worn=3000.0)
    assert found.startswith("warning: the declared simulator returns 1000 instead of 3000, 67% apart; the model came")
    assert "exploits" not in found
    assert judged(("worn",), analytic=2800.0, worn=3000.0) == "ok"


def test_a_model_of_logs_is_the_truth_about_other_models():
    found = judged(("worn",), analytic=3000.0, worn=1000.0, imagined=3000.0)
    assert found.startswith("fails: worn, made from logs, contradicts the imagined return: 1000 instead of 3000")
    assert judged(("worn",), analytic=3000.0, worn=1000.0) == "ok"


@pytest.mark.parametrize(
    ("logged", "reference", "grade"),
    [
        (False, "analytic", "fails"),
        (True, "analytic", "warning"),
        (True, "hybrid", "warning"),
        (True, "runs/a", "fails"),
    ],
)
def test_a_training_in_a_model_of_logs_is_no_exploit_of_it(logged: bool, reference: str, grade: str):
    model = Mass()
    model.training_range = TrainingRange(qd=((-1.0, 1.0),), logged=logged)
    learner: Any = SimpleNamespace(
        _training_dynamics=ResolvedDynamics("model", model),
        _reference=ResolvedDynamics(reference, Mass()),
        _real=1000.0,
        _support=None,
    )
    (found,) = PolicyLearner.verdicts(learner, SimpleNamespace(last=3000.0))  # pyright: ignore[reportArgumentType]
    assert found.grade == grade


def test_a_loop_with_logs_of_the_robot_does_not_blame_its_model():
    rounds = [made(1, 3000.0, 1000.0)]
    assert verdict(rounds, 0.05, "analytic").startswith("fails: ")
    found = verdict(rounds, 0.05, "analytic", simulated=True)
    assert found.startswith("warning: ")
    assert "exploits" not in found


def test_the_page_says_what_each_is_to_the_robot():
    found = PolicyEvaluation(
        task="hold", policy="p", episodes=4, seed=0, results=results(analytic=1000.0, worn=3000.0), reward_error=[],
        from_logs=("worn",),
    )  # fmt: skip
    names = [row[0] for row in returns(found)[0].rows]
    assert names == ["analytic (declared simulator)", "worn (made from logs)"]
