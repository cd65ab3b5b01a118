# SPDX-License-Identifier: Apache-2.0
"""Where saved policies are played when nobody says where."""

from neurodyn.policy.evaluation import default_dynamics


def test_a_policy_that_ships_is_played_where_it_was_trained():
    assert default_dynamics(["pretrained-policy:cartpole"]) == ("analytic", "pretrained:cartpole")


def test_a_policy_whose_model_has_gone_is_played_there_all_the_same(tmp_path):
    """So that the user is told which model is missing."""
    text = "task: ant-run\ndynamics: runs/gone\nsettings: {iterations: 1}\nversions: {}\n"
    (tmp_path / "config.yaml").write_text(text)
    (tmp_path / "config.json").write_text("{}")
    assert default_dynamics([str(tmp_path)]) == ("analytic", "runs/gone")
