# SPDX-License-Identifier: Apache-2.0
"""Model predictive path integral control (Williams et al. 2017), by the package pytorch-mppi, in any dynamics.

The package keeps states as tensors. The history of a model does not fit into one, so the roll-out keeps it, and the
package's state is a placeholder.
"""

from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from neurodyn.control.planning.imagination import Imagination, Roll
from neurodyn.control.planning.optimiser import PlanOptimiser
from neurodyn.control.planning.settings import SamplingSettings
from neurodyn.control.planning.smooth_noise import smooth_noise
from neurodyn.core.errors import InputError, require


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
    """MPPI for a batch of worlds."""

    settings_type = MppiSettings
    settings: MppiSettings

    def __init__(self, settings: MppiSettings, generator: torch.Generator) -> None:
        """Prepare; without the package an InputError names the extra."""
        super().__init__(settings, generator)
        if find_spec("pytorch_mppi") is None:
            raise InputError(
                "the planner mppi needs a package that is not installed (pytorch_mppi); install it with: pip install "
                "'neurodyn[control]'; cem, annealed and gradient need none"
            )
        self._package: Any = None
        self._roll: Roll | None = None
        self._imagination: Imagination | None = None
        self._gain = torch.empty(0)

    def improve(self, imagination: Imagination, plan: Tensor, *, first: bool) -> Tensor:
        """Return the plans after `rounds` updates of the package."""
        self._imagination = imagination
        # The package draws from torch's global generator, which is left as it was.
        with torch.random.fork_rng(devices=[plan.device] if plan.is_cuda else []):
            torch.manual_seed(int(torch.randint(2**31, (), generator=self.generator, device=self.generator.device)))
            if self._package is None or len(plan) != self._package.N:
                self._package = self._made(imagination, plan)
            self._package.U = plan
            for _ in range(self.settings.first_rounds if first else self.settings.rounds):
                self._package.command(plan.new_zeros(len(plan), 1), shift_nominal_trajectory=False)
            return self._package.U

    def _made(self, imagination: Imagination, plan: Tensor) -> Any:
        from pytorch_mppi.mppi import MPPI_Batched

        class Smooth(MPPI_Batched):
            """The package's MPPI, with noise that changes slowly."""

            def _sample_noise(self, shape: tuple[int, ...]) -> Tensor:
                return settings.noise * limit * smooth_noise((*shape, self.nu), settings.knot, None, plan)

        settings, limit = self.settings, imagination.limit
        bound = plan.new_full((plan.shape[2],), limit)
        return Smooth(
            self._dynamics, self._cost, 1, torch.eye(plan.shape[2], dtype=plan.dtype) * (settings.noise * limit) ** 2,
            len(plan), num_samples=settings.samples, horizon=plan.shape[1], device=str(plan.device),
            lambda_=settings.temperature, u_min=-bound, u_max=bound, step_dependent_dynamics=True,
            noise_abs_cost=False,
        )  # fmt: skip

    def _dynamics(self, state: Tensor, action: Tensor, frame: int) -> Tensor:
        if frame == 0:
            assert self._imagination is not None
            self._roll = self._imagination.start(self.settings.samples)
        assert self._roll is not None
        self._gain = self._roll.step(action)
        return state

    def _cost(self, state: Tensor, action: Tensor, frame: int) -> Tensor:
        return -self._gain
