# SPDX-License-Identifier: Apache-2.0
"""The update of PPO makes the steps of rsl_rl's, to rounding."""

import copy

import pytest
import torch
from tensordict import TensorDict
from torch import nn

pytest.importorskip("rsl_rl")

from rsl_rl.algorithms import PPO as ReferencePPO  # noqa: N811
from rsl_rl.models import MLPModel
from rsl_rl.modules import EmpiricalNormalization
from rsl_rl.storage import RolloutStorage

from neurodyn.policy.learners import mlp_pass
from neurodyn.policy.learners.mlp_pass import IN_PLACE_ACTIVATIONS, MlpPass, WindowPass
from neurodyn.policy.learners.normalisation import BY_FRAME, UpdateNormalisation
from neurodyn.policy.learners.ppo import PPO
from neurodyn.policy.settings import NetworkSettings, PolicySettings


class Reference(UpdateNormalisation, ReferencePPO):
    """rsl_rl's, with the normalisation of any of its versions."""


WORLDS, HORIZON, OBSERVATIONS, ACTIONS = 12, 9, 5, 3


def learner(kind, **changes):
    """A learner whose storage is full of what a random policy did."""
    torch.manual_seed(3)
    network = NetworkSettings(hidden=(16, 8), activation=changes.pop("activation", "elu"))
    settings = PolicySettings(
        worlds=WORLDS, horizon=HORIZON, network=network, epochs=3, minibatches=4, rate=2e-3, entropy=0.01, **changes
    )
    config = settings.runner()
    observations = TensorDict({"policy": torch.randn(WORLDS, OBSERVATIONS)}, batch_size=[WORLDS])
    models = [
        MLPModel(
            observations,
            config["obs_groups"],
            name,
            size,
            **{k: v for k, v in config[name].items() if k != "class_name"},
        )
        for name, size in (("actor", ACTIONS), ("critic", 1))
    ]
    storage = RolloutStorage("rl", WORLDS, HORIZON, observations, [ACTIONS])
    options = {name: value for name, value in config["algorithm"].items() if name != "class_name"}
    algorithm = kind(*models, storage, **options)
    for _ in range(2):  # the second time with a normaliser that has seen something
        collect(algorithm)
    return algorithm


def collect(algorithm, *, normalise=True):
    algorithm.storage.clear()
    for step in range(HORIZON):
        seen = TensorDict({"policy": 2.0 * torch.randn(WORLDS, OBSERVATIONS) + 1.0}, batch_size=[WORLDS])
        algorithm.act(seen)
        done = torch.rand(WORLDS) < 0.1
        algorithm.process_env_step(
            seen, torch.randn(WORLDS) + step, done, {"time_outs": done & (torch.rand(WORLDS) < 0.5)}
        )
        if normalise:
            algorithm.actor.update_normalization(seen)
            algorithm.critic.update_normalization(seen)
    algorithm.compute_returns(seen)


@pytest.mark.parametrize("changes", [{}, {"activation": "relu"}, {"activation": "tanh", "schedule": "fixed"}])
def test_updates_are_those_of_rsl_rl(changes, monkeypatch):
    monkeypatch.setattr(mlp_pass, "CHUNK", 10)
    monkeypatch.setattr("neurodyn.policy.learners.ppo.CHUNK", 10)
    ours, theirs = learner(PPO, **dict(changes)), learner(Reference, **dict(changes))
    assert ours._passes is not None
    for _ in range(2):
        before = copy.deepcopy(ours.actor.state_dict())
        torch.manual_seed(8)
        found = ours.update()
        torch.manual_seed(8)
        wanted = theirs.update()
        assert found == pytest.approx(wanted, rel=1e-4, abs=1e-6)
        assert ours.learning_rate == theirs.learning_rate
        for mine, other in ((ours.actor, theirs.actor), (ours.critic, theirs.critic)):
            for name, value in mine.state_dict().items():
                torch.testing.assert_close(value, other.state_dict()[name], rtol=2e-4, atol=2e-5)
        assert not torch.equal(before["mlp.0.weight"], ours.actor.state_dict()["mlp.0.weight"])
        for algorithm in (ours, theirs):
            torch.manual_seed(9)
            collect(algorithm)


def test_a_second_core_changes_nothing(monkeypatch):
    found = []
    for cores in (1, 2):
        monkeypatch.setattr("neurodyn.policy.learners.ppo.available_cores", lambda cores=cores: cores)
        algorithm = learner(PPO)
        assert (algorithm._beside is None) == (cores == 1)
        torch.manual_seed(8)
        found.append((algorithm.update(), [*algorithm.actor.parameters(), *algorithm.critic.parameters()]))
    assert found[0][0] == found[1][0]
    assert all(torch.equal(one, other) for one, other in zip(found[0][1], found[1][1], strict=True))


@pytest.mark.parametrize("by_frame", [BY_FRAME, True])
def test_normalisers_learn_once_an_update_in_any_version(by_frame, monkeypatch):
    """As if rsl_rl let them learn from each frame as it comes, as before 5.5."""
    monkeypatch.setattr("neurodyn.policy.learners.normalisation.BY_FRAME", by_frame)

    class EachFrame(ReferencePPO):
        def process_env_step(self, seen, *others):
            self.actor.update_normalization(seen)
            self.critic.update_normalization(seen)
            super().process_env_step(seen, *others)

    class Ours(UpdateNormalisation, EachFrame if by_frame else ReferencePPO):
        pass

    algorithm = learner(Ours)
    normaliser = algorithm.actor.obs_normalizer
    before = normaliser.mean.clone()
    collect(algorithm, normalise=False)
    assert torch.equal(normaliser.mean, before)
    assert normaliser.training
    algorithm.update_normalisers()
    assert not torch.equal(normaliser.mean, before)


def test_a_policy_that_is_held_stays_while_its_critic_learns():
    algorithm = learner(PPO)
    before = copy.deepcopy([algorithm.actor.mlp.state_dict(), algorithm.critic.mlp.state_dict()])
    algorithm.actor.requires_grad_(False)
    algorithm.update()
    assert all(torch.equal(value, before[0][name]) for name, value in algorithm.actor.mlp.state_dict().items())
    assert not torch.equal(algorithm.critic.mlp[0].weight, before[1]["0.weight"])


def test_what_the_update_does_not_know_is_left_to_rsl_rl():
    algorithm = learner(PPO, activation="silu")
    assert algorithm._passes is None
    assert set(algorithm.update()) == {"value", "surrogate", "entropy"}


@pytest.mark.parametrize("activation", IN_PLACE_ACTIVATIONS)
def test_gradients_of_a_pass_are_those_of_automatic_and_of_central_differences(activation):
    torch.manual_seed(0)
    mlp = nn.Sequential(nn.Linear(4, 6), activation(), nn.Linear(6, 5), activation(), nn.Linear(5, 2)).double()
    x, towards = torch.randn(7, 4, dtype=torch.float64), torch.randn(7, 2, dtype=torch.float64)
    wanted = torch.autograd.grad((mlp(x) * towards).sum(), list(mlp.parameters()))
    passing = MlpPass(mlp)
    passing.begin()
    with torch.no_grad():
        torch.testing.assert_close(passing.forward(x), mlp(x))
        passing.backward(towards.clone())
        for parameter, gradient in zip(mlp.parameters(), wanted, strict=True):
            torch.testing.assert_close(parameter.grad, gradient, rtol=1e-10, atol=1e-12)
        weight, step = mlp[0].weight, 1e-6
        values = []
        for change in (step, -2.0 * step):
            weight[2, 1] += change
            values.append((mlp(x) * towards).sum())
        difference = (values[0] - values[1]) / (2.0 * step)
        torch.testing.assert_close(difference, weight.grad[2, 1], rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("activation", IN_PLACE_ACTIVATIONS)
def test_gradients_of_a_window_are_those_of_automatic_differentiation(activation):
    torch.manual_seed(0)
    mlp = nn.Sequential(nn.Linear(3, 6), activation(), nn.Linear(6, 5), activation(), nn.Linear(5, 2)).double()
    normaliser = EmpiricalNormalization(3).double()
    normaliser.update(torch.randn(50, 3, dtype=torch.float64) + 1.0)
    normaliser.eval()
    std, noise = torch.full((2,), 0.3, dtype=torch.float64), torch.randn(3, 4, 2, dtype=torch.float64)
    start, mix = torch.randn(4, 3, dtype=torch.float64), torch.randn(2, 3, dtype=torch.float64)
    inputs = start.clone().requires_grad_(), std.clone().requires_grad_()

    def loss(act, seen, std):  # what is seen follows from the actions before; the last frame counts for nothing
        total = torch.zeros((), dtype=torch.float64)
        for frame in range(3):
            action = act(seen, std, noise[frame])
            seen = seen + torch.tanh(action @ mix)
            total = total + seen.square().sum() if frame < 2 else total
        return total

    passing = WindowPass(mlp, normaliser)
    for _ in range(2):  # buffers are used again
        passing.begin(3, 4)
        found = loss(lambda *given: passing(*given)[0], *inputs)
        by_inputs = torch.autograd.grad(found, inputs)
        passing.finish()
    expected = loss(lambda seen, std, noise: mlp(normaliser(seen)) + std * noise, *inputs)
    torch.testing.assert_close(found, expected)
    wanted = torch.autograd.grad(expected, [*inputs, *mlp.parameters()])
    torch.testing.assert_close([*by_inputs, *(p.grad for p in mlp.parameters())], list(wanted), rtol=1e-10, atol=1e-12)


def test_an_mlp_of_other_parts_is_no_work_for_a_pass():
    assert not MlpPass.fits(nn.Sequential(nn.Linear(2, 2), nn.SiLU(), nn.Linear(2, 1)))
    assert not MlpPass.fits(nn.Sequential(nn.Linear(2, 2), nn.ELU(alpha=0.5), nn.Linear(2, 1)))
    assert not MlpPass.fits(nn.Linear(2, 2))
