# SPDX-License-Identifier: Apache-2.0
"""The gradient of a policy through a window is that of finite differences, wherever episodes end in it."""

import pytest
import torch
from torch import Tensor

from neurodyn.control.returns import lambda_returns
from neurodyn.control.starts import SampledStarts
from neurodyn.core.description.spec import JointSpec, StateSpec
from neurodyn.dynamics.batch import State
from neurodyn.policy.learners.gradient_window import GradientWatch, clip_with_gradient, roll, window_loss
from neurodyn.policy.worlds.environment import PolicyEnvironment
from tests.policy.small_worlds import Hold, Mass

GAMMA = 0.9
SPEC = StateSpec(robot="mass", joints=(JointSpec(name="line", kind="prismatic"),), controls=("line",), dt=0.1)


class Curved(Hold):
    """A reward with a curvature, and starts in float64; fails beyond .52, and times out after five frames."""

    def start(self, worlds: int, generator: torch.Generator) -> State:
        q = torch.rand(worlds, 1, generator=generator, dtype=torch.float64) - 0.5
        return State(q, torch.zeros_like(q))

    def reward(self, quantities, memory, action) -> dict[str, Tensor]:
        place = torch.cos(3.0 * quantities["joint_position"][:, 0])
        return {"place": place, "effort": -0.1 * (action - memory.action)[:, 0].square()}

    def terminated(self, quantities, memory) -> Tensor:
        return quantities["joint_position"][:, 0].abs() > 0.52


def world(worlds: int = 6) -> PolicyEnvironment:
    task = Curved()
    return PolicyEnvironment(task, Mass(SPEC), SampledStarts(task, 3), worlds)


def network(outputs: int, seed: int) -> torch.nn.Sequential:
    torch.manual_seed(seed)
    layers = torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Linear(8, outputs)
    return torch.nn.Sequential(*layers).double()


def window(actor, frames=12, worlds=6):
    critic = network(1, 1)
    watch = GradientWatch(frames, worlds)
    with torch.enable_grad():
        found = roll(world(worlds), lambda seen: 2 * (0.5 * torch.tanh(actor(seen)),), lambda seen: critic(seen)[:, 0],
                     frames, GAMMA, watch)  # fmt: skip
    return found, watch


def test_gradients_are_those_of_finite_differences():
    actor = network(1, 0)
    found, watch = window(actor)
    assert bool(found.failed.any()), "an episode shall fail within the window"
    assert bool((found.done & ~found.failed).any()), "and one time out"
    found.loss.backward()
    for parameter in actor.parameters():
        assert parameter.grad is not None
        flat, gradient = parameter.data.view(-1), parameter.grad.view(-1)
        for index in range(0, len(flat), 5):
            values = []
            for step in (1e-6, -1e-6):
                flat[index] += step
                values.append(float(window(actor)[0].loss.detach()))
                flat[index] -= step
            assert (values[0] - values[1]) / 2e-6 == pytest.approx(float(gradient[index]), rel=1e-6, abs=1e-9)
    assert bool((watch.norms > 0).all())


def test_the_loss_is_the_discounted_return_of_each_part():
    reward = torch.tensor([[1.0], [2.0], [4.0], [8.0]], dtype=torch.float64)
    done = torch.tensor([[False], [True], [False], [False]])
    value = {"late": 10.0, "end": 20.0}

    def critic(last: Tensor) -> Tensor:
        return last[:, 0]

    last = torch.tensor([[0.0], [value["late"]], [0.0], [value["end"]]], dtype=torch.float64)[..., None]
    tail = 4.0 + GAMMA * 8.0 + GAMMA**2 * value["end"]
    late = 1.0 + GAMMA * 2.0 + GAMMA**2 * value["late"]
    loss = window_loss(last, reward, torch.zeros_like(done), done, critic, GAMMA)
    assert float(loss) == pytest.approx(-(late + tail) / 4)
    failed = window_loss(last, reward, done, done, critic, GAMMA)
    assert float(failed) == pytest.approx(-(1.0 + GAMMA * 2.0 + tail) / 4)


def test_means_beyond_the_limit_come_back_and_go_no_further():
    mean = torch.tensor([-3.0, -3.0, 0.5, 0.5, 3.0, 3.0])
    action = mean.clone().requires_grad_()
    cut = clip_with_gradient(action, mean, 1.0)
    assert cut.tolist() == [-1.0, -1.0, 0.5, 0.5, 1.0, 1.0]
    towards = torch.tensor([1.0, -1.0, 1.0, -1.0, 1.0, -1.0])  # a loss is descended: against its gradient
    (gradient,) = torch.autograd.grad(cut, action, towards)
    assert gradient.tolist() == [0.0, -1.0, 1.0, -1.0, 1.0, 0.0]


def test_noise_beyond_the_limit_does_not_pull_the_mean_to_zero():
    generator = torch.Generator().manual_seed(0)
    noise, slopes = torch.randn(2, 100_000, generator=generator, dtype=torch.float64)
    mean = torch.tensor(0.8, dtype=torch.float64, requires_grad=True)

    def loss(mean):
        return (slopes * clip_with_gradient(mean + noise, mean.expand_as(noise), 1.0)).mean()

    (gradient,) = torch.autograd.grad(loss(mean), mean)
    found = (loss(mean.detach() + 1e-3) - loss(mean.detach() - 1e-3)) / 2e-3
    assert float(gradient) == pytest.approx(float(found), abs=2e-3)


def test_gradients_that_are_not_finite_are_left_out_and_large_ones_scaled_down():
    watch = GradientWatch(1, 3, most=6.0)
    action = torch.ones(3, 1, requires_grad=True)
    factor = torch.tensor([[1.0], [torch.nan], [10.0]])
    (factor * clip_with_gradient(action, action.detach(), 2.0, watch.next_hook())).mean().backward()
    assert action.grad is not None
    torch.testing.assert_close(action.grad[:, 0], torch.tensor([1.0, 0.0, 6.0]) / 3)
    assert watch.not_finite == 1
    torch.testing.assert_close(watch.norms, torch.tensor([[1.0, 0.0, 10.0]]))


def test_lambda_returns():
    generator = torch.Generator().manual_seed(0)
    reward, value = torch.randn(2, 5, 3, generator=generator, dtype=torch.float64)
    never = torch.zeros(5, 3, dtype=torch.bool)
    one_step = lambda_returns(reward, value, never, never, GAMMA, 0.0)
    torch.testing.assert_close(one_step, reward + GAMMA * value)
    whole = lambda_returns(reward, value, never, never, GAMMA, 1.0)
    powers = GAMMA ** torch.arange(5, dtype=torch.float64)
    torch.testing.assert_close(whole[0], (powers[:, None] * reward).sum(0) + GAMMA**5 * value[-1])
    # The mean of n-step returns with weights (1 - lambda) lambda^(n - 1), the rest on the longest.
    lam, n_step = 0.7, []
    for n in range(1, 6):
        n_step.append((powers[:n, None] * reward[:n]).sum(0) + GAMMA**n * value[n - 1])
    weights = [(1 - lam) * lam**n for n in range(4)] + [lam**4]
    mixed = sum(weight * part for weight, part in zip(weights, n_step, strict=True))
    torch.testing.assert_close(lambda_returns(reward, value, never, never, GAMMA, lam)[0], mixed)
    done = never.clone()
    done[2] = True
    failed = lambda_returns(reward, value, done, done, GAMMA, lam, failure=-7.0)
    torch.testing.assert_close(failed[2], reward[2] - 7.0 * GAMMA)
