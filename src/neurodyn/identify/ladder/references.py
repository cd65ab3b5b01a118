# SPDX-License-Identifier: Apache-2.0
"""Reference models beside the ladder: trivial baselines, and a small recurrent network trained on the same episodes.

A network knows nothing of mechanisms. Where it predicts held-out episodes better than a fitted mechanism does, the
mechanism lacks something that the log holds. It is trained for seconds, and becomes the run's model only if the user
takes any kind of model (`--kind any`).
"""

import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from neurodyn.core.errors import InputError
from neurodyn.core.progress import present_work
from neurodyn.data.header import Split
from neurodyn.data.split import episodes_of
from neurodyn.data.store import Store
from neurodyn.data.windows import Windows
from neurodyn.dynamics.batch import Trajectory
from neurodyn.dynamics.measures import BASELINES
from neurodyn.dynamics.neural.model import NEURAL, NeuralDynamics
from neurodyn.dynamics.rollout_errors import RolloutErrors
from neurodyn.dynamics.rollouts import recorded_environments, roll_along, truth_of
from neurodyn.learn.neural.settings import Phase, Settings
from neurodyn.learn.neural.train import train
from neurodyn.learn.run_folder import TrainingJob
from neurodyn.nets.networks import NetConfig
from neurodyn.robots import Robot

GRU = "gru"
WARMUP = 16
"""Frames that the network reads before a forecast."""
_FORECAST, _WIDTH = 16, 32
_WIDER, _LONGER = 64, 4
"""Width and factor on the steps of a network that may become the run's model."""
_LEAST = 4
"""Fewest frames of a forecast worth training on."""


@dataclass(frozen=True)
class TrainedReference:
    """A trained model beside the ladder.

    Attributes:
        name: Its name.
        dynamics: The model.
        context: Past frames that it reads.
        cpu_seconds: CPU time of its training [s].
    """

    name: str
    dynamics: NeuralDynamics
    context: int
    cpu_seconds: float

    @torch.no_grad()
    def errors(self, store: Store, windows: Windows) -> RolloutErrors:
        """Return the errors of its roll-outs along windows of a log."""
        where = recorded_environments(store, self.dynamics)
        path = roll_along(self.dynamics, windows.to(torch.float32), where)
        return RolloutErrors(store.header.spec, Trajectory(path.q.double(), path.qd.double()), truth_of(windows))


def train_gru(
    robot: Robot, name: str, store: Store, steps: int, seed: int, *, keep: Path | None = None
) -> TrainedReference | None:
    """Train a small recurrent network on a log's training episodes; the best by its validation episodes is kept.

    Args:
        robot: The robot.
        name: Name or path of its declaration.
        store: The log.
        steps: Optimiser steps.
        seed: Seed of weights and batches.
        keep: Folder of a network that may become the run's model: it is wider then, and trained for longer. None for
            one that is gone afterwards.

    Returns:
        The network; None if the episodes are too short for it, or it cannot learn them.
    """
    began = time.process_time()
    longest = min(int(store.lengths[episodes_of(store, split)].max()) for split in (Split.TRAIN, Split.VALIDATION))
    context = min(WARMUP, longest // 2)
    forecast = min(_FORECAST, longest - context - 1)
    if forecast < _LEAST:
        return None
    width = _WIDTH if keep is None else _WIDER
    settings = Settings(
        net=NetConfig(kind="gru", width=width, depth=1, head=width, warmup=context),
        phases=(
            Phase(share=0.3, rate=5e-3, batch=64, frames=context + forecast),
            Phase(share=0.7, rate=3e-3, batch=64, context=context, forecast=forecast),
        ),
        steps=steps if keep is None else _LONGER * steps, validations=5, validation_rollouts=64,
        velocity_products=False, seed=seed,
    )  # fmt: skip
    with TemporaryDirectory() as folder:
        out = Path(folder) / GRU if keep is None else keep
        if keep is not None and keep.is_dir():
            shutil.rmtree(keep)
        try:
            train(TrainingJob(robot, name, name, store, out, settings, progress=present_work()))
        except InputError:  # of a log that such a network cannot learn; a reference is no reason to fail
            return None
        return TrainedReference(GRU, NEURAL.load(out), context, time.process_time() - began)


def baseline_errors(errors: RolloutErrors) -> dict[str, RolloutErrors]:
    """Return the errors of the trivial baselines from the same starts, by title."""
    return {one.title: errors.baseline(name) for name, one in BASELINES.items()}
