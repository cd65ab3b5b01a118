# SPDX-License-Identifier: Apache-2.0
"""What all algorithms share: policies kept along the way, starts from an earlier policy, its critic, and verdicts."""

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import torch
from tensordict import TensorDict

from neurodyn.control.resolve import ResolvedDynamics
from neurodyn.core import artifacts
from neurodyn.core.errors import InputError
from neurodyn.data.training_range import TrainingRange
from neurodyn.learn.budget import TrainState
from neurodyn.policy.artifact import load_critic, policy_config
from neurodyn.policy.learners.learner import CRITIC_UPDATES, PolicyLearner, critic_updates
from neurodyn.policy.learners.ppo import PpoLearner
from neurodyn.policy.learners.training import train as train_policy
from neurodyn.policy.requests import PolicyTrainingJob
from neurodyn.policy.settings import PolicySettings
from neurodyn.tasks import ObservationTerm
from tests.policy.small_worlds import TINY, Hold, Mass, here


def test_every_second_policy_is_kept(tmp_path):
    settings = msgspec.structs.replace(TINY, keep_every=2, evaluations=0)
    train_policy(Hold(), here(), tmp_path / "long", settings)
    kept = sorted(path.name for path in (tmp_path / "long" / "kept").iterdir())
    assert kept == ["00002", "00004"]
    # A training that ends there ends with the same policy.
    train_policy(Hold(), here(), tmp_path / "short", msgspec.structs.replace(settings, iterations=2))
    early, late, short = (
        artifacts.read_tensors(tmp_path / name / "policy.safetensors")
        for name in ("long/kept/00002", "long/kept/00004", "short")
    )
    assert all(torch.equal(early[name], short[name]) for name in short)
    assert any(not torch.equal(early[name], late[name]) for name in late)


def test_a_bad_interval_is_refused():
    with pytest.raises((InputError, ValueError), match="keep_every is 0; valid: a whole number of at least 1"):
        PolicySettings(keep_every=0)


def begun(folder, tmp_path):
    learner = PpoLearner(PolicyTrainingJob(Hold(), here(), tmp_path / "second", TINY, initial=folder))
    learner.begin(TrainState())
    return learner


def test_a_policy_continues_with_its_critic(tmp_path):
    first = tmp_path / "first"
    train_policy(Hold(), here(), first, TINY)
    last = artifacts.read_tree(first / "state", "training")["learner"]
    learner = begun(first, tmp_path)
    for name, network in (("actor", learner.runner.alg.actor), ("critic", learner.runner.alg.critic)):
        assert all(torch.equal(network.state_dict()[key], value) for key, value in last[f"{name}_state_dict"].items())
    assert critic_updates(first, TINY) == 0


class Judged(Hold):
    """The critic sees further terms."""

    def __init__(self, *names: str) -> None:
        super().__init__()
        self.names = names

    def observation_terms(self):
        critic = tuple(ObservationTerm("joint_position", columns=(name,)) for name in self.names)
        return {**super().observation_terms(), **({"critic": critic} if critic else {})}


@pytest.mark.parametrize(
    ("before", "now", "said"),
    [
        (("height",), (), "its critic saw height; valid: a policy whose critic saw the observations alone"),
        ((), ("height",), "its critic did not see height; valid: a policy whose critic saw height"),
        (("height", "reach"), ("reach", "grip"), "its critic saw height and did not see grip; valid: .* reach, grip"),
        (("height", "reach"), ("reach", "height"), r"its critic saw \['height', 'reach'\] in this order; valid"),
    ],
)
def test_a_critic_that_saw_other_terms_is_refused(tmp_path, before, now, said):
    train_policy(Judged(*before), here(), tmp_path / "first", TINY)
    job = PolicyTrainingJob(Judged(*now), here(), tmp_path / "second", TINY, initial=tmp_path / "first")
    with pytest.raises(InputError, match=said):
        PpoLearner(job).begin(TrainState())


def test_a_critic_that_saw_the_same_terms_continues(tmp_path):
    train_policy(Judged("height"), here(), tmp_path / "first", TINY)
    job = PolicyTrainingJob(Judged("height"), here(), tmp_path / "second", TINY, initial=tmp_path / "first")
    learner = PpoLearner(job)
    learner.begin(TrainState())
    last = artifacts.read_tree(tmp_path / "first/state", "training")["learner"]["critic_state_dict"]
    assert all(torch.equal(learner.runner.alg.critic.state_dict()[name], value) for name, value in last.items())


def test_a_policy_without_a_critic_waits_for_one(tmp_path, monkeypatch):
    first = tmp_path / "first"
    train_policy(Hold(), here(), first, TINY)
    shutil.rmtree(first / "state")
    network = policy_config(Hold(), TINY.network).build()
    network.load_state_dict(artifacts.read_tensors(first / "policy.safetensors"))
    monkeypatch.setattr("neurodyn.policy.learners.learner.load_policy", lambda _: (None, network))
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


def test_the_critic_of_a_folder_is_that_of_its_training(tmp_path, monkeypatch):
    settings = msgspec.structs.replace(TINY, reward_scale=0.25)
    train_policy(Hold(), here(), tmp_path / "first", settings)
    monkeypatch.setattr("neurodyn.policy.artifact.load", lambda _: Hold())
    value = load_critic(str(tmp_path / "first"), Hold())
    learner = PpoLearner(PolicyTrainingJob(Hold(), here(), tmp_path / "second", settings, initial=tmp_path / "first"))
    learner.begin(TrainState())
    seen = torch.randn(16, 3)
    wanted = learner.runner.alg.critic(TensorDict({"policy": seen}, batch_size=[16]))[:, 0] / 0.25
    torch.testing.assert_close(value(seen), wanted.detach(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("logged", "reference", "grade"),
    [(False, "analytic", "fails"), (True, "analytic", None), (True, "hybrid", None), (True, "runs/a", "fails")],
)
def test_a_training_in_a_model_of_logs_is_no_exploit_of_it(
    logged: bool, reference: str, grade: str | None, tmp_path: Path
):
    model = Mass()
    model.training_range = TrainingRange(qd=((-1.0, 1.0),), logged=logged)
    learner: Any = SimpleNamespace(
        _training_dynamics=ResolvedDynamics("model", model),
        _reference=ResolvedDynamics(reference, Mass()),
        _real=1000.0,
        _support=None,
        _promise=None,
        _initial=None,
        _out=tmp_path,
        _settings=PolicySettings(),
    )
    state: Any = SimpleNamespace(last=3000.0, best_step=1, step=1)
    assert [one.grade for one in PolicyLearner.verdicts(learner, state)] == ([] if grade is None else [grade])
