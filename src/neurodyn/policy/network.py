# SPDX-License-Identifier: Apache-2.0
"""A trained policy: from an observation to an action, without anything of the trainer."""

from collections.abc import Mapping
from itertools import pairwise

import torch
from torch import Tensor, nn

from neurodyn.policy.settings import NetworkSettings

KNOWN = 1_000_000
"""Observations that the normalisation of a given policy counts for when rsl_rl goes on with it."""

_ACTIVATIONS = {"elu": nn.ELU, "relu": nn.ReLU, "tanh": nn.Tanh, "selu": nn.SELU, "silu": nn.SiLU}


class PolicyNetwork(nn.Module):
    """Normalised observation, which may be cut off, hidden layers, mean action, cut off at its limit.

    Attributes:
        mean: Mean of observations, shape [observations].
        deviation: What they are divided by, shape [observations].
        layers: The network.
        limit: Size beyond which components of an action are cut off.
        clip: Size beyond which normalised observations are cut off; None for none.
    """

    mean: Tensor
    deviation: Tensor

    def __init__(
        self,
        observations: int,
        actions: int,
        settings: NetworkSettings,
        limit: float = 1.0,
        *,
        clip: float | None = None,
    ) -> None:
        super().__init__()
        self.limit, self.clip = limit, clip
        widths = [observations, *settings.hidden, actions]
        layers: list[nn.Module] = []
        for before, after in pairwise(widths):
            layers += [nn.Linear(before, after), _ACTIVATIONS[settings.activation]()]
        self.layers = nn.Sequential(*layers[:-1])
        self.register_buffer("mean", torch.zeros(observations))
        self.register_buffer("deviation", torch.ones(observations))

    def forward(self, observation: Tensor) -> Tensor:
        """Return actions, shape [..., actions], for observations, shape [..., observations]."""
        seen = (observation - self.mean) / self.deviation
        if self.clip is not None:
            seen = seen.clamp(-self.clip, self.clip)
        return self.layers(seen).clamp(-self.limit, self.limit)

    @torch.no_grad()
    def take(self, actor: Mapping[str, Tensor], epsilon: float = 0.0) -> None:
        """Copy the state of rsl_rl's MLPModel, whose normaliser adds `epsilon` to the standard deviation."""
        if "obs_normalizer._mean" in actor:
            self.mean.copy_(actor["obs_normalizer._mean"][0])
            self.deviation.copy_(actor["obs_normalizer._std"][0] + epsilon)
        layers = {name.removeprefix("mlp."): value for name, value in actor.items() if name.startswith("mlp.")}
        self.layers.load_state_dict(layers)

    @torch.no_grad()
    def take_mean(self, one: Mapping[str, Tensor], other: Mapping[str, Tensor], share: float) -> None:
        """Copy the mean of the weights of two policies, of which the second counts its share."""
        self.load_state_dict({name: torch.lerp(value, other[name].to(value), share) for name, value in one.items()})

    @torch.no_grad()
    def give(self, actor: Mapping[str, Tensor], epsilon: float = 0.0) -> None:
        """Copy the policy into the state of rsl_rl's MLPModel: what `take` undoes."""
        if "obs_normalizer._mean" in actor:
            deviation = self.deviation - epsilon
            actor["obs_normalizer._mean"].copy_(self.mean[None])
            actor["obs_normalizer._std"].copy_(deviation[None])
            actor["obs_normalizer._var"].copy_(deviation.square()[None])
            actor["obs_normalizer.count"].fill_(KNOWN)
        for name, value in self.layers.state_dict().items():
            actor[f"mlp.{name}"].copy_(value)
