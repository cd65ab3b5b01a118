# SPDX-License-Identifier: Apache-2.0
"""The cross-entropy method: candidates are drawn from a normal distribution that is fitted to the best of them."""

import torch
from torch import Tensor

from neurodyn.control.planning.imagination import Imagination
from neurodyn.control.planning.optimiser import PlanOptimiser, best
from neurodyn.control.planning.settings import SamplingSettings
from neurodyn.control.planning.smooth_noise import smooth_noise
from neurodyn.core.errors import require


class CemSettings(SamplingSettings, frozen=True):
    """Settings of the cross-entropy method.

    Attributes:
        elites: Share of the candidates to which the distribution is fitted.
        floor: Least standard deviation of the distribution, as a share of its first.
    """

    samples: int = 128
    rounds: int = 3
    elites: float = 0.1
    floor: float = 0.1

    def check(self) -> None:
        """Refuse shares that are none."""
        super().check()
        require(0 < self.elites < 1, "elites", self.elites, "between 0 and 1")
        require(0 < self.floor <= 1, "floor", self.floor, "above 0, at most 1")


class Cem(PlanOptimiser):
    """CEM as of Rubinstein (1999), with the best plan of all among the candidates of each round."""

    settings_type = CemSettings
    settings: CemSettings

    def improve(self, imagination: Imagination, plan: Tensor, *, first: bool) -> Tensor:
        """Return the best candidate of all rounds."""
        settings, limit = self.settings, imagination.limit
        mean, std = plan, torch.full_like(plan, settings.noise * limit)
        floor, count = settings.floor * std, max(2, round(settings.elites * settings.samples))
        for _ in range(settings.first_rounds if first else settings.rounds):
            drawn = smooth_noise((len(plan), settings.samples, *plan.shape[1:]), settings.knot, self.generator, plan)
            candidates = (mean[:, None] + std[:, None] * drawn).clamp(-limit, limit)
            candidates[:, 0] = plan
            returns = imagination.returns(candidates)
            chosen = returns.topk(count, 1).indices[..., None, None].expand(-1, -1, *plan.shape[1:])
            elites = candidates.gather(1, chosen)
            mean, std = elites.mean(1), torch.maximum(elites.std(1), floor)
            plan = best(returns, candidates)
        return plan
