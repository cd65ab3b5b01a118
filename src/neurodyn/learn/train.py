# SPDX-License-Identifier: Apache-2.0
"""Train or fine-tune dynamics of any kind: from a robot and data to a run directory."""

from collections.abc import Sequence
from pathlib import Path

import neurodyn.learn.kinds  # noqa: F401 - registers what the functions below look up
from neurodyn.core.errors import InputError, choices
from neurodyn.core.progress import Progress
from neurodyn.data.mixture import Mixture
from neurodyn.dynamics.artifact import kind_of
from neurodyn.dynamics.kinds import KINDS
from neurodyn.learn.devices import current_ranks
from neurodyn.learn.learner import TrainState
from neurodyn.learn.loop import Callback
from neurodyn.learn.plan import TrainingPlan, with_budget
from neurodyn.learn.run_folder import Data, place_of
from neurodyn.learn.tracking.session import require_tracker, tracking
from neurodyn.learn.tracking.tracker import Logger
from neurodyn.robots import Robot, load, locate


def train(
    robot: Robot | str | Path,
    data: Data,
    out: str | Path,
    *,
    kind: str = "neural",
    size: str | TrainingPlan = "small",
    net: str | None = None,
    base: str | None = None,
    minutes: float | None = None,
    steps: int | None = None,
    seed: int | None = None,
    shares: Sequence[float] | None = None,
    members: int | None = None,
    device: str = "cpu",
    threads: int | None = None,
    resume: bool = False,
    progress: Progress | None = None,
    callbacks: Sequence[Callback] = (),
    logger: Logger | None = None,
) -> TrainState:
    """Train a model of a robot and write it to a run directory.

    Args:
        robot: A robot, its name, or the path of its declaration.
        data: A store, or the path of one, or of a log that the robot declares; or several of one robot, each on its own
            ground and with its own splits.
        out: Run directory.
        kind: "neural", "world-model", or another kind of dynamics that can be trained.
        size: Training settings: "small", "paper", the path of a settings file, or the settings themselves (as
            RUN/config.yaml has them), which are taken as they are but for budget, seed and threads.
        net: Kind of network of neural dynamics; None for the one that suits the robot.
        base: Known motion that neural dynamics correct, "free" or "contact"; None for that of the settings.
        minutes: Time budget [min]; None for that of the settings.
        steps: Optimiser steps instead of a time budget; then everything depends on the seed alone.
        seed: Seed of weights and batches; None for that of the settings.
        shares: Share of each of several data in the windows of a batch; None for that of its transitions.
        members: Networks of an ensemble, whose disagreement says how uncertain a prediction is; None for those of the
            settings (neural dynamics: 1).
        device: Torch device that trains.
        threads: Threads of tensor operations; None for those of the settings.
        resume: Go on with a run that was stopped, with the same settings but for the budget.
        progress: Shown how far the training is.
        callbacks: Called as the training goes.
        logger: What follows the training: "tensorboard", "wandb", "none", another of `learn.TRACKERS`, or a LogWriter
            of rsl_rl ("package.module:Class", or a mapping as its `cfg["logger"]`); None for TensorBoard, or what
            followed the run so far where it is resumed.

    Returns:
        Where the training ended.

    Raises:
        InputError: Something of that is unknown, missing or does not fit; the run exists, or cannot be resumed.
        Interrupted: Ctrl-C or SIGTERM; the run is saved.
    """
    require_tracker(logger, out)
    declared = robot if isinstance(robot, Robot) else load(robot)
    with current_ranks().exclusive(out), tracking(logger, out):
        settings, mixture = plan_training(
            declared, data, kind=kind, size=size, net=net, base=base, minutes=minutes, steps=steps, seed=seed,
            shares=shares, members=members, threads=threads,
        )  # fmt: skip
        return KINDS[kind].parts["train"](
            declared, locate(robot), place_of(mixture), mixture, Path(out), settings, device=device, resume=resume,
            progress=progress, callbacks=callbacks,
        )  # fmt: skip


def finetune(
    run: str | Path,
    data: Data,
    out: str | Path,
    *,
    size: str | TrainingPlan = "finetune",
    minutes: float | None = None,
    steps: int | None = None,
    seed: int | None = None,
    shares: Sequence[float] | None = None,
    device: str = "cpu",
    threads: int | None = None,
    resume: bool = False,
    progress: Progress | None = None,
    callbacks: Sequence[Callback] = (),
    logger: Logger | None = None,
) -> TrainState:
    """Adapt the model of a run, or of "pretrained:NAME", to other data of the same robot, in a new run directory.

    Arguments are those of `train`; `size` is "finetune", the path of a settings file, or the settings themselves, whose
    network is that of the model.

    Raises:
        InputError: There is no such run, the data are another robot's, or models of its kind cannot be fine-tuned.
        Interrupted: Ctrl-C or SIGTERM; the run is saved.
    """
    with current_ranks().exclusive(out), tracking(logger, out):
        settings, mixture = plan_finetuning(
            run, data, size=size, minutes=minutes, steps=steps, seed=seed, shares=shares, threads=threads
        )
        return KINDS[kind_of(run)].parts["finetune"](
            str(run), place_of(mixture), mixture, Path(out), settings, device=device, resume=resume, progress=progress,
            callbacks=callbacks,
        )  # fmt: skip


def plan_training(
    robot: Robot,
    data: Data,
    *,
    kind: str = "neural",
    size: str | TrainingPlan = "small",
    net: str | None = None,
    base: str | None = None,
    minutes: float | None = None,
    steps: int | None = None,
    seed: int | None = None,
    shares: Sequence[float] | None = None,
    members: int | None = None,
    threads: int | None = None,
) -> tuple[TrainingPlan, Mixture]:
    """Return with which settings, and on which data, `train` trains; arguments and errors are its own."""
    if "train" not in KINDS[kind].parts:
        able = choices(name for name, known in KINDS.items() if "train" in known.parts)
        raise InputError(f"kind is {kind!r}, whose dynamics are not trained; valid: {able}")
    _require_settings(kind, size)
    settings, mixture = KINDS[kind].parts["plan training"](
        robot, data, size=size, net=net, base=base, shares=shares, members=members
    )
    return with_budget(settings, minutes, steps, seed, threads), mixture


def plan_finetuning(
    run: str | Path,
    data: Data,
    *,
    size: str | TrainingPlan = "finetune",
    minutes: float | None = None,
    steps: int | None = None,
    seed: int | None = None,
    shares: Sequence[float] | None = None,
    threads: int | None = None,
) -> tuple[TrainingPlan, Mixture]:
    """Return with which settings, and on which data, `finetune` trains; arguments and errors are its own."""
    kind = kind_of(run)
    plan = KINDS[kind].part("plan finetuning", str(run))
    _require_settings(kind, size)
    settings, mixture = plan(str(run), data, size=size, shares=shares)
    return with_budget(settings, minutes, steps, seed, threads), mixture


def _require_settings(kind: str, size: str | TrainingPlan) -> None:
    """Refuse settings of another kind of dynamics.

    Raises:
        InputError: They are.
    """
    if isinstance(size, TrainingPlan) and not isinstance(size, wanted := KINDS[kind].parts["settings"]):
        raise InputError(f"size is {type(size).__name__}; valid for {kind!r}: a name, a file, or {wanted.__name__}")
