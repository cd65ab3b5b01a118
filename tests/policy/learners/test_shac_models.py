# SPDX-License-Identifier: Apache-2.0
"""SHAC in models: gradients of returns are those of finite differences, in networks and contacts."""

import pytest
import torch

from neurodyn.control.resolve import open_dynamics
from neurodyn.control.starts import SampledStarts
from neurodyn.dynamics.batch import State
from neurodyn.learn.budget import TrainState
from neurodyn.policy.learners.shac import ShacLearner
from neurodyn.policy.requests import PolicyTrainingJob
from neurodyn.policy.settings import NetworkSettings, ShacSettings
from neurodyn.policy.worlds.environment import PolicyEnvironment
from neurodyn.tasks import load

MODELS = [("cartpole-swingup", "pretrained:cartpole"), ("anymal-velocity", "pretrained:anymal-walks")]
SETTINGS = ShacSettings(
    worlds=4, horizon=4, iterations=2, critic_minibatches=2, critic_epochs=1,
    network=NetworkSettings(hidden=(8,), initial_std=0.3),
)  # fmt: skip


def slopes(world, actions, direction, step):
    """Return the gradient of the returns by actions, a direction, and the slope along it by finite differences."""
    saved = world.checkpoint()
    assert saved is not None

    def returns(actions: torch.Tensor) -> torch.Tensor:
        world.load(saved)
        world.cut()
        torch.manual_seed(0)
        return world.settle([world.step_tracked(action) for action in actions]).sum(0)

    tracked = actions.clone().requires_grad_()
    with torch.enable_grad():
        (gradient,) = torch.autograd.grad(returns(tracked).sum(), tracked)
    along = direction(gradient)
    with torch.no_grad():
        slope = (returns(actions + step * along) - returns(actions - step * along)) / (2 * step)
    return gradient, along, slope


@pytest.mark.parametrize(("name", "model"), MODELS, ids=["neural", "world model"])
def test_gradients_are_those_of_finite_differences(name, model):
    task, generator = load(name), torch.Generator().manual_seed(0)
    where = open_dynamics(task, model)
    world = PolicyEnvironment(task, where.dynamics, where.starts(task, 3), 4)
    for _ in range(3):
        world.step(torch.zeros(4, len(task.actions)))
    actions = 0.3 * torch.randn(3, 4, len(task.actions), generator=generator)
    gradient, along, slope = slopes(
        world, actions, lambda gradient: gradient / gradient.norm(dim=(0, 2), keepdim=True), 1e-2
    )
    assert bool((gradient.norm(dim=(0, 2)) > 0).all())
    torch.testing.assert_close((gradient * along).sum((0, 2)), slope, rtol=2e-2, atol=1e-3)


@pytest.mark.parametrize(("name", "model"), MODELS, ids=["neural", "world model"])
def test_an_update_moves_the_policy(tmp_path, name, model):
    task = load(name)
    learner = ShacLearner(PolicyTrainingJob(task, open_dynamics(task, model), tmp_path, SETTINGS))
    learner.begin(TrainState())
    before = learner.actor.mlp[0].weight.clone()
    assert learner.step(0.0, TrainState()).taken
    assert not torch.equal(learner.actor.mlp[0].weight, before)
    assert learner.extra_metrics()["gradients"]["4"][0] > 0


class Precise(SampledStarts):
    """Starts in float64."""

    def draw(self, count: int) -> State:
        state = super().draw(count)
        return State(state.q.double(), state.qd.double())


def test_gradients_through_contact():
    task, generator = load("planar-run"), torch.Generator().manual_seed(0)
    world = PolicyEnvironment(task, open_dynamics(task, "hybrid").dynamics, Precise(task, 3), 8)
    shape, double = (6, 8, len(task.actions)), torch.float64
    for _ in range(20):
        world.step(0.3 * torch.randn(shape[1:], generator=generator, dtype=double))
    actions = 0.3 * torch.randn(shape, generator=generator, dtype=double)
    towards = torch.randn(shape, generator=generator, dtype=double)
    gradient, along, slope = slopes(world, actions, lambda _: towards, 1e-6)
    assert bool((world.state.q[:, 1] < 0.6).all()), "the runner shall stand on its feet"
    torch.testing.assert_close((gradient * along).sum((0, 2)), slope, rtol=1e-5, atol=1e-7)
