# SPDX-License-Identifier: Apache-2.0
"""Where saved policies are played when nobody says where."""

import pytest

from neurodyn.core.errors import InputError
from neurodyn.policy import evaluation
from neurodyn.policy.evaluation import default_dynamics
from neurodyn.policy.evaluation import evaluate as evaluate_policy


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
