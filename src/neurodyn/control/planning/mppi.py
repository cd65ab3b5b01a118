# SPDX-License-Identifier: Apache-2.0
r"""Model predictive path integral control (Williams et al. 2017, "Information Theoretic MPC"), in any dynamics.

Of a plan $u$, candidates $u + \epsilon_k$ with noise of standard deviation $\sigma$ return $R_k$; the plan moves by

$$\sum_k w_k \epsilon_k, \quad w_k \propto \exp\Big(\frac{R_k}{\lambda} - \frac{u \cdot \epsilon_k}{\sigma^2}\Big)$$

where $\epsilon_k$ is what is left of the noise within the limits of the actions.
"""

import torch
from torch import Tensor

from neurodyn.control.planning.imagination import Imagination
from neurodyn.control.planning.optimiser import PlanOptimiser
from neurodyn.control.planning.settings import SamplingSettings
from neurodyn.control.planning.smooth_noise import smooth_noise
from neurodyn.core.errors import require


class MppiSettings(SamplingSettings, frozen=True):
    """Settings of MPPI.

    Attributes:
        temperature: Difference of returns at which a candidate weighs e times less (lambda).
    """

    temperature: float = 1.0

    def check(self) -> None:
        """Refuse a temperature that is not above 0."""
        super().check()
        require(self.temperature > 0, "temperature", self.temperature, "above 0")


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
