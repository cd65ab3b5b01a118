# SPDX-License-Identifier: Apache-2.0
r"""PPO of rsl_rl with a faster update on a CPU: the same steps, to rounding.

Observations are normalised and put into minibatches once an update instead of once an epoch, gradients of the loss

$$L = -\overline{\min(r A,\ \mathrm{clip}(r, 1 - \epsilon, 1 + \epsilon) A)} + c_v \overline{(R - V)^2}
- c_e \overline{H}, \quad r = \pi(a)/\pi_{old}(a)$$

(Schulman et al., arXiv 1707.06347) are written out for a Gaussian of constant deviation, and pass the networks chunk by
chunk (`policy.mlp_pass`).
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields
from itertools import chain
from typing import Any

import torch
from rsl_rl.algorithms import PPO as ReferencePPO  # noqa: N811
from rsl_rl.models import MLPModel
from rsl_rl.modules import GaussianDistribution
from tensordict import TensorDict
from torch import Tensor, nn

from neurodyn.learn.ranks import here
from neurodyn.policy.mlp_pass import CHUNK, MlpPass

LEAST_RATE = 1e-5
"""Least learning rate of the adaptive schedule."""

_MOST_RATE, _RATE_FACTOR = 1e-2, 1.5


@dataclass(frozen=True)
class _Frames:
    """Frames that are learnt from, one to a row.

    Attributes:
        seen: Normalised observations of the policy, shape [n, observations].
        judged: Those of the critic, likewise.
        action: Actions, shape [n, actions].
        log_prob: Logarithm of their probability densities when they were taken, shape [n].
        advantage: Advantages, shape [n].
        target: Returns, shape [n, 1].
        mean: Mean of the policy when they were taken, shape [n, actions].
        std: Its standard deviation, likewise.
    """

    seen: Tensor
    judged: Tensor
    action: Tensor
    log_prob: Tensor
    advantage: Tensor
    target: Tensor
    mean: Tensor
    std: Tensor

    def rows(self, index: Tensor | slice) -> "_Frames":
        return _Frames(*(getattr(self, field.name)[index] for field in fields(self)))

    def pieces(self, size: int) -> "Iterator[_Frames]":
        for begin in range(0, len(self.action), size):
            yield self.rows(slice(begin, begin + size))


class PPO(ReferencePPO):
    """PPO; on a CPU, and for the networks and settings of `neurodyn.policy`, with an update of its own."""

    actor: MLPModel
    critic: MLPModel

    def __init__(self, *arguments: Any, **options: Any) -> None:
        """Take what rsl_rl's PPO takes."""
        super().__init__(*arguments, **options)
        self._passes: tuple[MlpPass, MlpPass] | None = None
        if self._plain():
            self._passes = MlpPass(self.actor.mlp), MlpPass(self.critic.mlp)
            parameters = chain(self.actor.parameters(), self.critic.parameters())
            self.optimizer = torch.optim.Adam(parameters, lr=self.learning_rate, fused=True)

    def compute_returns(self, obs: TensorDict) -> None:
        """Compute returns and advantages, which have mean 0 and deviation 1 over the frames of all ranks."""
        super().compute_returns(obs)
        storage = self.storage
        if here().count > 1 and not self.normalize_advantage_per_mini_batch:
            found = (storage.returns - storage.values).double()
            mean, square = found.mean(), found.square().mean()
            here().average([mean, square])
            count = found.numel() * here().count
            deviation = ((square - mean.square()) * count / (count - 1)).clamp_min(0.0).sqrt()
            storage.advantages = ((found - mean) / (deviation + 1e-8)).to(storage.returns)

    def update(self) -> dict[str, float]:
        """Make the optimiser steps of all epochs; return mean losses."""
        if self._passes is None:
            return super().update()
        with torch.no_grad():
            losses = self._update(*self._passes)
        observations = self.storage.observations.flatten(0, 1)
        self.actor.update_normalization(observations)
        self.critic.update_normalization(observations)
        self.storage.clear()
        return losses

    def _plain(self) -> bool:
        """Return whether models and settings are those that the update knows."""
        models, distribution = (self.actor, self.critic), getattr(self.actor, "distribution", None)
        return (
            torch.device(self.device).type == "cpu"
            and all(type(model) is MLPModel and MlpPass.fits(model.mlp) for model in models)
            and type(distribution) is GaussianDistribution
            and distribution.std_type == "log"
            and type(self.optimizer) is torch.optim.Adam
            and self.rnd is None
            and self.symmetry is None
            and not self.use_clipped_value_loss
            and not self.normalize_advantage_per_mini_batch
            and not self.use_mixed_precision
        )

    def _update(self, actor: MlpPass, critic: MlpPass) -> dict[str, float]:
        frames = self._frames()
        size = len(frames.action) // self.num_mini_batches
        sums = torch.zeros(3)
        for _ in range(self.num_learning_epochs):
            for minibatch in frames.pieces(size):
                sums += self._step(actor, critic, minibatch)
        means = (sums / (self.num_learning_epochs * self.num_mini_batches)).tolist()
        return dict(zip(("value", "surrogate", "entropy"), means, strict=True))

    def _frames(self) -> _Frames:
        """Return the frames of the storage in the order in which minibatches take them."""
        storage = self.storage
        count = storage.num_envs * storage.num_transitions_per_env // self.num_mini_batches * self.num_mini_batches
        assert storage.distribution_params is not None
        observations = storage.observations.flatten(0, 1)
        mean, std = (parameter.flatten(0, 1) for parameter in storage.distribution_params)
        return _Frames(
            self.actor.get_latent(observations),
            self.critic.get_latent(observations),
            storage.actions.flatten(0, 1),
            storage.actions_log_prob.flatten(),
            storage.advantages.flatten(),
            storage.returns.flatten(0, 1),
            mean,
            std,
        ).rows(torch.randperm(count, device=self.device))

    def _step(self, actor: MlpPass, critic: MlpPass, minibatch: _Frames) -> Tensor:
        """Make one optimiser step; return the losses of the value and of the surrogate, and the entropy."""
        distribution = self.actor.distribution
        assert isinstance(distribution, GaussianDistribution)
        log_std = distribution.log_std_param
        lower, upper = distribution.log_std_range
        clamped = log_std.clamp(lower, upper)
        count, learning = len(minibatch.action), log_std.requires_grad
        self.optimizer.zero_grad()
        critic.begin()
        if learning:
            actor.begin()
        value_loss, surrogate, divergence = torch.zeros(()), torch.zeros(()), torch.zeros(())
        towards_std = torch.zeros_like(log_std)
        for part in minibatch.pieces(CHUNK):
            error = critic.forward(part.judged) - part.target
            value_loss += error.square().sum()
            critic.backward(error.mul_(2.0 * self.value_loss_coef / count))
            head = _Surrogate.of(actor.forward(part.seen), clamped, part, self.clip_param)
            surrogate += head.loss
            divergence += head.divergence
            if learning:
                actor.backward(head.towards_mean.div_(count))
                towards_std += head.towards_log_std
        entropy = (clamped + 0.5 * (1.0 + math.log(2.0 * math.pi))).sum()
        if learning:
            inside = (log_std >= lower) & (log_std <= upper)
            log_std.grad = (towards_std / count - self.entropy_coef) * inside
        parameters = chain(self.actor.parameters(), self.critic.parameters())
        here().average([divergence, *(p.grad for p in parameters if p.grad is not None)])
        if self.desired_kl is not None and self.schedule == "adaptive":
            self._adapt(float(divergence) / count)
        nn.utils.clip_grad_norm_(self.actor.parameters(), self.max_grad_norm)
        nn.utils.clip_grad_norm_(self.critic.parameters(), self.max_grad_norm)
        self.optimizer.step()
        return torch.stack([value_loss / count, surrogate / count, entropy])

    def _adapt(self, divergence: float) -> None:
        """Keep the change of the policy near `desired_kl` by the learning rate."""
        if divergence > self.desired_kl * 2.0:
            self.learning_rate = max(LEAST_RATE, self.learning_rate / _RATE_FACTOR)
        elif 0.0 < divergence < self.desired_kl / 2.0:
            self.learning_rate = min(_MOST_RATE, self.learning_rate * _RATE_FACTOR)
        for group in self.optimizer.param_groups:
            group["lr"] = self.learning_rate


@dataclass(frozen=True)
class _Surrogate:
    """The clipped surrogate of some frames, summed, and where it leads.

    Attributes:
        loss: The surrogate.
        divergence: Divergence of the policy from the one that acted, KL(old | new).
        towards_mean: Gradient of the loss with respect to the policy's mean, shape [n, actions].
        towards_log_std: Gradient with respect to the logarithm of its standard deviation, shape [actions].
    """

    loss: Tensor
    divergence: Tensor
    towards_mean: Tensor
    towards_log_std: Tensor

    @classmethod
    def of(cls, mean: Tensor, log_std: Tensor, frames: _Frames, clip: float) -> "_Surrogate":
        std = log_std.exp()
        deviation = (frames.action - mean) / std
        log_prob = -0.5 * deviation.square().sum(-1) - (log_std + 0.5 * math.log(2.0 * math.pi)).sum()
        ratio = (log_prob - frames.log_prob).exp_()
        plain = -frames.advantage * ratio
        clipped = -frames.advantage * ratio.clamp(1.0 - clip, 1.0 + clip)
        towards = torch.where(plain >= clipped, plain, 0.0)[:, None]  # times the gradient of the log-probability
        spread = frames.std / std
        moved = (frames.mean - mean) / std
        divergence = 0.5 * (spread.square() + moved.square() - 1.0).sum() - spread.log().sum()
        return cls(
            torch.maximum(plain, clipped).sum(),
            divergence,
            towards * deviation / std,
            (towards * (deviation.square() - 1.0)).sum(0),
        )
