# SPDX-License-Identifier: Apache-2.0
"""Sweeps of `neurodyn train` and `neurodyn finetune`."""

from pathlib import Path
from typing import Any

from neurodyn.cluster.sweep.trainings.training import Paths, Training, paths_of
from neurodyn.core.config import Config
from neurodyn.core.verdict import require_usable
from neurodyn.evaluate.runs.comparison import Figure
from neurodyn.learn.metrics import best_metric


class TrainArguments(Config, frozen=True):
    """Arguments of `neurodyn train` that a sweep takes."""

    robot: str
    data: Paths
    kind: str = "neural"
    size: str = "small"
    net: str | None = None
    minutes: float | None = None
    steps: int | None = None
    shares: tuple[float, ...] | None = None
    members: int | None = None
    device: str = "cpu"


class ModelTraining(Training):
    """A training of neural dynamics or of a world model, which is chosen by its roll-outs."""

    what = "held-out roll-out error, in standard deviations"

    def figure(self, given: Any, out: Path) -> Figure:
        """See `Training`."""
        return Figure(value=best_metric(out, "rollout_score", min))


class Train(ModelTraining):
    """`neurodyn train`, of neural dynamics and world models."""

    arguments = TrainArguments

    def settings(self, given: TrainArguments) -> Config:
        """See `Training`."""
        from neurodyn.learn.devices import require_device
        from neurodyn.learn.train import plan_training
        from neurodyn.robots import load

        require_device(given.device)
        return plan_training(
            load(given.robot), list(paths_of(given.data)), kind=given.kind, size=given.size, net=given.net,
            minutes=given.minutes, steps=given.steps, shares=given.shares, members=given.members,
        )[0]  # fmt: skip

    def settings_type(self, given: TrainArguments) -> type[Config]:
        """See `Training`."""
        return _settings_type(given.kind)

    def run(self, given: TrainArguments, settings: Any, out: Path, *, resume: bool) -> None:
        """See `Training`."""
        from neurodyn.learn.train import train

        end = train(
            given.robot, list(paths_of(given.data)), out, kind=given.kind, size=settings, shares=given.shares,
            device=given.device, resume=resume,
        )  # fmt: skip
        require_usable(end.verdict)


class FinetuneArguments(Config, frozen=True):
    """Arguments of `neurodyn finetune` that a sweep takes."""

    run: str
    data: Paths
    size: str = "finetune"
    minutes: float | None = None
    steps: int | None = None
    shares: tuple[float, ...] | None = None
    device: str = "cpu"


class Finetune(ModelTraining):
    """`neurodyn finetune`, of neural dynamics and world models."""

    arguments = FinetuneArguments

    def settings(self, given: FinetuneArguments) -> Config:
        """See `Training`."""
        from neurodyn.dynamics.files.artifact import load, require_match
        from neurodyn.learn.devices import require_device
        from neurodyn.learn.train import plan_finetuning

        require_device(given.device)
        settings, mixture = plan_finetuning(
            given.run, list(paths_of(given.data)), size=given.size, minutes=given.minutes, steps=given.steps,
            shares=given.shares,
        )  # fmt: skip
        model = load(given.run)
        for store, name in zip(mixture.stores, mixture.names, strict=True):
            require_match(model, store.header.spec, None, name)
        return settings

    def settings_type(self, given: FinetuneArguments) -> type[Config]:
        """See `Training`."""
        from neurodyn.dynamics.files.artifact import kind_of

        return _settings_type(kind_of(given.run))

    def run(self, given: FinetuneArguments, settings: Any, out: Path, *, resume: bool) -> None:
        """See `Training`."""
        from neurodyn.learn.train import finetune

        end = finetune(
            given.run, list(paths_of(given.data)), out, size=settings, shares=given.shares, device=given.device,
            resume=resume,
        )  # fmt: skip
        require_usable(end.verdict)


def _settings_type(kind: str) -> type[Config]:
    """Return the type of the settings with which a kind of dynamics is trained."""
    import neurodyn.learn.kinds  # noqa: F401 - registers it
    from neurodyn.dynamics.kinds import KINDS

    return KINDS[kind].parts["settings"]
