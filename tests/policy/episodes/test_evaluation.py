# SPDX-License-Identifier: Apache-2.0
"""Returns of policies by hand, their differences between dynamics, and verdicts on them.

The declared simulator is no truth about a model that logs of the robot made.
"""

import pytest
import torch

from neurodyn.control.returns import EpisodeOutcomes, Returns, returns_in
from neurodyn.core.errors import InputError
from neurodyn.core.verdict import combine_verdicts
from neurodyn.policy.episodes import evaluation
from neurodyn.policy.episodes.evaluation import (
    PolicyEvaluation,
    _compare_with_truth,
    default_dynamics,
    play,
    reward_errors,
)
from neurodyn.policy.episodes.evaluation import evaluate as evaluate_policy
from neurodyn.policy.episodes.report import returns
from tests.policy.small_worlds import Fixed, Hold, Mass


def outcome(*returns):
    values = torch.tensor(returns)
    none = torch.zeros(len(returns), dtype=torch.bool)
    return EpisodeOutcomes(values, values, torch.ones(len(returns)), none, none, None)


def test_only_the_first_episode_of_each_world_counts():
    found = play(lambda seen: torch.ones(len(seen), 1), Hold(), Mass(), Fixed([0.0, 1.95]), 2)
    # The first world: places 3 (k + 1) k / 2 / 100 after k frames, effort only at the change of the action.
    places = [0.03 * k * (k + 1) / 2 for k in range(1, 6)]
    assert float(found.returns[0]) == pytest.approx(sum(1 - x for x in places) - 0.1, abs=1e-5)
    assert found.lengths.tolist() == [5.0, 2.0]
    assert found.failed.tolist() == [False, True]
    assert found.succeeded is None
    assert found.returns_in("here").plain() == {
        "dynamics": "here",
        "return": pytest.approx(float(found.returns.mean())),
        "return_std": pytest.approx(float(found.returns.std(correction=0))),
        "length": 3.5,
        "episodes": 2,
        "failed": 0.5,
        "implausible": 0.0,
        "terms": {
            "place": pytest.approx((5 - sum(places) + 2 - 1.98 - 2.04) / 2, abs=1e-4),
            "effort": pytest.approx(-0.1),
        },
    }


def test_terms_add_up_to_the_return():
    found = play(lambda seen: torch.ones(len(seen), 1), Hold(), Mass(), Fixed([0.0, 1.95]), 2)
    assert sum(found.terms.values()).tolist() == pytest.approx(found.returns.tolist(), abs=1e-5)


class Charging(Hold):
    """Holding, where a state that is implausible costs 7."""

    implausible_reward = -7.0


def test_what_implausible_ends_cost_is_a_term():
    dynamics = Mass()
    dynamics.spoil = torch.tensor([False, True])
    found = play(lambda seen: torch.zeros(len(seen), 1), Charging(), dynamics, Fixed([0.0, 0.0]), 2)
    assert found.terms["implausible"].tolist() == [0.0, -7.0]
    assert sum(found.terms.values()).tolist() == pytest.approx(found.returns.tolist(), abs=1e-5)


def test_several_policies_have_a_mean_and_a_range():
    found = returns_in("here", [outcome(10.0, 20.0), outcome(30.0, 50.0), outcome(0.0, 10.0)])
    assert (found.mean, found.least, found.greatest, found.episodes) == (20.0, 5.0, 40.0, 6)
    assert found.plain()["return_min"] == 5.0


def test_a_policy_that_ships_is_played_where_it_was_trained():
    assert default_dynamics(["pretrained-policy:cartpole"]) == ("analytic", "pretrained:cartpole")


def test_a_policy_whose_model_has_gone_is_played_there_all_the_same(tmp_path):
    """So that the user is told which model is missing."""
    text = "task: ant-run\ndynamics: runs/gone\nsettings: {iterations: 1}\nversions: {}\n"
    (tmp_path / "config.yaml").write_text(text)
    (tmp_path / "config.json").write_text("{}")
    assert default_dynamics([str(tmp_path)]) == ("analytic", "runs/gone")


def test_nothing_is_played_where_one_of_the_dynamics_is_missing(monkeypatch):
    def played(*_, **__):
        raise AssertionError("an episode was played before all dynamics were opened")

    monkeypatch.setattr(evaluation, "play", played)
    with pytest.raises(InputError, match="runs/gone"):
        evaluate_policy("pretrained-policy:cartpole", ["hybrid", "runs/gone"], episodes=2)


def test_each_two_are_compared_and_the_simulator_is_the_reference():
    model, real, other = (torch.tensor(x) for x in ([13.0, 15.0], [10.0, 20.0], [0.0, 0.0]))
    found = reward_errors({"model": [model], "analytic": [real], "other": [other]})
    assert [(pair.a, pair.b) for pair in found] == [("analytic", "model"), ("analytic", "other"), ("model", "other")]
    assert found[0].difference == pytest.approx(-1.0)
    assert found[0].relative == pytest.approx(1.0 / 15.0)
    assert found[0].by_episode == pytest.approx(4.0)


def test_a_difference_that_all_episodes_share_is_known_exactly():
    real = [torch.full((8,), 10.0), torch.full((8,), 10.0)]
    (found,) = reward_errors({"analytic": real, "model": [1.1 * one for one in real]})
    assert found.interval == pytest.approx((0.1, 0.1), abs=1e-6)


def test_an_interval_has_the_width_of_the_mean_of_paired_differences():
    generator = torch.Generator().manual_seed(0)
    real = 100.0 + 10.0 * torch.randn(400, generator=generator)
    noise = 5.0 * torch.randn(400, generator=generator)
    (found,) = reward_errors({"analytic": [real], "model": [real + 2.0 + noise]})
    low, high = found.interval
    assert low < found.difference / float(real.mean()) < high
    assert high - low == pytest.approx(2 * 1.96 * 5.0 / 400**0.5 / 100.0, rel=0.15)


def test_policies_that_differ_widen_the_interval():
    real = [torch.full((50,), 10.0)] * 3
    apart = [torch.full((50,), value) for value in (8.0, 10.0, 12.0)]
    (found,) = reward_errors({"analytic": real, "model": apart})
    assert found.relative == pytest.approx(0.0, abs=1e-6)
    assert found.interval[0] < -0.1 < 0.1 < found.interval[1]


def test_episodes_with_other_starts_are_not_paired():
    generator = torch.Generator().manual_seed(0)
    real = 100.0 + 10.0 * torch.randn(400, generator=generator)
    model = real + 2.0  # would be known exactly from the same starts
    same, other, logs = reward_errors({"analytic": [real], "model": [model], "log": [model]}, logged=["log"])
    assert (same.paired, other.paired, logs.paired) == (True, False, False)
    assert same.interval[1] - same.interval[0] < 2e-3
    assert other.interval[1] - other.interval[0] == pytest.approx(2 * 1.96 * 10.0 * 2**0.5 / 400**0.5 / 100.0, rel=0.15)
    assert other.difference == same.difference
    assert same.by_episode == pytest.approx(2.0, rel=1e-5)
    assert other.by_episode is None


def test_one_episode_has_no_interval():
    (found,) = reward_errors({"analytic": [torch.ones(1)], "model": [torch.ones(1)]})
    assert found.interval is None


def results(**means: float) -> list[Returns]:
    return [Returns(name, mean, std=1.0, length=10.0, episodes=4, failed=0.0) for name, mean in means.items()]


def judged(from_logs: tuple[str, ...], **means: float) -> str:
    return str(combine_verdicts(_compare_with_truth(results(**means), from_logs)))


def test_a_model_of_logs_is_not_blamed_by_the_declared_simulator():
    assert judged((), analytic=1000.0, worn=3000.0).startswith("fails: the simulator contradicts")
    assert judged(("worn",), analytic=1000.0, worn=3000.0) == "ok"
    assert judged(("worn",), analytic=2800.0, worn=3000.0) == "ok"


def test_a_model_of_logs_is_the_truth_about_other_models():
    found = judged(("worn",), analytic=3000.0, worn=1000.0, imagined=3000.0)
    assert found.startswith("fails: worn, made from logs, contradicts the imagined return: 1000 instead of 3000")
    assert judged(("worn",), analytic=3000.0, worn=1000.0) == "ok"


def test_the_page_says_what_each_is_to_the_robot():
    found = PolicyEvaluation(
        task="hold", policy="p", episodes=4, seed=0, results=results(analytic=1000.0, worn=3000.0), reward_error=[],
        from_logs=("worn",),
    )  # fmt: skip
    names = [row[0] for row in returns(found)[0].rows]
    assert names == ["analytic (declared simulator)", "worn (made from logs)"]
