# SPDX-License-Identifier: Apache-2.0
r"""The loss of a policy over a window of frames, with gradients through the dynamics.

$$L = -\frac{1}{N H} \sum_{i=1}^{N} \sum_{\text{parts of } i}
\Big[ \sum_{t=0}^{T-1} \gamma^t r_t + \gamma^{T} V(o_T) \Big]$$

over N worlds and a window of H frames (Xu et al., ICLR 2022, arXiv 2204.07137, eq. 5). A part ends where the window or
an episode does, after T frames; V is 0 after a failure. Gradients end at the window's start and where worlds start
anew.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from neurodyn.policy.environment import PolicyEnvironment


@dataclass(frozen=True)
class Window:
    """What happened in a window, frame by frame; without gradients but for `loss`.

    Attributes:
        loss: The loss, shape [].
        seen: Observations at which the policy acted, shape [frames, worlds, observations].
        last: Observations of the states in which frames ended, shape [frames, worlds, observations].
        reward: Rewards, as the learner sees them, shape [frames, worlds].
        failed: Where an episode failed, shape [frames, worlds].
        done: Where an episode ended, shape [frames, worlds].
    """

    loss: Tensor
    seen: Tensor
    last: Tensor
    reward: Tensor
    failed: Tensor
    done: Tensor


class _Held(torch.autograd.Function):
    """Cuts actions off at a limit; gradients pass within it, and where a mean beyond it is led back."""

    @staticmethod
    def forward(ctx: Any, action: Tensor, mean: Tensor, limit: float) -> Tensor:
        ctx.save_for_backward(action, mean)
        ctx.limit = limit
        return action.clamp(-limit, limit)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        (action, mean), (gradient,), limit = ctx.saved_tensors, gradients, ctx.limit
        # A loss is descended: along a positive gradient an action falls, back from where it is positive, too.
        beyond = torch.where(mean.abs() > limit, mean, 0.0)
        # Of two truths, a > b is "a and not b"; what is not a number leads nowhere.
        return gradient.masked_fill((action.abs() > limit) > (gradient * beyond > 0.0), 0.0), None, None


def held(action: Tensor, mean: Tensor, limit: float) -> Tensor:
    """Return actions cut off at a limit, with the gradients (of a loss) of that, and some more.

    Those of the plain function are zero beyond the limit, and a policy whose mean is far beyond would never come back:
    there, gradients that lead back pass. They do not where noise alone took an action beyond, which would pull every
    mean towards zero.

    Args:
        action: Actions, shape [worlds, actions].
        mean: Their means, likewise.
        limit: The limit.
    """
    result = _Held.apply(action, mean, limit)
    assert isinstance(result, Tensor)
    return result


def roll(
    world: PolicyEnvironment,
    act: Callable[[Tensor], tuple[Tensor, Tensor]],
    value: Callable[[Tensor], Tensor],
    frames: int,
    gamma: float,
    watch: Callable[[Tensor], Tensor],
) -> Window:
    """Let a policy act for a window.

    Args:
        world: The worlds, which go on from where they are.
        act: From observations to actions and their means, each of shape [worlds, actions].
        value: Value of observations, shape [rows], from those, shape [rows, observations].
        frames: Frames of the window.
        gamma: Discount of a frame.
        watch: Sees the actions of each frame before they act, and returns them (`GradientWatch`).
    """
    world.cut()
    observation = world.get_observations()["policy"]
    seen, rolled = [], []
    for _ in range(frames):
        seen.append(observation)
        action = held(*act(observation), world.task.limit)
        frame = world.step_tracked(watch(action))
        observation = frame.observation
        rolled.append(frame)
    reward = world.settle(rolled)
    before, last, failed, done = (
        torch.stack(part)
        for part in (seen, *zip(*((frame.last, frame.end.failed, frame.done) for frame in rolled), strict=True))
    )
    loss = window_loss(last, reward, failed, done, value, gamma)
    return Window(loss, before.detach(), last.detach(), reward.detach(), failed, done)


def window_loss(
    last: Tensor, reward: Tensor, failed: Tensor, done: Tensor, value: Callable[[Tensor], Tensor], gamma: float
) -> Tensor:
    """Return the loss of a window, shape []; arguments are attributes of `Window`, with gradients, and as of `roll`."""
    frames, worlds = reward.shape
    weight, weights = torch.ones_like(reward[0]), []
    anew = done.to(reward)
    for begins, goes_on in zip(anew, gamma * (1.0 - anew), strict=True):
        weights.append(weight)
        weight = torch.addcmul(begins, goes_on, weight)
    ends = done.clone()
    ends[-1] = True
    rows = (ends & ~failed).flatten().nonzero()[:, 0]
    weighed = torch.stack(weights)
    worth = gamma * weighed.flatten()[rows] * value(last.flatten(0, 1)[rows])
    return -((weighed * reward).sum() + worth.sum()) / (frames * worlds)
