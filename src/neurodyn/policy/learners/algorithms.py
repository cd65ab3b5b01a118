# SPDX-License-Identifier: Apache-2.0
"""Registry of algorithms that train policies; a new one needs settings, a learner, and `ALGORITHMS.add(name, ...)`."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from neurodyn.core.errors import InputError
from neurodyn.core.extras import require_extra
from neurodyn.core.registry import Registry
from neurodyn.dynamics.interface import Dynamics
from neurodyn.policy.settings import DistillationSettings, PolicySettings, ShacSettings, TrainingSettings

if TYPE_CHECKING:
    from neurodyn.policy.learners.learner import PolicyLearner


@dataclass(frozen=True)
class Algorithm:
    """An algorithm that trains a policy.

    Attributes:
        settings: Its settings.
        learner: Returns the class of its learner, whose imports take until training begins.
        needs_gradients: Whether it needs gradients through the dynamics.
    """

    settings: type[TrainingSettings]
    learner: "Callable[[], type[PolicyLearner]]"
    needs_gradients: bool = False

    def require(self, dynamics: Dynamics) -> None:
        """Check that the algorithm can train in these dynamics.

        Raises:
            InputError: It needs gradients and they have none.
        """
        if self.needs_gradients and not dynamics.differentiable:
            raise InputError(
                f"{self.settings.algorithm} needs gradients, which {dynamics.kind} dynamics of "
                f"{dynamics.spec.robot!r} do not have; valid: hybrid dynamics, a neural or a world model, or "
                "--algorithm ppo"
            )


def _ppo() -> "type[PolicyLearner]":
    from neurodyn.policy.learners.ppo import PpoLearner

    return PpoLearner


def _distillation() -> "type[PolicyLearner]":
    from neurodyn.policy.learners.distillation import DistillationLearner

    return DistillationLearner


def _shac() -> "type[PolicyLearner]":
    from neurodyn.policy.learners.shac import ShacLearner

    return ShacLearner


ALGORITHMS: Registry[Algorithm] = Registry(
    "algorithm",
    ppo=Algorithm(PolicySettings, _ppo),
    distillation=Algorithm(DistillationSettings, _distillation),
    shac=Algorithm(ShacSettings, _shac, needs_gradients=True),
)
"""Registry of algorithms."""


def require_learner() -> None:
    """Raise an InputError that names the extra `policy` if rsl_rl is not installed."""
    require_extra(["rsl_rl", "tensordict"], "training of policies", "policy")
