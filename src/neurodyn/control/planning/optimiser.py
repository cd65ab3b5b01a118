# SPDX-License-Identifier: Apache-2.0
"""What a planner's algorithm is, and the registry of them."""

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import torch
from torch import Tensor

from neurodyn.control.planning.imagination import Imagination
from neurodyn.control.planning.settings import PlannerSettings
from neurodyn.core.errors import InputError
from neurodyn.core.registry import Registry
from neurodyn.dynamics.interface import Dynamics


class PlanOptimiser(ABC):
    """Improves plans in a model.

    Attributes:
        settings_type: Its settings.
        needs_gradients: Whether it differentiates the model.
    """

    settings_type: ClassVar[type[PlannerSettings]]
    needs_gradients: ClassVar[bool] = False

    def __init__(self, settings: Any, generator: torch.Generator) -> None:
        """Prepare.

        Args:
            settings: Its settings.
            generator: Draws candidates.
        """
        self.settings, self.generator = settings, generator

    def require_model(self, model: Dynamics) -> None:
        """Refuse a model that it cannot plan in, with an InputError."""
        if self.needs_gradients and not model.differentiable:
            raise InputError(
                f"{model.kind} dynamics of {model.spec.robot!r} have no gradients to plan by; valid: a planner that "
                f"draws samples ({', '.join(name for name in PLANNERS if not PLANNERS[name].needs_gradients)}), or a "
                "hybrid or neural model"
            )

    @abstractmethod
    def improve(self, imagination: Imagination, plan: Tensor, *, first: bool) -> Tensor:
        """Return better plans.

        Args:
            imagination: The worlds in the model.
            plan: Plans of the worlds, shape [worlds, frames, actions].
            first: Whether the plan is none yet.
        """


PLANNERS: "Registry[type[PlanOptimiser]]" = Registry(
    "planner",
    mppi="neurodyn.control.planning.mppi:Mppi",
    cem="neurodyn.control.planning.cem:Cem",
    annealed="neurodyn.control.planning.annealed:Annealed",
    gradient="neurodyn.control.planning.gradient:Gradient",
    ilqr="neurodyn.control.planning.ilqr:Ilqr",
)
"""Planners by the name that a user gives them."""


def best(returns: Tensor, plans: Tensor) -> Tensor:
    """Return the best plan of each world, shape [worlds, frames, actions]; shapes as of `Imagination.returns`."""
    rows = torch.arange(len(plans), device=plans.device)
    return plans[rows, returns.argmax(1)]
