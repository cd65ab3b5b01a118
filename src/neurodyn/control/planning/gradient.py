# SPDX-License-Identifier: Apache-2.0
"""Plans improved by gradients through the model, from several starts at once, within the limits of the actions.

Adam's steps, projected onto the limits. A start whose gradient is not finite keeps its plan in that step.
"""

import math

import torch
from torch import Tensor

from neurodyn.control.planning.optimiser import Imagination, PlanOptimiser, best
from neurodyn.control.planning.settings import PlannerSettings
from neurodyn.core.errors import require

_DECAYS = (0.7, 0.95)
"""Adam's moments forget fast: plans change from decision to decision."""


class GradientSettings(PlannerSettings, frozen=True):
    """Settings of planning by gradients.

    Attributes:
        starts: Plans that are improved side by side; one is the last plan, the others are drawn around it.
        steps: Steps of a decision.
        first_steps: Steps of the first decision of an episode.
        rate: Greatest change of an action in a step, as a share of the greatest action.
        noise: Standard deviation of the other starts around the last plan, as a share of the greatest action.
        clip: Greatest norm of the gradient of a plan.
    """

    starts: int = 8
    steps: int = 3
    first_steps: int = 30
    rate: float = 0.1
    noise: float = 0.5
    clip: float = 10.0

    def check(self) -> None:
        """Refuse counts below 1, and steps of no size."""
        for name in ("starts", "steps", "first_steps"):
            require(getattr(self, name) >= 1, name, getattr(self, name), "at least 1")
        for name in ("rate", "noise", "clip"):
            require(0 < getattr(self, name) < math.inf, name, getattr(self, name), "a finite number above 0")


class Gradient(PlanOptimiser):
    """Projected Adam on plans."""

    settings_type = GradientSettings
    settings: GradientSettings
    needs_gradients = True
    stuck: int = 0
    """Plans whose gradient was not finite, in all steps so far."""

    def improve(self, imagination: Imagination, plan: Tensor, *, first: bool) -> Tensor:
        """Return the best plan that was met."""
        settings, limit = self.settings, imagination.limit
        drawn = torch.randn(
            len(plan), settings.starts, *plan.shape[1:], generator=self.generator, dtype=plan.dtype, device=plan.device
        )  # fmt: skip
        drawn[:, 0] = 0.0
        plans = (plan[:, None] + settings.noise * limit * drawn).clamp(-limit, limit)
        found, record = plans, torch.full(plans.shape[:2], -math.inf, dtype=plan.dtype, device=plan.device)
        moments = torch.zeros(2, *plans.shape, dtype=plan.dtype, device=plan.device)
        steps = settings.first_steps if first else settings.steps
        for number in range(1, steps + 1):
            returns, gradient = self._differentiated(imagination, plans)
            better = returns > record
            record, found = torch.where(better, returns, record), torch.where(better[..., None, None], plans, found)
            plans = self._moved(plans, gradient, moments, number, settings.rate * limit).clamp(-limit, limit)
        returns = imagination.returns(plans)
        better = returns > record
        return best(torch.where(better, returns, record), torch.where(better[..., None, None], plans, found))

    def _differentiated(self, imagination: Imagination, plans: Tensor) -> tuple[Tensor, Tensor]:
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
    def _moved(plans: Tensor, gradient: Tensor, moments: Tensor, number: int, rate: float) -> Tensor:
        """Return plans after Adam's step uphill (Kingma and Ba, ICLR 2015)."""
        for moment, value, decay in zip(moments, (gradient, gradient.square()), _DECAYS, strict=True):
            moment.lerp_(value, 1 - decay)
        mean, square = (moment / (1 - decay**number) for moment, decay in zip(moments, _DECAYS, strict=True))
        return plans + rate * mean / (square.sqrt() + 1e-8)
