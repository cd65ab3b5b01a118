# SPDX-License-Identifier: Apache-2.0
"""Loss of a policy over a window of frames, differentiated through the dynamics, and statistics of its gradients."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from neurodyn.policy.worlds.environment import PolicyEnvironment
from neurodyn.tasks.views import SENSORS


@dataclass(frozen=True)
class GradientWindow:
    """Rollout of a window. Only `loss` carries gradients.

    Attributes:
        loss: The loss, shape [].
        seen: Observations at the start of frames, shape [frames, worlds, observations].
        judged: What the critic sees at the start of frames, shape [frames, worlds, columns].
        last: What the critic sees at the end of frames, before resets, shape [frames, worlds, columns].
        reward: Rewards less the penalty, scaled, shape [frames, worlds].
        failed: Whether episodes failed, shape [frames, worlds].
        done: Whether episodes ended, shape [frames, worlds].
    """

    loss: Tensor
    seen: Tensor
    judged: Tensor
    last: Tensor
    reward: Tensor
    failed: Tensor
    done: Tensor


class _LimitedAction(torch.autograd.Function):
    """Clips actions; gradients are observed, and pass within the limit, or beyond it if they lead the mean back."""

    @staticmethod
    def forward(
        ctx: Any, action: Tensor, mean: Tensor, limit: float, replace_gradient: Callable[[Tensor], Tensor] | None
    ) -> Tensor:
        ctx.save_for_backward(action, mean)
        ctx.limit, ctx.replace_gradient = limit, replace_gradient
        return action.clamp(-limit, limit)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        (action, mean), (gradient,), limit = ctx.saved_tensors, gradients, ctx.limit
        if ctx.replace_gradient is not None:
            gradient = ctx.replace_gradient(gradient)
        # Gradient descent moves an action against its gradient, so an equal sign leads back.
        beyond = torch.where(mean.abs() > limit, mean, 0.0)
        # For booleans, a > b is "a and not b". NaN blocks the gradient.
        return gradient.masked_fill((action.abs() > limit) > (gradient * beyond > 0.0), 0.0), None, None, None


def clip_with_gradient(
    action: Tensor, mean: Tensor, limit: float, replace_gradient: Callable[[Tensor], Tensor] | None = None
) -> Tensor:
    """Clip actions to a limit, with gradients that can lead a mean back from beyond it.

    The gradient of a plain clip is zero beyond the limit, so that a policy whose mean is far beyond would never return.
    Here, gradients that lead back pass if the mean itself is beyond the limit. If only the noise took an action beyond
    the limit, they are blocked, because they would pull every mean towards zero.

    Sampled and mean actions have shape [worlds, actions]. `replace_gradient` receives the gradient by the clipped
    actions first, and returns its replacement.
    """
    result = _LimitedAction.apply(action, mean, limit, replace_gradient)
    assert isinstance(result, Tensor)
    return result


def roll(
    world: PolicyEnvironment,
    act: Callable[[Tensor], tuple[Tensor, Tensor]],
    value: Callable[[Tensor], Tensor],
    frames: int,
    gamma: float,
    watch: "GradientWatch",
) -> GradientWindow:
    """Roll out a policy for a window.

    Args:
        world: The worlds, which continue from their current state.
        act: From observations to actions and their means, each of shape [worlds, actions].
        value: From what the critic sees, shape [rows, columns], to values, shape [rows].
        frames: Length of the window.
        gamma: Discount factor per frame.
        watch: Observer of each frame's gradients by the actions.
    """
    world.cut()
    observation, known = world.seen, world.judged
    apart = world.task.observes == SENSORS
    seen, judged, rolled = [], [], []
    for _ in range(frames):
        seen.append(observation)
        if apart:
            judged.append(known.detach())
        action = clip_with_gradient(*act(observation), world.task.limit, watch.next_hook())
        frame = world.step_tracked(action)
        observation, known = frame.observation, frame.judged_next
        rolled.append(frame)
    reward = world.settle(rolled)
    before, last, failed, done = (
        torch.stack(part)
        for part in (seen, *zip(*((frame.judged, frame.end.failed, frame.done) for frame in rolled), strict=True))
    )
    loss = window_loss(last, reward, failed, done, value, gamma)
    before = before.detach()
    known = torch.stack(judged) if apart else before
    return GradientWindow(loss, before, known, last.detach(), reward.detach(), failed, done)


def window_loss(
    last: Tensor, reward: Tensor, failed: Tensor, done: Tensor, value: Callable[[Tensor], Tensor], gamma: float
) -> Tensor:
    """Return the loss of a window, shape []; arguments: see `GradientWindow` and `roll`."""
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
"""Upper quantile over worlds of the gradient norms."""


class GradientWatch:
    """Records the gradient of the return with respect to the actions of a window.

    Attributes:
        norms: Norm of this gradient [1/action] by frame and world, shape [frames, worlds]; 0 where it was not finite.
            Complete after the backward pass.
        not_finite: Number of gradients that were not finite.
    """

    def __init__(self, frames: int, worlds: int, most: float | None = None) -> None:
        """Prepare for a window; gradients larger than `most` are scaled down to it."""
        self.norms = torch.zeros(frames, worlds)
        self.not_finite = 0
        self._most, self._frame = most, 0
        self._scale = float(frames * worlds)  # the loss is the mean over frames and worlds

    def next_hook(self) -> Callable[[Tensor], Tensor]:
        """Return a hook for the next frame that records its gradients and returns those to pass on."""
        frame, self._frame = self._frame, self._frame + 1
        return partial(self._record, frame)

    def _record(self, frame: int, gradient: Tensor) -> Tensor:
        norm = self._scale * torch.linalg.vector_norm(gradient, dim=-1)
        if not math.isfinite(norm.sum().item()):
            finite = gradient.isfinite().all(-1)
            self.not_finite += int((~finite).sum())
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
        """Return median and `LARGE` quantile of the norms by frames to the end of the window: 1, 2, 4 ... and all."""
        frames = len(self.norms)
        ahead = sorted({*(2**n for n in range(frames.bit_length()) if 2**n <= frames), frames})
        levels = torch.tensor([0.5, LARGE])
        return {str(n): self.norms[frames - n].quantile(levels).tolist() for n in ahead}

    def explosion(self) -> float:
        """Return the ratio of mean to median norm in the first frame of the window.

        About 1 if gradients grow alike in all worlds. If contacts multiply them in a few worlds, these dominate the
        mean, and with it the step of the optimiser.
        """
        first = self.norms[0]
        median = float(first.median())
        return float(first.mean()) / median if median > 0 else 1.0
