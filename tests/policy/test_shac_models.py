# SPDX-License-Identifier: Apache-2.0
"""SHAC in networks: returns are differentiated through a neural model and a world model, and the policy moves."""

import msgspec
import pytest
import torch

from neurodyn.control.resolve import open_dynamics
from neurodyn.learn.plan import TrainState
from neurodyn.policy.environment import PolicyEnvironment
from neurodyn.policy.requests import PolicyTrainingJob
from neurodyn.policy.settings import NetworkSettings, ShacSettings
from neurodyn.policy.shac import ShacLearner
from neurodyn.tasks import load

MODELS = [("cartpole-swingup", "pretrained:cartpole"), ("anymal-velocity", "pretrained:anymal-walks")]
SETTINGS = ShacSettings(
    worlds=4, horizon=4, iterations=2, critic_minibatches=2, critic_epochs=1,
    network=NetworkSettings(hidden=(8,), initial_std=0.3),
)  # fmt: skip


@pytest.mark.parametrize(("name", "model"), MODELS, ids=["neural", "world model"])
def test_gradients_are_those_of_finite_differences(name, model):
    task, generator = load(name), torch.Generator().manual_seed(0)
    where = open_dynamics(task, model)
    world = PolicyEnvironment(task, where.dynamics, where.starts(task, 3), 4)
    for _ in range(3):
        world.step(torch.zeros(4, len(task.actions)))
    saved = world.checkpoint()
    assert saved is not None

    def returns(actions: torch.Tensor) -> torch.Tensor:
        world.load(saved)
        world.cut()
        torch.manual_seed(0)
        return world.settle([world.step_tracked(action) for action in actions]).sum(0)

    actions = 0.3 * torch.randn(3, 4, len(task.actions), generator=generator)
    tracked = actions.clone().requires_grad_()
    with torch.enable_grad():
        (gradient,) = torch.autograd.grad(returns(tracked).sum(), tracked)
    along, step = gradient / gradient.norm(dim=(0, 2), keepdim=True), 1e-2
    with torch.no_grad():
        slope = (returns(actions + step * along) - returns(actions - step * along)) / (2 * step)
    assert bool((gradient.norm(dim=(0, 2)) > 0).all())
    torch.testing.assert_close((gradient * along).sum((0, 2)), slope, rtol=2e-2, atol=1e-3)


@pytest.mark.parametrize(("name", "model"), MODELS, ids=["neural", "world model"])
def test_an_update_moves_the_policy(tmp_path, name, model):
    task = load(name)
    settings = msgspec.structs.replace(SETTINGS)
    learner = ShacLearner(PolicyTrainingJob(task, open_dynamics(task, model), tmp_path, settings))
    learner.begin(TrainState())
    before = learner.actor.mlp[0].weight.clone()
    assert learner.step(0.0, TrainState()).taken
    assert not torch.equal(learner.actor.mlp[0].weight, before)
    assert learner.extra_metrics()["gradients"]["4"][0] > 0
