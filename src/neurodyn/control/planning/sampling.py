# SPDX-License-Identifier: Apache-2.0
"""Planners that draw plans, or improve them by gradients through the model.

MPPI (Williams et al. 2017), the cross-entropy method, annealed noise as in DIAL-MPC (arXiv 2409.15610), and projected
Adam from several starts, in which a start with a non-finite gradient keeps its plan.
"""

import math

import torch
from torch import Tensor

from neurodyn.control.planning.optimiser import Imagination, PlanOptimiser, best
from neurodyn.control.planning.settings import PlannerSettings, SamplingSettings
from neurodyn.core.config import require_numbers
from neurodyn.core.errors import require


def smooth_noise(shape: tuple[int, ...], knot: int, generator: torch.Generator, like: Tensor) -> Tensor:
    """Return standard normal noise, linear between knots that are `knot` frames apart; 1 for white noise.

    The last two axes of the shape are frames and actions; `like` has the dtype and device.
    """
    frames = shape[-2]
    if knot == 1:
        return torch.randn(shape, generator=generator, dtype=like.dtype, device=like.device)
    count = -(-(frames - 1) // knot) + 1
    knots = torch.randn(*shape[:-2], count, shape[-1], generator=generator, dtype=like.dtype, device=like.device)
    position = torch.arange(frames, dtype=like.dtype, device=like.device) / knot
    before = position.floor().long().clamp_max(max(0, count - 2))
    share = (position - before)[:, None]
    return torch.lerp(knots[..., before, :], knots[..., before + (count > 1), :], share)


class MppiSettings(SamplingSettings, frozen=True):
    """Settings of MPPI."""

    temperature: float = 1.0
    """Difference of returns that reduces a candidate's weight by a factor of e (lambda)."""

    def check(self) -> None:
        """Raise a ValueError for a temperature that is not above 0."""
        super().check()
        require_numbers(self, above=("temperature",))


class Mppi(PlanOptimiser):
    """MPPI for a batch of worlds, which share their noise."""

    settings_type = MppiSettings
    settings: MppiSettings

    def improve(self, imagination: Imagination, plan: Tensor, *, first: bool) -> Tensor:
        """Return the weighted mean of the candidates of the last round."""
        settings, limit = self.settings, imagination.limit
        spread = settings.noise * limit
        for _ in range(settings.first_rounds if first else settings.rounds):
            drawn = smooth_noise((settings.samples, *plan.shape[1:]), settings.knot, self.generator, plan)
            candidates = (plan[:, None] + spread * drawn).clamp(-limit, limit)
            noise = candidates - plan[:, None]
            likelihood = (plan[:, None] * noise).sum((2, 3)) / spread**2
            weights = torch.softmax(imagination.returns(candidates) / settings.temperature - likelihood, 1)
            plan = plan + torch.einsum("wk,wkta->wta", weights, noise)
        return plan


class CemSettings(SamplingSettings, frozen=True):
    """Settings of the cross-entropy method."""

    samples: int = 128
    rounds: int = 3
    elites: float = 0.1
    """Share of the candidates to which the distribution is fitted."""
    floor: float = 0.1
    """Minimum standard deviation of the distribution, as a fraction of its initial one."""
    finest: float = 1.0
    """Noise of the finest candidate, relative to the coarsest one's, with all sizes between them: a round both searches
    and refines. 1 for noise of one size."""

    def check(self) -> None:
        """Raise a ValueError for invalid shares."""
        super().check()
        require(0 < self.elites < 1, "elites", self.elites, "between 0 and 1")
        for name in ("floor", "finest"):
            require(0 < getattr(self, name) <= 1, name, getattr(self, name), "above 0, at most 1")


class Cem(PlanOptimiser):
    """Cross-entropy method (Rubinstein 1999), with the best plan so far among the candidates of each round."""

    settings_type = CemSettings
    settings: CemSettings

    def improve(self, imagination: Imagination, plan: Tensor, *, first: bool) -> Tensor:
        """Return the best candidate of all rounds."""
        settings, limit = self.settings, imagination.limit
        mean, std = plan, torch.full_like(plan, settings.noise * limit)
        floor, count = settings.floor * std, max(2, round(settings.elites * settings.samples))
        sizes = torch.logspace(0, math.log10(settings.finest), settings.samples).to(plan)[:, None, None]
        for _ in range(settings.first_rounds if first else settings.rounds):
            drawn = smooth_noise((len(plan), settings.samples, *plan.shape[1:]), settings.knot, self.generator, plan)
            candidates = (mean[:, None] + std[:, None] * sizes * drawn).clamp(-limit, limit)
            candidates[:, 0] = plan
            returns = imagination.returns(candidates)
            chosen = returns.topk(count, 1).indices[..., None, None].expand(-1, -1, *plan.shape[1:])
            elites = candidates.gather(1, chosen)
            mean, std = elites.mean(1), torch.maximum(elites.std(1), floor)
            plan = best(returns, candidates)
        return plan


class AnnealedSettings(SamplingSettings, frozen=True):
    """Settings of annealed sampling."""

    samples: int = 128
    rounds: int = 2
    noise: float = 1.0
    first_rounds: int = 8
    temperature: float = 0.1
    """Temperature of the weights, in standard deviations of the returns of a round."""
    round_decay: float = 1.0
    """Relative time constant of the noise decay over rounds (beta 1)."""
    frame_decay: float = 1.0
    """Relative time constant of its growth over a plan's frames (beta 2)."""

    def check(self) -> None:
        """Raise a ValueError for a temperature and decays that are not above 0."""
        super().check()
        require_numbers(self, above=("temperature", "round_decay", "frame_decay"))


class Annealed(PlanOptimiser):
    """Weighted means of candidates with decreasing noise."""

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


_DECAYS = (0.7, 0.95)
"""Decays of Adam's moments, which forget fast because plans change from decision to decision."""


class GradientSettings(PlannerSettings, frozen=True):
    """Settings of planning by gradients."""

    starts: int = 8
    """Plans improved in parallel; one is the last plan, the others are drawn around it."""
    steps: int = 3
    """Steps per decision."""
    first_steps: int = 30
    """Steps of the first decision of an episode."""
    rate: float = 0.1
    """Largest change of an action per step, relative to the action limit."""
    noise: float = 0.5
    """Standard deviation of the other starts around the last plan, relative to the action limit."""
    clip: float = 10.0
    """Limit of the gradient norm of a plan."""

    def check(self) -> None:
        """Raise a ValueError for counts below 1, and for invalid step sizes."""
        require_numbers(self, above=("starts", "steps", "first_steps", "rate", "noise", "clip"))


class Gradient(PlanOptimiser):
    """Projected Adam on plans."""

    settings_type = GradientSettings
    settings: GradientSettings
    needs_gradients = True
    stuck: int = 0
    """Number of plans with a non-finite gradient, in all steps so far."""

    def improve(self, imagination: Imagination, plan: Tensor, *, first: bool) -> Tensor:
        """Return the best plan found."""
        settings, limit = self.settings, imagination.limit
        drawn = torch.randn(
            len(plan), settings.starts, *plan.shape[1:], generator=self.generator, dtype=plan.dtype, device=plan.device
        )
        drawn[:, 0] = 0.0
        plans = (plan[:, None] + settings.noise * limit * drawn).clamp(-limit, limit)
        best_plans, record = plans, torch.full(plans.shape[:2], -math.inf, dtype=plan.dtype, device=plan.device)
        moments = torch.zeros(2, *plans.shape, dtype=plan.dtype, device=plan.device)
        steps = settings.first_steps if first else settings.steps
        for number in range(1, steps + 1):
            returns, gradient = self._differentiate(imagination, plans)
            better = returns > record
            record, best_plans = (
                torch.where(better, returns, record),
                torch.where(better[..., None, None], plans, best_plans),
            )
            plans = self._ascend(plans, gradient, moments, number, settings.rate * limit).clamp(-limit, limit)
        returns = imagination.returns(plans)
        better = returns > record
        return best(torch.where(better, returns, record), torch.where(better[..., None, None], plans, best_plans))

    def _differentiate(self, imagination: Imagination, plans: Tensor) -> tuple[Tensor, Tensor]:
        """Return returns and clipped gradients; zero where they are not finite."""
        with torch.enable_grad():
            given = plans.detach().requires_grad_()
            returns = imagination.returns(given, tracked=True)
            (gradient,) = torch.autograd.grad(returns.sum(), given)
        finite = gradient.isfinite().all(-1).all(-1)
        self.stuck += int((~finite).sum())
        gradient = torch.where(finite[..., None, None], gradient, 0.0)
        norm = gradient.flatten(2).norm(dim=-1)[..., None, None]
        return returns.detach(), gradient * (self.settings.clip / norm.clamp_min(self.settings.clip))

    @staticmethod
    def _ascend(plans: Tensor, gradient: Tensor, moments: Tensor, number: int, rate: float) -> Tensor:
        """Return plans after an ascent step of Adam (Kingma and Ba, ICLR 2015)."""
        for moment, value, decay in zip(moments, (gradient, gradient.square()), _DECAYS, strict=True):
            moment.lerp_(value, 1 - decay)
        mean, square = (moment / (1 - decay**number) for moment, decay in zip(moments, _DECAYS, strict=True))
        return plans + rate * mean / (square.sqrt() + 1e-8)
