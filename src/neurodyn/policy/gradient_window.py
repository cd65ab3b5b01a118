# SPDX-License-Identifier: Apache-2.0
"""The loss of a policy over a window of frames, with gradients through the dynamics, and how far ahead these reach."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from neurodyn.policy.environment import PolicyEnvironment


@dataclass(frozen=True)
class GradientWindow:
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


class _LimitedAction(torch.autograd.Function):
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
    result = _LimitedAction.apply(action, mean, limit)
    assert isinstance(result, Tensor)
    return result


def roll(
    world: PolicyEnvironment,
    act: Callable[[Tensor], tuple[Tensor, Tensor]],
    value: Callable[[Tensor], Tensor],
    frames: int,
    gamma: float,
    watch: Callable[[Tensor], Tensor],
) -> GradientWindow:
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
    return GradientWindow(loss, before.detach(), last.detach(), reward.detach(), failed, done)


def window_loss(
    last: Tensor, reward: Tensor, failed: Tensor, done: Tensor, value: Callable[[Tensor], Tensor], gamma: float
) -> Tensor:
    """Return the loss of a window, shape []; arguments are attributes of `GradientWindow` and arguments of `roll`."""
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


LARGE = 0.95
"""Quantile of the worlds that stands for large gradients."""


class GradientWatch:
    """Sees the gradients of one window's actions.

    Attributes:
        norms: Norm of the gradient of each world's return by its actions [1/action], frame by frame, shape
            [frames, worlds]; 0 where it was not finite. Complete after the backward pass.
        lost: Gradients that were not finite.
    """

    def __init__(self, frames: int, worlds: int, most: float | None = None) -> None:
        """Prepare for a window.

        Args:
            frames: Its frames.
            worlds: Its worlds.
            most: Norm above which a gradient is scaled down; None for none.
        """
        self.norms = torch.zeros(frames, worlds)
        self.lost = 0
        self._most, self._frame = most, 0
        self._scale = float(frames * worlds)  # the loss is the mean over frames and worlds

    def __call__(self, action: Tensor) -> Tensor:
        """Return the actions of the next frame, whose gradients will be seen."""
        frame, seen = self._frame, action.view_as(action)
        self._frame += 1
        if seen.requires_grad:
            seen.register_hook(lambda gradient: self._see(frame, gradient))
        return seen

    def _see(self, frame: int, gradient: Tensor) -> Tensor:
        norm = self._scale * gradient.norm(dim=-1)
        if not math.isfinite(float(norm.sum())):
            finite = gradient.isfinite().all(-1)
            self.lost += int((~finite).sum())
            gradient = torch.where(finite[:, None], gradient, 0.0)
            norm = self._scale * gradient.norm(dim=-1)
        self.norms[frame] = norm
        if self._most is None:
            return gradient
        return gradient * (self._most / norm.clamp_min(self._most))[:, None]

    @property
    def median(self) -> float:
        """Median norm over frames and worlds."""
        return float(self.norms.median())

    def by_horizon(self) -> dict[str, list[float]]:
        """Return median and `LARGE` quantile of the norms by the frames ahead: 1, 2, 4 ... and all of the window."""
        frames = len(self.norms)
        ahead = sorted({*(2**n for n in range(frames.bit_length()) if 2**n <= frames), frames})
        levels = torch.tensor([0.5, LARGE])
        return {str(n): self.norms[frames - n].quantile(levels).tolist() for n in ahead}

    def explosion(self) -> float:
        """Return how much larger the mean norm of the window's first frame is than its median.

        Where gradients grow alike in all worlds that is about 1; where contact multiplies them in some, these few
        decide the mean, and with it the policy's step.
        """
        first = self.norms[0]
        median = float(first.median())
        return float(first.mean()) / median if median > 0 else 1.0
