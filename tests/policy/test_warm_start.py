# SPDX-License-Identifier: Apache-2.0
"""A training that goes on with an earlier policy: the same actions at first, and its critic where there is one."""

import shutil

import torch

from neurodyn.core import artifacts
from neurodyn.learn.plan import TrainState
from neurodyn.policy.artifact import policy_config
from neurodyn.policy.learner import CRITIC_UPDATES, critic_updates
from neurodyn.policy.ppo import PpoLearner
from neurodyn.policy.requests import PolicyTrainingJob
from neurodyn.policy.training import train as train_policy
from tests.policy.test_train import TINY, here
from tests.policy.worlds import Hold


def begun(folder, tmp_path):
    learner = PpoLearner(PolicyTrainingJob(Hold(), here(), tmp_path / "second", TINY, initial=folder))
    learner.begin(TrainState())
    return learner


def test_with_its_critic(tmp_path):
    first = tmp_path / "first"
    train_policy(Hold(), here(), first, TINY)
    last = artifacts.read_tree(first / "state", "training")["learner"]
    learner = begun(first, tmp_path)
    for name, network in (("actor", learner.runner.alg.actor), ("critic", learner.runner.alg.critic)):
        assert all(torch.equal(network.state_dict()[key], value) for key, value in last[f"{name}_state_dict"].items())
    assert critic_updates(first, TINY) == 0


def test_alone(tmp_path, monkeypatch):
    first = tmp_path / "first"
    train_policy(Hold(), here(), first, TINY)
    shutil.rmtree(first / "state")
    network = policy_config(Hold(), TINY.network).build()
    network.load_state_dict(artifacts.read_tensors(first / "policy.safetensors"))
    monkeypatch.setattr("neurodyn.policy.learner.load_policy", lambda _: (None, network))
    learner = begun(first, tmp_path)
    seen = torch.randn(32, 3)
    torch.testing.assert_close(learner.network(seen), network(seen), rtol=1e-5, atol=1e-6)
    assert torch.equal(learner.runner.alg.critic.obs_normalizer.mean, network.mean)
    before = {name: value.clone() for name, value in learner.network.layers.state_dict().items()}
    learner.step(0.0, TrainState())  # a critic that knows nothing moves no policy
    assert all(torch.equal(learner.network.layers.state_dict()[name], value) for name, value in before.items())
    rate = learner.step(0.0, TrainState(step=CRITIC_UPDATES)).rate
    assert rate <= TINY.rate / 10  # the first steps are small ones, whatever the critic learned at
    assert any(not torch.equal(learner.network.layers.state_dict()[name], value) for name, value in before.items())
