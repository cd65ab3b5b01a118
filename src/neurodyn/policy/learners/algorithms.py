# SPDX-License-Identifier: Apache-2.0
"""Registry of algorithms that train policies; a new one needs settings, a learner, and `ALGORITHMS.add(name, ...)`."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from neurodyn.core.config import read_record
from neurodyn.core.errors import InputError
from neurodyn.core.extras import require_extra
from neurodyn.core.registry import Registry
from neurodyn.dynamics.interface import Dynamics
from neurodyn.learn.manifest import DEFAULT_ALGORITHM
from neurodyn.policy.settings import (
    DistillationSettings,
    PolicySettings,
    ShacSettings,
    TrainingSettings,
    fitting_kinds,
)

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


def chosen_algorithm(asked: str | None, recorded: Path | None, settings: str | Path | None) -> str | None:
    """Return the algorithm that is asked for, else the one that began a training, else the only one that settings fit.

    Args:
        asked: Name of an algorithm.
        recorded: The config.yaml of a training that continues.
        settings: File with settings.

    Returns:
        Its name; None if nothing decides.

    Raises:
        InputError: The algorithm is unknown, or trains students.
    """
    if asked is not None:
        if ALGORITHMS[asked].settings.infers:
            raise InputError(f"--algorithm {asked} needs a teacher; valid: `neurodyn policy distill TEACHER --out DIR`")
        return asked
    if recorded is not None and recorded.is_file():
        return read_record(recorded).get("algorithm") or DEFAULT_ALGORITHM
    kinds = [one.settings for one in ALGORITHMS.values() if not one.settings.infers]
    fitting = [] if settings is None else fitting_kinds(Path(settings), kinds)
    return fitting[0].algorithm if len(fitting) == 1 else None


def require_learner() -> None:
    """Raise an InputError that names the extra `policy` if rsl_rl is not installed."""
    require_extra(["rsl_rl", "tensordict"], "training of policies", "policy")
