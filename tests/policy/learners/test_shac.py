# SPDX-License-Identifier: Apache-2.0
"""SHAC learns, resumes bitwise, and shares its policies with PPO."""

from pathlib import Path

import msgspec
import pytest
import torch

from neurodyn.control.starts import SampledStarts
from neurodyn.core import artifacts
from neurodyn.core.errors import InputError
from neurodyn.learn.budget import TrainingBudget, TrainState
from neurodyn.learn.loop import TrainingLoop
from neurodyn.learn.metrics import read_metrics
from neurodyn.policy.artifact import load_critic, load_policy, policy_config
from neurodyn.policy.episodes.evaluation import play
from neurodyn.policy.learners.algorithms import ALGORITHMS
from neurodyn.policy.learners.ppo import LEAST_RATE, PpoLearner
from neurodyn.policy.learners.shac import ShacLearner
from neurodyn.policy.learners.training import train as train_policy
from neurodyn.policy.requests import PolicyTrainingJob
from neurodyn.policy.settings import NetworkSettings, ShacSettings, load_settings
from tests.learn.callbacks import StopAt, Stopped
from tests.policy.small_worlds import TINY as PPO
from tests.policy.small_worlds import Hold, Mass, here

TINY = ShacSettings(
    worlds=8, horizon=6, iterations=8, evaluations=2, evaluation_worlds=8, critic_minibatches=2, critic_epochs=2,
    network=NetworkSettings(hidden=(8,), initial_std=0.3),
)  # fmt: skip
LASTING = msgspec.structs.replace(TINY, correlation=0.7)


class Smooth(Mass):
    """The mass, through which gradients pass."""

    differentiable = True


def shac(folder: Path, initial: Path | None = None, **changes: float) -> ShacLearner:
    """A learner of the smooth mass, from the policy of a folder or a random one."""
    settings = msgspec.structs.replace(TINY, **changes)
    return ShacLearner(PolicyTrainingJob(Hold(), here(Smooth), folder, settings, initial=initial))


@pytest.mark.trains
def test_a_policy_gets_better_with_fewer_frames_than_by_ppo(tmp_path):
    class Long(Hold):
        frames = 30

    settings = msgspec.structs.replace(TINY, worlds=16, horizon=16, rate=1e-2, gamma=0.95, critic_epochs=4)
    learner = ShacLearner(PolicyTrainingJob(Long(), here(Smooth), tmp_path, settings))
    before = play(learner.network, Long(), Mass(), SampledStarts(Long(), 5), 64).returns.mean()
    TrainingLoop(learner, TrainingBudget(60)).run()
    after = play(learner.network, Long(), Mass(), SampledStarts(Long(), 5), 64).returns.mean()
    assert before < 15.0
    assert after > 20.0  # PPO needs 41,000 frames for that (test_train), here there were 15,360


@pytest.mark.parametrize("settings", [TINY, LASTING], ids=["white noise", "lasting noise"])
def test_a_stopped_training_resumes_bitwise(tmp_path, settings):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    train_policy(Hold(), here(Smooth), whole, settings)
    with pytest.raises(Stopped):
        train_policy(Hold(), here(Smooth), parts, settings, callbacks=[StopAt(3, save=True)])
    train_policy(Hold(), here(Smooth), parts, settings, resume=True)
    ours, theirs = (artifacts.read_tensors(folder / "policy.safetensors") for folder in (whole, parts))
    assert all(torch.equal(ours[key], theirs[key]) for key in ours)
    for key in ("learner", "target", "worlds"):
        first, second = (artifacts.read_tree(folder / "state", "training")[key] for folder in (whole, parts))
        assert str(first) == str(second)
    mine, other = ([line.get("loss") for line in read_metrics(folder)] for folder in (whole, parts))
    assert mine == other


def test_written_files(tmp_path):
    out = tmp_path / "policy"
    end = train_policy(Hold(), here(Smooth), out, TINY, reference=here(Smooth))
    found = read_metrics(out)
    assert end.step == 8
    assert found[-1]["frames"] == sum(8 * line["horizon"] for line in found[:-1])
    assert {"1", "2", "4"} <= found[0]["gradients"].keys()
    assert all(len(pair) == 2 and 0 <= pair[0] <= pair[1] for pair in found[0]["gradients"].values())
    assert "algorithm: shac" in (out / "config.yaml").read_text()
    assert found[1]["cpu_seconds"] > 0


def test_dynamics_without_gradients_are_refused(tmp_path):
    with pytest.raises(InputError, match=r"shac needs gradients, which fake dynamics of 'mass' do not have; valid: "):
        train_policy(Hold(), here(Mass), tmp_path / "policy", TINY)
    assert not (tmp_path / "policy").exists()


def test_another_algorithm_does_not_resume(tmp_path):
    train_policy(Hold(), here(Smooth), tmp_path, TINY)
    with pytest.raises(InputError, match=r"config\.yaml.*shac"):
        train_policy(Hold(), here(Smooth), tmp_path, PPO, resume=True)


class TestWarmStart:
    def test_ppo_from_shac(self, tmp_path):
        first = tmp_path / "first"
        train_policy(Hold(), here(Smooth), first, TINY)
        learner = PpoLearner(PolicyTrainingJob(Hold(), here(Smooth), tmp_path / "second", PPO, initial=first))
        learner.begin(TrainState())
        self.same(learner, first)
        assert learner.step(0.0, TrainState()).rate <= 4 * LEAST_RATE
        other = PpoLearner(
            PolicyTrainingJob(
                Hold(), here(Smooth), tmp_path / "third", msgspec.structs.replace(PPO, gamma=0.9), initial=first
            )
        )
        other.begin(TrainState())
        assert other.step(0.0, TrainState()).rate == PPO.rate  # a new critic learns first, and fast

    def test_shac_from_ppo(self, tmp_path):
        first = tmp_path / "first"
        train_policy(Hold(), here(Smooth), first, PPO)
        learner = shac(tmp_path / "second", first)
        learner.begin(TrainState())
        self.same(learner, first)
        seen = torch.randn(5, 3)
        torch.testing.assert_close(learner.value(seen), learner.critic({"policy": seen})[:, 0])

    def test_a_critic_of_another_discount_is_not_taken_over(self, tmp_path):
        first = tmp_path / "first"
        train_policy(Hold(), here(Smooth), first, PPO)
        learner = shac(tmp_path / "second", first, gamma=0.9)
        fresh = learner.critic.mlp[0].weight.clone()
        learner.begin(TrainState())
        self.same(learner, first)
        assert torch.equal(learner.critic.mlp[0].weight, fresh)
        before = learner.actor.mlp[0].weight.clone()
        learner.step(0.0, TrainState())
        assert torch.equal(learner.actor.mlp[0].weight, before)

    def same(self, learner, folder):
        last = artifacts.read_tree(folder / "state", "training")["learner"]
        network = policy_config(Hold(), TINY.network).build()
        network.load_rsl_rl(last["actor_state_dict"], 1e-2)
        seen = torch.randn(32, 3)
        torch.testing.assert_close(learner.network(seen), network(seen))

    def test_a_policy_without_its_critic_waits_for_one(self, tmp_path, monkeypatch):
        network = policy_config(Hold(), TINY.network).build()
        monkeypatch.setattr("neurodyn.policy.learners.learner.load_policy", lambda _: (None, network))
        learner = shac(tmp_path / "second", tmp_path)
        learner.begin(TrainState())
        before = {name: value.clone() for name, value in learner.actor.mlp.state_dict().items()}
        critic = learner.critic.mlp[0].weight.clone()
        learner.step(0.0, TrainState())
        assert all(torch.equal(learner.actor.mlp.state_dict()[name], value) for name, value in before.items())
        assert not torch.equal(learner.critic.mlp[0].weight, critic)
        learner.step(0.0, TrainState(step=10))
        assert any(not torch.equal(learner.actor.mlp.state_dict()[name], value) for name, value in before.items())


def test_its_critic_is_one_that_planners_take(tmp_path, monkeypatch):
    train_policy(Hold(), here(Smooth), tmp_path, msgspec.structs.replace(TINY, reward_scale=0.5))
    monkeypatch.setattr("neurodyn.policy.artifact.load", lambda _: Hold())
    config, policy = load_policy(tmp_path)
    assert policy(torch.zeros(2, len(config.observations))).shape == (2, 1)
    saved = artifacts.read_tree(tmp_path / "state", "training")["learner"]["critic_state_dict"]
    learner = shac(tmp_path / "second")
    learner.critic.load_state_dict(saved)
    seen = torch.randn(4, 3)
    torch.testing.assert_close(load_critic(str(tmp_path), Hold())(seen), 2.0 * learner.critic({"policy": seen})[:, 0])


def test_the_mean_of_the_policies_is_played(tmp_path):
    learner = shac(tmp_path, average=0.75)
    learner.begin(TrainState())
    expected = learner.network.layers[0].weight.clone()
    for _ in range(3):
        learner.step(0.0, TrainState())
        expected = 0.75 * expected + 0.25 * learner.actor.mlp[0].weight.detach()
    torch.testing.assert_close(learner.network.layers[0].weight, expected)
    assert not torch.equal(expected, learner.actor.mlp[0].weight)


def test_pushes_wait_until_a_robot_no_longer_falls(tmp_path):
    learner = shac(tmp_path)
    world = learner._world
    for falls, share in ((0.05, 0.98), (0.05, 0.96), (0.002, 0.96), (0.0, 0.98), (0.0, 1.0), (0.0, 1.0)):
        world.push_share = learner._mastered(falls)
        assert world.push_share == pytest.approx(share)
    assert learner.state()["push_share"] == 1.0


def test_entropy_keeps_noise(tmp_path):
    noises = []
    for entropy in (0.0, 10.0):
        torch.manual_seed(0)
        learner = shac(tmp_path, entropy=entropy)
        learner.begin(TrainState())
        for _ in range(4):
            learner.step(0.0, TrainState())
        noises.append(learner.noise())
    assert noises[1] > max(noises[0], 0.3)


def test_noise_lasts_as_long_as_asked_and_is_as_strong(tmp_path):
    torch.manual_seed(0)
    for correlation in (0.0, 0.7):
        learner = shac(tmp_path, correlation=correlation)
        seen = torch.zeros(500, len(Hold().observations))
        with torch.no_grad():
            noise = torch.stack([a - mean for a, mean in (learner.act(seen) for _ in range(60))]) / learner.noise()
        assert noise.square().mean().item() == pytest.approx(1.0, abs=0.03)
        assert (noise[1:] * noise[:-1]).mean().item() == pytest.approx(correlation, abs=0.03)


def test_presets_are_those_of_the_algorithm():
    kind = ALGORITHMS["shac"].settings
    for task in ("cartpole-swingup", "ant-run", "planar-run"):
        settings = load_settings(task, kind=kind)
        assert type(settings) is kind
        # As PPO's, so that either goes on with the other's policy.
        ppo = load_settings(task)
        assert settings.reward_scale == ppo.reward_scale
        assert settings.network.hidden == ppo.network.hidden


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"penalty": "auto"}, "penalty"), ({"critic_epochs": 0}, "critic_epochs"), ({"betas": (0.9, 1.0)}, "betas"),
     ({"average": 1.0}, "average"), ({"correlation": 1.0}, "correlation"), ({"entropy": -1.0}, "entropy"),
     ({"rate": 0.0}, "rate"), ({"critic_minibatches": 100}, "critic_minibatches")],
)  # fmt: skip
def test_bad_settings(changes, message):
    with pytest.raises(ValueError, match=message):
        msgspec.structs.replace(TINY, **changes).__post_init__()
