# SPDX-License-Identifier: Apache-2.0
"""The gradient of a return by actions is that of finite differences where feet touch the ground."""

import torch

from neurodyn.control.resolve import open_dynamics
from neurodyn.control.starts import SampledStarts
from neurodyn.dynamics.batch import State
from neurodyn.policy.environment import PolicyEnvironment
from neurodyn.tasks import load

WORLDS, SETTLE, FRAMES, STEP = 8, 20, 6, 1e-6


class Precise(SampledStarts):
    """Starts in float64."""

    def draw(self, count: int) -> State:
        state = super().draw(count)
        return State(state.q.double(), state.qd.double())


def test_gradients_through_contact():
    task, generator = load("planar-run"), torch.Generator().manual_seed(0)
    world = PolicyEnvironment(task, open_dynamics(task, "hybrid").dynamics, Precise(task, 3), WORLDS)
    shape, double = (FRAMES, WORLDS, len(task.actions)), torch.float64
    for _ in range(SETTLE):
        world.step(0.3 * torch.randn(shape[1:], generator=generator, dtype=double))
    saved = world.checkpoint()
    assert saved is not None

    def returns(actions: torch.Tensor) -> torch.Tensor:
        world.load(saved)
        world.cut()
        return world.settle([world.step_tracked(action) for action in actions]).sum(0)

    actions = 0.3 * torch.randn(shape, generator=generator, dtype=double)
    along = torch.randn(shape, generator=generator, dtype=double)
    tracked = actions.clone().requires_grad_()
    with torch.enable_grad():
        (gradient,) = torch.autograd.grad(returns(tracked).sum(), tracked)
    with torch.no_grad():
        slope = (returns(actions + STEP * along) - returns(actions - STEP * along)) / (2 * STEP)
    feet = world.state.q[:, 1] < 0.6
    assert bool(feet.all()), "the runner shall stand on its feet"
    torch.testing.assert_close((gradient * along).sum((0, 2)), slope, rtol=1e-5, atol=1e-7)
