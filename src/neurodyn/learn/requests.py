# SPDX-License-Identifier: Apache-2.0
"""Arguments of `learn.train` and `learn.finetune`, and flags of their commands."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from neurodyn.core.config import Config
from neurodyn.core.requests import IN_PYTHON, Flag

if TYPE_CHECKING:
    from neurodyn.core.progress import Progress
    from neurodyn.learn.loop import Callback
    from neurodyn.learn.neural.policy_rollouts import LoggedActor
    from neurodyn.learn.plan import TrainingPlan
    from neurodyn.learn.run_folder import Data
    from neurodyn.learn.tracking import Logger
    from neurodyn.robots import Robot


class RunOptions(Config, frozen=True, kw_only=True):
    """Options of everything that fills a run directory over a long time."""

    resume: bool = False
    """Continue an interrupted run, with the same settings except for the budget."""
    logger: Annotated["Logger | None", Flag("logger")] = None
    """Tracker beside metrics.jsonl: tensorboard (default), wandb, none, or a LogWriter of rsl_rl as MODULE:CLASS. A
    resumed run keeps its own."""


class TrainingOptions(RunOptions, frozen=True, kw_only=True):
    """Options of every training of dynamics."""

    minutes: float | None = None
    """Time budget [min], without what other processes take; by default that of the settings."""
    steps: int | None = None
    """Optimiser steps instead of a time budget; then everything depends on the seed alone."""
    seed: int | None = None
    """Seed of weights and batches; by default that of the settings."""
    shares: Annotated[Sequence[float] | None, Flag(tuple[float, ...] | None)] = None
    """Share of each file in the windows of a batch, such as .7 .3; by default that of its transitions."""
    device: Annotated[str, Flag("device")] = "cpu"
    """Torch device that trains: cpu, cuda, cuda:1 ..."""
    threads: Annotated[int | None, Flag("threads")] = None
    """Threads of tensor operations; by default as in the settings (1, the fastest for small networks)."""
    progress: Annotated["Progress | None", IN_PYTHON] = None
    """Progress display."""
    callbacks: Annotated["Sequence[Callback]", IN_PYTHON] = ()
    """Called during the training."""


ANY = "any"
"""Kind that held-out errors pick."""


class TrainRequest(TrainingOptions, frozen=True, kw_only=False):
    """Training of a model on data."""

    robot: Annotated["Robot | str | Path", Flag(str)]
    """Name of a robot, or the path of your own declaration."""
    data: Annotated["Data", Flag(tuple[str, ...])]
    """HDF5 store of `neurodyn generate`, `import` or `policy log`, or an npz log that the robot declares; or several
    files of one robot, each on its own ground and with its own splits."""
    out: Annotated[str | Path, Flag(Path)]
    """Run directory to write."""
    kind: str = "neural"
    """Kind of dynamics: "neural" predicts the state of a simulator; "world-model" is an ensemble that predicts what the
    data measure, and its uncertainty. On the command line also "any": the best of these, of hybrid dynamics and of
    hybrid dynamics with networks on held-out episodes, as `neurodyn adapt --kind any` (in Python
    `neurodyn.identify.adapt`) finds it in `minutes` (10)."""
    size: Annotated["str | TrainingPlan", Flag(str)] = "small"
    """Training settings: small, paper, for world models also short and long (memory), or the path of a settings file.
    Settings themselves are used unchanged except for budget, seed and threads."""
    net: Annotated[str | None, Flag("net")] = None
    """Kind of network (neural); by default the one that suits the robot."""
    base: Annotated[str | None, Flag("base")] = None
    """Known dynamics that the network corrects (neural): contact (the declared mechanism with contacts, limits and
    friction), free (without these), impulses (like free, with a network of impulses at contact points), or RUN, a
    hybrid model without networks, for its identified quantities; by default that of the settings, or none."""
    conditions: Annotated[Sequence[str], Flag(tuple[str, ...])] = ()
    """Quantities that differ between the episodes of the data and are inputs of the network, by name or shell pattern,
    so that one network covers a family of robots; by default those of the settings, or none."""
    members: int | None = None
    """Networks to train in parallel, each on its own draw of the episodes; their disagreement is the model's
    uncertainty. By default as in the settings: 1 (neural) or 5 (world-model)."""


class FinetuneRequest(TrainingOptions, frozen=True, kw_only=False):
    """Fine-tuning of a trained model on other data of its robot."""

    run: Annotated[str | Path, Flag(str)]
    """Run directory, or pretrained:NAME."""
    data: Annotated["Data", Flag(tuple[str, ...])]
    """HDF5 store, or an npz log that the robot declares; or several files."""
    out: Annotated[str | Path, Flag(Path)]
    """Run directory to write."""
    size: Annotated["str | TrainingPlan", Flag(str)] = "finetune"
    """Settings: finetune, or the path of a settings file, or settings with the model's network."""
    keep: Literal["best", "last"] | None = None
    """Weights to keep: best, by held-out roll-outs and including the original model, or last; by default as in the
    settings (best)."""
    actors: Annotated["Sequence[LoggedActor]", IN_PYTHON] = ()
    """Policies that acted in the data (`learn.neural.policy_rollouts.LoggedActor`), for phases of the settings with
    `policy_rollouts`; without actors these are left out."""
