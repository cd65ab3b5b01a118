# SPDX-License-Identifier: Apache-2.0
"""The world model that ships carries its log: a policy is trained in it without any other file, and without Newton."""

import json
from pathlib import Path

import pytest

pytest.importorskip("rsl_rl")

from neurodyn.control.resolve import open_dynamics
from neurodyn.policy.learners.training import train as train_policy
from neurodyn.policy.settings import CloneSettings, NetworkSettings, PolicySettings, load_settings
from neurodyn.tasks import load


def test_a_policy_is_trained_on_the_walks_that_ship(tmp_path: Path):
    task = load("anymal-velocity")
    where = open_dynamics(task, "pretrained:anymal-walks")
    assert where.dynamics.measured
    assert load_settings("anymal-velocity", logs=True).penalty == "auto"
    settings = PolicySettings(
        worlds=8, horizon=4, iterations=2, evaluations=0, minibatches=2, penalty="auto", threads=1,
        clone=CloneSettings(steps=5, batch=32, critic=1, best=0.4), network=NetworkSettings(hidden=(16,)),
    )  # fmt: skip
    train_policy(task, where, tmp_path / "policy", settings)
    last = json.loads((tmp_path / "policy" / "metrics.jsonl").read_text().splitlines()[-2])
    assert 0.3 < last["uncertainty_log"] < 1.5
    assert last["penalty"] != 1.0


def test_a_policy_of_the_package_is_measured_in_the_simulator_where_its_run_does_not_ship():
    from neurodyn.policy.episodes.evaluation import default_dynamics

    assert default_dynamics(["pretrained-policy:anymal-velocity"]) == ("analytic",)
