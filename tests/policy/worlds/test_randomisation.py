# SPDX-License-Identifier: Apache-2.0
"""Policies in worlds whose robots differ."""

import math

import pytest
import torch

from neurodyn.control.starts import SampledStarts
from neurodyn.core import artifacts
from neurodyn.core.config import read_plain
from neurodyn.core.description.randomisation import RandomisedQuantity
from neurodyn.core.errors import InputError
from neurodyn.dynamics.batch import Environment
from neurodyn.dynamics.hybrid.declared import declared_hybrid
from neurodyn.policy.episodes.evaluation import play, policy_figures
from neurodyn.policy.worlds.environment import PolicyEnvironment
from neurodyn.policy.worlds.randomisation import open_randomisation, robust
from neurodyn.sim.draws import POSTERIOR, IndependentDraws, SampledDraws, read_posterior
from neurodyn.tasks import load
from tests import plant
from tests.policy.small_worlds import train_briefly

TEXTS = ("slider.mass=+0:2", "hinge.mass=x.5:2:log", "actuator.slider.gain=.6:1")
WORLDS = 64


@pytest.fixture(scope="module")
def opened():
    return open_randomisation(TEXTS, declared_hybrid("cartpole"))


@pytest.fixture(scope="module")
def task():
    return load("cartpole-swingup")


def drawn(one, count=20000):
    draws = IndependentDraws(one.names, (one,), (3.0,) * len(one.names))
    return draws.draw(count, torch.Generator().manual_seed(0))


def test_distributions():
    flat = drawn(RandomisedQuantity(names=("a", "b"), change="scale", lower=0.5, upper=1.5))
    assert torch.equal(flat[:, 0], flat[:, 1])  # they share a draw
    assert (float(flat.min()), float(flat.max()), float(flat.mean())) == pytest.approx((1.5, 4.5, 3.0), abs=0.02)
    log = drawn(RandomisedQuantity(names=("a",), lower=0.1, upper=10.0, shape="log")).log()
    assert float(log.mean()) == pytest.approx(0.0, abs=0.03)
    assert float(log.std()) == pytest.approx(2 * math.log(10.0) / 12**0.5, rel=0.02)
    normal = drawn(RandomisedQuantity(names=("a",), change="add", lower=-2.0, upper=2.0, shape="normal"))
    assert float(normal.std()) == pytest.approx(0.88, abs=0.02)  # of 1, cut off at two
    assert float((normal - 3.0).abs().max()) <= 2.0001
    one_of = drawn(RandomisedQuantity(names=("a",), values=(1.0, 5.0)))
    assert sorted(set(one_of[:, 0].tolist())) == [1.0, 5.0]
    weak = drawn(RandomisedQuantity(names=("a", "b", "c"), lower=0.6, upper=1.0, one=True))
    assert torch.equal((weak < 1.0).sum(1), torch.ones(len(weak), dtype=torch.long))  # declared: 3
    assert (weak < 1.0).float().mean(0).tolist() == pytest.approx([1 / 3] * 3, abs=0.02)


def environment(task, opened, seed=0):
    starts = SampledStarts(task, seed)
    return PolicyEnvironment(task, opened.dynamics, starts, WORLDS, seed=seed, draws=opened.draws, frames=5)


def test_every_episode_has_a_robot_of_its_own(task, opened):
    world = environment(task, opened)
    first = world.robots.numbers.clone()
    assert len(first.unique(dim=0)) == WORLDS
    world.episode_length_buf = torch.arange(WORLDS) % 5
    _, _, done, _ = world.step(torch.zeros(WORLDS, 1))
    after = world.robots.numbers
    assert 0 < int(done.sum()) < WORLDS
    assert torch.equal(after[~done], first[~done])
    assert (after[done] != first[done]).all()


def test_a_saved_environment_continues_with_the_same_robots(task, opened):
    world, other = environment(task, opened), environment(task, opened, seed=1)
    actions = torch.ones(WORLDS, 1)
    for _ in range(3):
        world.step(actions)
    other.load(world.checkpoint())
    for _ in range(8):
        seen = [one.step(actions)[0]["policy"] for one in (world, other)]
        assert torch.equal(*seen)
    assert torch.equal(world.robots.numbers, other.robots.numbers)


def test_what_the_return_depends_on_is_found(task, opened):
    episodes = play(
        lambda seen: seen[:, :1].sign(), task, opened.dynamics, SampledStarts(task, 0), 60, draws=opened.draws
    )
    assert episodes.robots.shape == (60, 3)
    episodes.returns.copy_(-episodes.robots[:, 1])  # as if they came from the second quantity alone
    found = robust(episodes.returns_in("hybrid"), [episodes])
    assert found.sensitivity[0].name == "hinge.mass"
    assert found.sensitivity[0].correlation == pytest.approx(-1.0)
    assert found.worst_tenth == pytest.approx(float((-episodes.robots[:, 1]).sort().values[:6].mean()))


def test_the_critic_sees_the_robot_and_the_policy_does_not(tmp_path):
    train_briefly(tmp_path / "a", randomise=TEXTS)
    weights = artifacts.read_tree(tmp_path / "a" / "state", "training")["learner"]
    policy, critic = (weights[f"{name}_state_dict"]["mlp.0.weight"].shape[1] for name in ("actor", "critic"))
    assert critic == policy + len(TEXTS)
    assert read_plain(tmp_path / "a" / "config.yaml")["settings"]["randomise"] == list(TEXTS)
    (tmp_path / "run").mkdir()
    artifacts.write_tensors(tmp_path / "run" / POSTERIOR, {"hinge.mass": 1.0 + 0.1 * torch.rand(50)})
    train_briefly(tmp_path / "of-posterior", randomise=(str(tmp_path / "run"),))
    weights = artifacts.read_tree(tmp_path / "of-posterior" / "state", "training")["learner"]
    assert weights["critic_state_dict"]["mlp.0.weight"].shape[1] == policy  # robots that are nearly alike
    train_briefly(tmp_path / "b", policy=str(tmp_path / "a"))  # its critic has other inputs: begun anew
    train_briefly(tmp_path / "c", policy=str(tmp_path / "b"), randomise=TEXTS)


def test_the_posterior_of_a_run(tmp_path):
    sample = {"slider.mass": torch.rand(50), "hinge.mass": torch.rand(50)}
    artifacts.write_tensors(tmp_path / POSTERIOR, sample)
    names, rows = read_posterior(tmp_path, 10)
    assert sorted(names) == sorted(sample)
    assert torch.equal(rows[:, names.index("hinge.mass")], sample["hinge.mass"])
    opened = open_randomisation([str(tmp_path)], declared_hybrid("cartpole"))
    assert isinstance(opened.draws, SampledDraws)
    values = opened.draws.draw(5, torch.Generator().manual_seed(0))
    assert all(any(torch.equal(row, one) for one in rows) for row in values)


def test_intervals_of_an_identification_are_normal(tmp_path):
    entries = [
        {"name": "slider.mass", "value": 1.0, "interval": [0.8, 1.2], "nominal": 1.0},
        {"name": "hinge.mass", "value": 1.0, "interval": None, "why_not": "unseen", "nominal": 1.0},
    ]
    artifacts.write_json(tmp_path / "identification.json", {"parameters": entries})
    names, rows = read_posterior(tmp_path, 4000)
    assert names == ("slider.mass",)
    assert float(rows.mean()) == pytest.approx(1.0, abs=0.01)
    assert float(rows.std()) == pytest.approx(0.2 / 1.96, rel=0.05)


def test_refusals(tmp_path):
    model = declared_hybrid("cartpole")
    with pytest.raises(InputError, match=r"holds no posterior.*valid: a run of `neurodyn adapt`"):
        open_randomisation([str(tmp_path)], model)
    with pytest.raises(InputError, match=r"'slider\.mas' matches no quantity"):
        open_randomisation(["slider.mas=1:2"], model)
    with pytest.raises(InputError, match=r"valid with :one: a pattern"):
        open_randomisation(["slider.mass&hinge.mass=1:2:one"], model)


def test_worlds_of_a_network_differ_in_its_conditions(task):
    network = plant.make_model("mlp", torch.float32, conditions=plant.CONDITIONS).requires_grad_(False)
    opened = open_randomisation(("hinge.length=.8:1.5",), network)
    world = environment(task, opened)
    lengths = world.robots.parameters.numbers.clone()
    assert world.robots.parameters.names == ("hinge.length",)
    state, actions = world.state, torch.zeros(WORLDS, 1)
    world.step(actions)
    around = Environment(parameters={"hinge.length": lengths[:, 0]})
    own, usual = (network.rollout(state, torch.zeros(WORLDS, 1, 1), where).q[:, 1] for where in (around, Environment()))
    assert torch.allclose(world.state.q, own, atol=1e-6)
    assert not torch.allclose(own, usual, atol=1e-4)
    with pytest.raises(InputError, match=r"matches no quantity; valid: .*hinge.length"):
        open_randomisation(("hinge.mass=1:2",), network)
    assert open_randomisation(("hinge.length=.8:1.5", "ground=rough"), network, task).ground == "rough"


def test_policies_are_compared_over_the_same_robots():
    texts = ("hinge.mass=x.5:2", "delay.action=0:.05")
    found = policy_figures("pretrained-policy:cartpole", dynamics=("hybrid",), episodes=12, randomise=texts)
    names = list(found.figures)
    assert names[:2] == ["Return in hybrid", "Worst tenth in hybrid"]
    assert found.figures["Worst tenth in hybrid"].value <= found.figures["Return in hybrid"].value
    assert {"Rank correlation in hybrid with hinge.mass", "Rank correlation in hybrid with delay.action"} <= set(names)
    assert "robots with hinge.mass=x.5:2, delay.action=0:.05" in found.of
