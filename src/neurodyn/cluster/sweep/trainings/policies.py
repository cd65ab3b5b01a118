# SPDX-License-Identifier: Apache-2.0
"""Sweeps of `neurodyn policy train`."""

from pathlib import Path
from typing import Any

from neurodyn.cluster.sweep.trainings.training import Training
from neurodyn.core.config import Config
from neurodyn.core.verdict import require_usable
from neurodyn.evaluate.runs.comparison import Figure
from neurodyn.learn.metrics import best_metric


class PolicyArguments(Config, frozen=True):
    """Arguments of `neurodyn policy train` that a sweep takes; the others are settings."""

    task: str
    dynamics: str
    algorithm: str = "ppo"
    settings: str | None = None
    policy: str | None = None
    starts: str | None = None
    reference: str | None = None
    minutes: float | None = None
    iterations: int | None = None
    worlds: int | None = None
    device: str = "cpu"


class PolicyTrain(Training):
    """`neurodyn policy train`."""

    arguments = PolicyArguments
    what = "return in the dynamics of the training"

    def settings(self, given: PolicyArguments) -> Config:
        """See `Training`."""
        from neurodyn.policy.optional_dependencies import require_learner

        require_learner()
        from neurodyn.control.resolve import open_dynamics
        from neurodyn.policy.algorithms import ALGORITHMS
        from neurodyn.policy.settings import load_settings, with_flags
        from neurodyn.policy.warm_start import begun_with
        from neurodyn.tasks import load

        chosen, task = ALGORITHMS[given.algorithm], load(given.task)
        where = open_dynamics(task, given.dynamics, device=given.device, starts=given.starts)
        chosen.require(where.dynamics)
        path = None if given.settings is None else Path(given.settings)
        found = with_flags(
            load_settings(given.task, path, logs=where.dynamics.measured, kind=chosen.settings),
            minutes=given.minutes, iterations=given.iterations, worlds=given.worlds,
        )  # fmt: skip
        return found if given.policy is None else begun_with(task, given.policy, found)[1]

    def settings_type(self, given: PolicyArguments) -> type[Config]:
        """See `Training`."""
        from neurodyn.policy.algorithms import ALGORITHMS

        return ALGORITHMS[given.algorithm].settings

    def run(self, given: PolicyArguments, settings: Any, out: Path, *, resume: bool) -> None:
        """See `Training`."""
        from neurodyn.control.compatibility import require_fit
        from neurodyn.control.resolve import open_dynamics, open_reference
        from neurodyn.policy.train import train_policy
        from neurodyn.policy.warm_start import begun_with
        from neurodyn.tasks import load

        task = load(given.task)
        where = open_dynamics(task, given.dynamics, device=given.device, starts=given.starts)
        require_fit(task, where.dynamics, settings.penalty)
        begun = None if given.policy is None else begun_with(task, given.policy, settings)[0]
        end = train_policy(
            task, where, out, settings, reference=open_reference(task, where, given.reference), starts=given.starts,
            initial=begun, resume=resume,
        )  # fmt: skip
        require_usable(end.verdict)

    def weights(self, given: PolicyArguments, out: Path) -> int:
        """See `Training`."""
        from neurodyn.nets.size import weights_in
        from neurodyn.policy.artifact import load_policy

        return weights_in(load_policy(out)[1].parameters())

    def figure(self, given: PolicyArguments, out: Path) -> Figure:
        """See `Training`."""
        return Figure(value=best_metric(out, "return_training", max), greater_is_better=True)
