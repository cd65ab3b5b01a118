# SPDX-License-Identifier: Apache-2.0
"""Where saved policies are played when nobody says where."""

import pytest

from neurodyn.policy.evaluation import default_dynamics


@pytest.mark.parametrize(
    ("policy", "found"),
    [
        ("pretrained-policy:cartpole", ("analytic", "pretrained:cartpole")),
        ("pretrained-policy:ant-run", ("analytic",)),  # whose model does not ship
    ],
)
def test_a_policy_that_ships_is_played_where_that_is_possible(policy, found):
    assert default_dynamics([policy]) == found


def test_a_policy_whose_model_has_gone_is_played_there_all_the_same(tmp_path):
    """So that the user is told which model is missing."""
    text = "task: ant-run\ndynamics: runs/gone\nsettings: {iterations: 1}\nversions: {}\n"
    (tmp_path / "config.yaml").write_text(text)
    (tmp_path / "config.json").write_text("{}")
    assert default_dynamics([str(tmp_path)]) == ("analytic", "runs/gone")
