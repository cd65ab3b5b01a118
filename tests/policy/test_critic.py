# SPDX-License-Identifier: Apache-2.0
"""The critic that a training left says what rsl_rl's does, in units of the reward."""

import msgspec
import torch
from tensordict import TensorDict

from neurodyn.learn.plan import TrainState
from neurodyn.policy.artifact import load_critic
from neurodyn.policy.ppo import PpoLearner
from neurodyn.policy.requests import PolicyTrainingJob
from neurodyn.policy.training import train as train_policy
from tests.policy.test_train import TINY, here
from tests.policy.worlds import Hold


def test_it_is_that_of_the_training(tmp_path, monkeypatch):
    settings = msgspec.structs.replace(TINY, reward_scale=0.25)
    train_policy(Hold(), here(), tmp_path / "first", settings)
    monkeypatch.setattr("neurodyn.policy.artifact.load", lambda _: Hold())
    value = load_critic(str(tmp_path / "first"), Hold())
    learner = PpoLearner(PolicyTrainingJob(Hold(), here(), tmp_path / "second", settings, initial=tmp_path / "first"))
    learner.begin(TrainState())
    seen = torch.randn(16, 3)
    wanted = learner.runner.alg.critic(TensorDict({"policy": seen}, batch_size=[16]))[:, 0] / 0.25
    torch.testing.assert_close(value(seen), wanted.detach(), rtol=1e-4, atol=1e-5)
