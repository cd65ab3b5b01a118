# SPDX-License-Identifier: Apache-2.0
"""Returns of a policy, and how far dynamics are apart."""

import pytest
import torch

from neurodyn.policy.evaluate import Outcome, play, reward_errors
from tests.policy.worlds import Fixed, Hold, Mass


def outcome(*returns):
    values = torch.tensor(returns)
    none = torch.zeros(len(returns), dtype=torch.bool)
    return Outcome(values, values, torch.ones(len(returns)), none, none, None)


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
    }


def test_reward_errors_are_between_each_two():
    found = reward_errors({"real": outcome(10.0, 20.0), "model": outcome(13.0, 15.0), "other": outcome(0.0, 0.0)})
    assert [(pair.a, pair.b) for pair in found] == [("real", "model"), ("real", "other"), ("model", "other")]
    assert found[0].difference == pytest.approx(-1.0)
    assert found[0].relative == pytest.approx(1.0 / 15.0)
    assert found[0].by_episode == pytest.approx(4.0)
