# SPDX-License-Identifier: Apache-2.0
r"""Sampling with annealed noise, as DIAL-MPC does (Xue et al., arXiv 2409.15610).

The noise falls from round to round, and is smaller for the first frames of a plan, which earlier decisions have
improved already, than for its last:

$$\sigma_{i,h} = \sigma\,\exp\Big(-\frac{N - i}{\beta_1 N} - \frac{H - h}{\beta_2 H}\Big), \quad i = N \dots 1$$
"""

import torch
from torch import Tensor

from neurodyn.control.planning.imagination import Imagination
from neurodyn.control.planning.optimiser import PlanOptimiser
from neurodyn.control.planning.settings import SamplingSettings
from neurodyn.control.planning.smooth_noise import smooth_noise
from neurodyn.core.errors import require


class AnnealedSettings(SamplingSettings, frozen=True):
    """Settings of annealed sampling.

    Attributes:
        temperature: Temperature of the weights, in standard deviations of the returns of a round.
        round_decay: How slowly the noise falls over rounds (beta 1).
        frame_decay: How slowly it rises over the frames of a plan (beta 2).
    """

    samples: int = 128
    rounds: int = 2
    noise: float = 1.0
    first_rounds: int = 8
    temperature: float = 0.1
    round_decay: float = 1.0
    frame_decay: float = 1.0

    def check(self) -> None:
        """Refuse a temperature and decays that are not above 0."""
        super().check()
        for name in ("temperature", "round_decay", "frame_decay"):
            require(getattr(self, name) > 0, name, getattr(self, name), "above 0")


class Annealed(PlanOptimiser):
    """Weighted means of candidates, whose noise falls."""

    settings_type = AnnealedSettings
    settings: AnnealedSettings

    def improve(self, imagination: Imagination, plan: Tensor, *, first: bool) -> Tensor:
        """Return the weighted mean of the last round."""
        settings, limit = self.settings, imagination.limit
        rounds, frames = settings.first_rounds if first else settings.rounds, plan.shape[1]
        ahead = (frames - 1 - torch.arange(frames, dtype=plan.dtype, device=plan.device)) / frames
        by_frame = torch.exp(-ahead / settings.frame_decay)[:, None]
        for number in range(rounds):
            noise = settings.noise * limit * by_frame
            noise = noise * torch.exp(torch.tensor(-number / (settings.round_decay * rounds), dtype=plan.dtype))
            drawn = smooth_noise((len(plan), settings.samples, *plan.shape[1:]), settings.knot, self.generator, plan)
            candidates = (plan[:, None] + noise * drawn).clamp(-limit, limit)
            candidates[:, 0] = plan
            returns = imagination.returns(candidates)
            scale = returns.std(1, keepdim=True).clamp_min(1e-6) * settings.temperature
            weights = torch.softmax(returns / scale, 1)
            plan = torch.einsum("wk,wkta->wta", weights, candidates)
        return plan
