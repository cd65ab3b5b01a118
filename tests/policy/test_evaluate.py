# SPDX-License-Identifier: Apache-2.0
"""Returns of a policy, and how far dynamics are apart."""

import pytest
import torch

from neurodyn.control.returns import EpisodeOutcomes, returns_in
from neurodyn.policy.evaluation import play
from tests.policy.worlds import Fixed, Hold, Mass


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
