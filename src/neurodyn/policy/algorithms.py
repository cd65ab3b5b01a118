# SPDX-License-Identifier: Apache-2.0
"""Registry of algorithms that train policies; a new one needs settings, a learner, and `ALGORITHMS.add(name, ...)`."""

from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

from neurodyn.core.errors import InputError
from neurodyn.core.registry import Registry
from neurodyn.dynamics.interface import Dynamics
from neurodyn.policy.settings import DistillationSettings, PolicySettings, ShacSettings, TrainingSettings

if TYPE_CHECKING:
    from neurodyn.policy.learner import PolicyLearner


@dataclass(frozen=True)
class Algorithm:
    """An algorithm that trains a policy.

    Attributes:
        settings: Its settings.
        learner: Its learner, as "module:class", imported when training begins.
        needs_gradients: Whether it needs gradients through the dynamics.
    """

    settings: type[TrainingSettings]
    learner: str
    needs_gradients: bool = False

    def build(self) -> "type[PolicyLearner]":
        """Return the learner's class."""
        module, _, name = self.learner.partition(":")
        return getattr(import_module(module), name)

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


ALGORITHMS: Registry[Algorithm] = Registry(
    "algorithm",
    ppo=Algorithm(PolicySettings, "neurodyn.policy.ppo:PpoLearner"),
    distillation=Algorithm(DistillationSettings, "neurodyn.policy.distillation:DistillationLearner"),
    shac=Algorithm(ShacSettings, "neurodyn.policy.shac:ShacLearner", needs_gradients=True),
)
"""Registry of algorithms."""


def require_learner() -> None:
    """Raise an InputError that names the extra `policy` if rsl_rl is not installed."""
    missing = [name for name in ("rsl_rl", "tensordict") if find_spec(name) is None]
    if missing:
        raise InputError(
            f"policies need a package that is not installed ({', '.join(missing)}); install it with: "
            "pip install 'neurodyn[policy]'"
        )
